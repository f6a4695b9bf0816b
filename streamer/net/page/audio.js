// Sound: PCM16 mono frames of the microphone at the device's own rate, and files.

import { toPcm } from "./mixer.js";
import { Problem } from "./view.js";

const HEARD_HZ = 16_000; // what the server hears
const MAX_FILE_BYTES = 200e6; // ten times as large when decoded
const MAX_KEPT_S = 300; // 38 MB in a report, at 48 kHz

// Loudness is one of the attributes: nothing may level it out. Echo and noise suppression change the timbre.
const WANTED = { channelCount: 1, autoGainControl: false, echoCancellation: false, noiseSuppression: false };
const REFUSED = { NotAllowedError: "not-allowed", NotFoundError: "no-microphone", NotReadableError: "taken" };

// {rateHz, close()}; rejects with a Problem. onFrame(ArrayBuffer) from then on; onLost() if the device goes away.
export async function openMicrophone(onFrame, onLost) {
  if (!window.isSecureContext || !navigator.mediaDevices) throw new Problem("insecure");
  let stream, context;
  const close = async () => {
    stream?.getTracks().forEach((track) => track.stop());
    if (context?.state !== "closed") await context?.close();
  };
  try {
    stream = await navigator.mediaDevices.getUserMedia({ audio: WANTED });
    stream.getAudioTracks()[0].onended = onLost;
    context = new AudioContext(); // a rate of our own would fail in browsers that do not resample
    await context.audioWorklet.addModule("mixer.js").catch(() => {
      throw new Problem("unreachable"); // the worklet comes from the server, as the page does
    });
    await context.resume();
    const framer = new AudioWorkletNode(context, "framer");
    framer.port.onmessage = ({ data }) => onFrame(data);
    context.createMediaStreamSource(stream).connect(framer);
    framer.connect(context.destination); // it plays silence; a node that leads nowhere may not be run
    return { rateHz: Math.round(context.sampleRate), close };
  } catch (error) {
    await close();
    if (error instanceof Problem) throw error;
    throw new Problem(REFUSED[error.name] ?? "no-opening", error.message || error.name);
  }
}

// Loudness of a frame, 0 (-60 dB or less) to 1 (full scale).
export function levelOf(frame) {
  const samples = new Int16Array(frame);
  const energy = samples.reduce((sum, sample) => sum + sample * sample, 0);
  const decibels = 10 * Math.log10(energy / samples.length / 32768 ** 2 + 1e-12);
  return Math.max(0, Math.min(1, 1 + decibels / 60));
}

// The microphone's sound, kept for a report where the user wishes it.
export class Sound {
  #frames = [];
  #numBytes = 0;

  // A frame of PCM16. Beyond MAX_KEPT_S the oldest ones go.
  add(frame, rateHz) {
    this.rateHz = rateHz;
    this.#numBytes += frame.byteLength;
    this.#frames.push(frame);
    while (this.#numBytes > 2 * MAX_KEPT_S * rateHz) this.#numBytes -= this.#frames.shift().byteLength;
  }

  // A WAV file as a data URL, or null without sound.
  async url() {
    if (!this.#numBytes) return null;
    const numbers = (...all) => Uint32Array.from(all);
    const format = numbers(16, 1 | (1 << 16), this.rateHz, 2 * this.rateHz, 2 | (16 << 16)); // PCM, one channel
    const head = ["RIFF", numbers(36 + this.#numBytes), "WAVEfmt ", format, "data", numbers(this.#numBytes)];
    const reader = new FileReader();
    reader.readAsDataURL(new Blob([...head, ...this.#frames], { type: "audio/wav" }));
    await new Promise((done) => (reader.onload = done));
    return reader.result;
  }
}

// {rateHz, pcm: Int16Array}; rejects with a Problem.
export async function readRecording(file) {
  if (file.size > MAX_FILE_BYTES) throw new Problem("large");
  const context = new OfflineAudioContext(1, 1, HEARD_HZ); // it resamples
  const decoded = await context.decodeAudioData(await file.arrayBuffer()).catch(() => {
    throw new Problem("no-sound");
  });
  return { rateHz: HEARD_HZ, pcm: toPcm(decoded) };
}
