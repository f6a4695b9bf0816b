// The microphone's sound, kept for a report where the user wishes it.

const MAX_S = 300; // 38 MB in a report, at 48 kHz

export class Sound {
  #frames = [];
  #numSamples = 0;

  // A frame of PCM16. Beyond MAX_S the oldest ones go.
  add(frame, rateHz) {
    this.rateHz = rateHz;
    this.#frames.push(frame);
    this.#numSamples += frame.byteLength / 2;
    while (this.#numSamples > MAX_S * rateHz) this.#numSamples -= this.#frames.shift().byteLength / 2;
  }

  // A WAV file as a data URL, or null without sound.
  async url() {
    if (!this.#numSamples) return null;
    const wave = new Blob([headerOf(this.#numSamples, this.rateHz), ...this.#frames], { type: "audio/wav" });
    const reader = new FileReader();
    return new Promise((resolve, reject) => {
      Object.assign(reader, { onload: () => resolve(reader.result), onerror: () => reject(reader.error) });
      reader.readAsDataURL(wave);
    });
  }
}

// The 44 bytes before mono PCM16.
function headerOf(numSamples, rateHz) {
  const view = new DataView(new ArrayBuffer(44));
  const word = (at, text) => [...text].forEach((each, i) => view.setUint8(at + i, each.charCodeAt(0)));
  const number = (at, value) => view.setUint32(at, value, true);
  word(0, "RIFF");
  number(4, 36 + 2 * numSamples);
  word(8, "WAVEfmt ");
  number(16, 16); // bytes of the format
  number(20, 1 | (1 << 16)); // PCM, one channel
  number(24, rateHz);
  number(28, 2 * rateHz);
  number(32, 2 | (16 << 16)); // bytes and bits of a sample
  word(36, "data");
  number(40, 2 * numSamples);
  return view.buffer;
}
