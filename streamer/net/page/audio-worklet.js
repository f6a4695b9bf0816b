// The microphone's samples, on the audio thread. In: blocks of 128 samples per channel, float. Out: PCM16 frames of 20 ms.

import { KEPT, Mixer, toPcm16 } from "./mixer.js";

const FRAME_S = 0.02;
const KEPT_A_FRAME = KEPT ** (FRAME_S / 0.05);

class Framer extends AudioWorkletProcessor {
  size = Math.round(sampleRate * FRAME_S);
  blocks = [];
  numFilled = 0;

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
    const frame = Int16Array.from(this.mixer.mix(this.blocks, KEPT_A_FRAME), toPcm16);
    this.port.postMessage(frame.buffer, [frame.buffer]);
    this.numFilled = 0;
  }
}

registerProcessor("framer", Framer);
