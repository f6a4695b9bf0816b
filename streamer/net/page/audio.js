// Sound: PCM16 mono frames of the microphone at the device's own rate, and files.

import { Problem, ofMicrophone } from "./link.js";
import { Mixer } from "./mixer.js";

const MAX_RATE_HZ = 48_000; // of the server
const MIN_RATE_HZ = 8_000;
const MAX_FILE_BYTES = 200e6; // ten times as large when decoded

// Loudness is one of the attributes: nothing may level it out. Echo and noise suppression change the timbre.
const WANTED = { channelCount: 1, autoGainControl: false, echoCancellation: false, noiseSuppression: false };

export class Microphone {
  #context;
  #stream;

  // Rejects with a Problem. onFrame(ArrayBuffer) from then on; onLost() if the device goes away.
  static async open(onFrame, onLost) {
    if (!window.isSecureContext || !navigator.mediaDevices) {
      throw new Problem("insecure");
    }
    const microphone = new Microphone();
    try {
      await microphone.#open(onFrame, onLost);
    } catch (error) {
      await microphone.close();
      throw ofMicrophone(error);
    }
    return microphone;
  }

  async #open(onFrame, onLost) {
    this.#stream = await navigator.mediaDevices.getUserMedia({ audio: WANTED });
    this.#stream.getAudioTracks()[0].addEventListener("ended", onLost);
    this.#context = new AudioContext(); // a rate of our own would fail in browsers that do not resample
    await this.#context.audioWorklet.addModule("audio-worklet.js").catch(() => {
      throw new Problem("unreachable"); // it comes from the server, as the page did
    });
    await this.#context.resume();
    const factor = Math.ceil(this.#context.sampleRate / MAX_RATE_HZ);
    this.rateHz = Math.round(this.#context.sampleRate / factor);
    if (this.rateHz < MIN_RATE_HZ) throw new Problem("low-rate", this.rateHz);
    const framer = new AudioWorkletNode(this.#context, "framer", { numberOfOutputs: 1, processorOptions: { factor } });
    framer.port.onmessage = ({ data }) => onFrame(data);
    this.#context.createMediaStreamSource(this.#stream).connect(framer);
    framer.connect(this.#context.destination); // it plays silence; a node that leads nowhere may not be run
  }

  async close() {
    this.#stream?.getTracks().forEach((track) => track.stop());
    if (this.#context && this.#context.state !== "closed") await this.#context.close();
  }
}

// Loudness of a frame, 0 (-60 dB or less) to 1 (full scale).
export function levelOf(frame) {
  const samples = new Int16Array(frame);
  let energy = 0;
  for (const sample of samples) energy += sample * sample;
  const decibels = 10 * Math.log10(energy / samples.length / 32768 ** 2 + 1e-12);
  return Math.max(0, Math.min(1, 1 + decibels / 60));
}

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

// In blocks of 50 ms.
function toPcm(decoded) {
  const channels = Array.from({ length: decoded.numberOfChannels }, (_, i) => decoded.getChannelData(i));
  const pcm = new Int16Array(decoded.length);
  const size = Math.floor(decoded.sampleRate / 20);
  const mixer = new Mixer(channels.length);
  for (let from = 0; from < pcm.length; from += size) {
    const mixed = mixer.mix(channels.map((channel) => channel.subarray(from, from + size)));
    mixed.forEach((sample, i) => (pcm[from + i] = Math.max(-32768, Math.min(32767, Math.round(sample * 32768)))));
  }
  return pcm;
}
