// The microphone's samples, on the audio thread. In: blocks of 128 samples per channel, float. Out: PCM16 frames of 20 ms.
//
// A device faster than the server takes (48 kHz) is averaged down by a whole number; any other rate is left as it is.

import { KEPT, Mixer, toPcm16 } from "./mixer.js";

const FRAME_S = 0.02;
const KEPT_A_FRAME = KEPT ** (FRAME_S / 0.05);

class Framer extends AudioWorkletProcessor {
  constructor(options) {
    super();
    this.factor = options.processorOptions.factor;
    this.size = Math.round((sampleRate / this.factor) * FRAME_S) * this.factor;
    this.blocks = [];
    this.numFilled = 0;
  }

  process([channels]) {
    if (channels.length && channels.length !== this.blocks.length) {
      this.blocks = channels.map(() => new Float32Array(this.size));
      this.mixer = new Mixer(channels.length);
      this.numFilled = 0;
    }
    const numSamples = channels.length ? channels[0].length : 0; // none while the device is being opened
    for (let i = 0; i < numSamples; i++) {
      for (let c = 0; c < channels.length; c++) this.blocks[c][this.numFilled] = channels[c][i];
      if (++this.numFilled === this.size) this.send();
    }
    return true;
  }

  send() {
    const mixed = this.mixer.mix(this.blocks, KEPT_A_FRAME);
    const frame = new Int16Array(this.size / this.factor);
    for (let i = 0; i < frame.length; i++) {
      let sum = 0;
      for (let j = 0; j < this.factor; j++) sum += mixed[i * this.factor + j];
      frame[i] = toPcm16(sum / this.factor);
    }
    this.port.postMessage(frame.buffer, [frame.buffer]);
    this.numFilled = 0;
  }
}

registerProcessor("framer", Framer);
