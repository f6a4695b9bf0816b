// The microphone's samples, on the audio thread. In: blocks of 128 samples, float. Out: PCM16 frames of 20 ms.
//
// A device faster than the server takes (48 kHz) is averaged down by a whole number; any other rate is left as it is.

import { toPcm16 } from "./mixer.js";

const FRAME_S = 0.02;

class Framer extends AudioWorkletProcessor {
  numFilled = 0;
  sum = 0; // of the samples that become the next one

  constructor({ processorOptions: { factor } }) {
    super();
    this.factor = factor;
    this.size = factor * Math.round((sampleRate / factor) * FRAME_S);
    this.frame = new Int16Array(this.size / factor);
  }

  process([[samples = []]]) { // none while the device is being opened
    for (const sample of samples) {
      this.sum += sample;
      this.numFilled += 1;
      if (this.numFilled % this.factor) continue;
      this.frame[this.numFilled / this.factor - 1] = toPcm16(this.sum / this.factor);
      this.sum = 0;
      if (this.numFilled === this.size) this.send();
    }
    return true;
  }

  send() {
    this.port.postMessage(this.frame.buffer, [this.frame.buffer]);
    this.frame = new Int16Array(this.size / this.factor);
    this.numFilled = 0;
  }
}

registerProcessor("framer", Framer);
