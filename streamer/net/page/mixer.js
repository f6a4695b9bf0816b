// One channel of several. Channels share one gain by their energy, without 0 Hz; of channels that cancel each other only
// the strongest is heard. As streamer/core/audio/chunker.py does it.

export const KEPT = 0.8; // of the channels' energies after 50 ms
const CANCELS = 0.2; // channels whose sum keeps less than this share of their energy cancel

export class Mixer {
  #energies;
  #whole;
  #summed = 0;
  #shares = null;

  constructor(numChannels) {
    this.#energies = new Array(numChannels).fill(0);
    this.#whole = new Array(numChannels).fill(0);
  }

  // The next samples of each channel, Float32Arrays of one length; what is left of the energies before. Their mix.
  mix(blocks, kept = KEPT) {
    if (blocks.length === 1) return blocks[0];
    const length = blocks[0].length;
    const next = this.#sharesOf(blocks, length, kept);
    const before = this.#shares ?? next;
    const mixed = new Float64Array(length);
    for (let i = 0; i < length; i++) {
      const way = i / Math.max(1, length - 1);
      blocks.forEach((block, c) => (mixed[i] += block[i] * (before[c] + way * (next[c] - before[c]))));
    }
    if (next.some((share) => share)) this.#shares = next;
    return mixed;
  }

  #sharesOf(blocks, length, kept) {
    const offsets = blocks.map((block) => block.reduce((sum, sample) => sum + sample, 0) / length);
    const offset = offsets.reduce((sum, one) => sum + one, 0);
    this.#summed *= kept;
    for (let i = 0; i < length; i++) this.#summed += (blocks.reduce((sum, block) => sum + block[i], 0) - offset) ** 2;
    blocks.forEach((block, c) => {
      const energy = block.reduce((sum, sample) => sum + (sample - offsets[c]) ** 2, 0);
      this.#energies[c] = kept * this.#energies[c] + energy;
      this.#whole[c] += energy;
    });
    const total = this.#energies.reduce((sum, energy) => sum + energy);
    const strongest = this.#whole.indexOf(Math.max(...this.#whole));
    const cancels = this.#summed < CANCELS * total;
    return blocks.map((_, c) => (cancels ? Number(c === strongest) : this.#energies[c] / (total || 1)));
  }
}
