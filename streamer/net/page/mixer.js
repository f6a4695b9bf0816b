// One channel of several: the loudest of late, by its energy without 0 Hz. As streamer/core/audio/chunker.py does it.

const BLOCK_S = 0.05;
const KEPT = 0.8; // of the channels' energies, from block to block
const LOUDER = 2; // in energy: a channel that takes over

export function toPcm16(sample) {
  return Math.max(-32768, Math.min(32767, Math.round(sample * 32768)));
}

// An AudioBuffer as Int16Array.
export function toPcm(decoded) {
  const channels = Array.from({ length: decoded.numberOfChannels }, (_, i) => decoded.getChannelData(i));
  const energies = channels.map(() => 0);
  const pcm = new Int16Array(decoded.length);
  const size = Math.floor(decoded.sampleRate * BLOCK_S);
  let heard = channels.length > 1 ? null : 0; // the channel, once one held sound
  for (let from = 0; from < pcm.length; from += size) {
    const blocks = channels.map((channel) => channel.subarray(from, from + size));
    const before = heard;
    if (blocks.length > 1) heard = loudest(blocks, energies, heard);
    if (heard === null) continue;
    const last = Math.max(1, blocks[0].length - 1);
    blocks[heard].forEach((sample, i) => {
      const other = blocks[before ?? heard][i]; // it fades into the new one
      pcm[from + i] = toPcm16(other + (i / last) * (sample - other));
    });
  }
  return pcm;
}

function loudest(blocks, energies, heard) {
  blocks.forEach((block, c) => {
    const offset = block.reduce((sum, sample) => sum + sample, 0) / block.length;
    energies[c] = KEPT * energies[c] + block.reduce((sum, sample) => sum + (sample - offset) ** 2, 0);
  });
  const most = Math.max(...energies);
  return most > LOUDER * (energies[heard] ?? 0) ? energies.indexOf(most) : heard;
}
