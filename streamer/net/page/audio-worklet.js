// The microphone's samples, on the audio thread. In: blocks of 128 samples per channel, float. Out: PCM16 frames of 20 ms.
//
// A device faster than the server takes (48 kHz) is averaged down by a whole number; any other rate is left as it is.

const FRAME_S = 0.02;

class Framer extends AudioWorkletProcessor {
  constructor(options) {
    super();
    this.factor = options.processorOptions.factor;
    this.frame = new Int16Array(Math.round((sampleRate / this.factor) * FRAME_S));
    this.numFilled = 0;
    this.sum = 0;
    this.numSummed = 0;
  }

  process([channels]) {
    const numSamples = channels.length ? channels[0].length : 0; // none while the device is being opened
    for (let i = 0; i < numSamples; i++) {
      let mixed = 0;
      for (const channel of channels) mixed += channel[i];
      this.sum += mixed / channels.length;
      if (++this.numSummed === this.factor) this.take();
    }
    return true;
  }

  take() {
    const sample = Math.max(-1, Math.min(1, this.sum / this.factor));
    this.frame[this.numFilled++] = Math.round(sample * 32767);
    this.sum = this.numSummed = 0;
    if (this.numFilled === this.frame.length) {
      this.port.postMessage(this.frame.slice().buffer);
      this.numFilled = 0;
    }
  }
}

registerProcessor("framer", Framer);
