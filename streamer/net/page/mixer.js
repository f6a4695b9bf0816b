// The loudest of several channels of late, by its energy without 0 Hz, as in streamer/core/audio/pcm.py. It runs on the page
// for files, and on the audio thread for the microphone.

const KEPT = 0.8; // of the channels' energies after 50 ms
const FRAME_S = 0.02; // of the microphone
const LOUDER = 2; // in energy: a channel that takes over

class Mixer {
  #energies;
  #heard = null; // the channel, once one held sound

  constructor(numChannels) {
    this.#energies = new Array(numChannels).fill(0);
  }

  // The next samples of each channel, Float32Arrays of one length; the share of older energies that is kept. Returns the heard ones.
  mix(blocks, kept = KEPT) {
    if (blocks.length === 1) return blocks[0];
    const before = this.#heard;
    const now = this.#loudest(blocks, kept);
    if (now === null) return new Float64Array(blocks[0].length);
    if (before === null || before === now) return blocks[now];
    const last = Math.max(1, blocks[0].length - 1);
    return Float64Array.from(blocks[now], (sample, i) => blocks[before][i] + (i / last) * (sample - blocks[before][i]));
  }

  #loudest(blocks, kept) {
    blocks.forEach((block, c) => {
      const offset = block.reduce((sum, sample) => sum + sample, 0) / block.length;
      const energy = block.reduce((sum, sample) => sum + (sample - offset) ** 2, 0);
      this.#energies[c] = kept * this.#energies[c] + energy;
    });
    const most = Math.max(...this.#energies);
    if (most > LOUDER * (this.#energies[this.#heard] ?? 0)) this.#heard = this.#energies.indexOf(most);
    return this.#heard;
  }
}

function toPcm16(sample) {
  return Math.max(-32768, Math.min(32767, Math.round(sample * 32768)));
}

// An AudioBuffer, in blocks of 50 ms.
export function toPcm(decoded) {
  const channels = Array.from({ length: decoded.numberOfChannels }, (_, i) => decoded.getChannelData(i));
  const pcm = new Int16Array(decoded.length);
  const size = Math.floor(decoded.sampleRate / 20);
  const mixer = new Mixer(channels.length);
  for (let from = 0; from < pcm.length; from += size) {
    const mixed = mixer.mix(channels.map((channel) => channel.subarray(from, from + size)));
    mixed.forEach((sample, i) => (pcm[from + i] = toPcm16(sample)));
  }
  return pcm;
}

// On the audio thread. In: blocks of 128 samples per channel, float. Out: PCM16 frames.
if (globalThis.registerProcessor) {
  registerProcessor("framer", class extends AudioWorkletProcessor {
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
      const frame = Int16Array.from(this.mixer.mix(this.blocks, KEPT ** (FRAME_S / 0.05)), toPcm16);
      this.port.postMessage(frame.buffer, [frame.buffer]);
      this.numFilled = 0;
    }
  });
}
