// A file of sound. In: a File. Out: PCM16 mono at the file's own rate where that is known, else at 48 kHz.

import { Problem } from "./problems.js";

const MAX_FILE_BYTES = 200e6; // decoded it is ten times as large
const MIN_RATE_HZ = 8_000;
const MAX_RATE_HZ = 48_000;

// {rateHz, pcm: Int16Array}; rejects with a Problem.
export async function readRecording(file) {
  if (file.size > MAX_FILE_BYTES) throw new Problem("large");
  const bytes = await file.arrayBuffer();
  const rateHz = Math.max(MIN_RATE_HZ, Math.min(MAX_RATE_HZ, waveRate(bytes) ?? MAX_RATE_HZ));
  let decoded;
  try {
    decoded = await new OfflineAudioContext(1, 1, rateHz).decodeAudioData(bytes); // it resamples to its own rate
  } catch {
    throw new Problem("no-sound");
  }
  return { rateHz, pcm: toPcm(decoded) };
}

// The rate in a WAV's format chunk; null for anything else.
function waveRate(bytes) {
  const view = new DataView(bytes);
  const word = (at) => String.fromCharCode(...new Uint8Array(bytes, at, 4));
  if (bytes.byteLength < 44 || word(0) !== "RIFF" || word(8) !== "WAVE") return null;
  for (let at = 12; at + 16 <= bytes.byteLength; at += 8 + view.getUint32(at + 4, true) + (view.getUint32(at + 4, true) & 1)) {
    if (word(at) === "fmt ") return view.getUint32(at + 12, true);
  }
  return null;
}

function toPcm(decoded) {
  const channels = Array.from({ length: decoded.numberOfChannels }, (_, i) => decoded.getChannelData(i));
  const pcm = new Int16Array(decoded.length);
  for (let i = 0; i < pcm.length; i++) {
    let sample = 0;
    for (const channel of channels) sample += channel[i] / channels.length;
    pcm[i] = Math.max(-32768, Math.min(32767, Math.round(sample * 32768)));
  }
  return pcm;
}
