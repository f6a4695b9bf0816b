// The microphone. In: the user's permission. Out: PCM16 mono frames of 20 ms at the device's own rate.

import { Problem, ofMicrophone } from "./problems.js";

const MAX_RATE_HZ = 48_000;
const MIN_RATE_HZ = 8_000;

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
