// What was sent and is not acknowledged. In: messages in order. Out: those to send again after a broken link.
//
// Messages are numbered as the server counts them, from 0. Bounded: beyond MAX_BYTES no more audio is taken.

const MAX_BYTES = 4 << 20; // 43 s at 48 kHz

export class Tail {
  #messages = []; // text or ArrayBuffer
  #first = 0; // number of the oldest that is kept
  #firstByte = 0; // of audio: where the oldest that is kept begins
  numBytes = 0; // of audio that is kept

  get firstByte() {
    return this.#firstByte;
  }

  get messages() {
    return this.#messages;
  }

  // False where there is no room for it.
  push(message) {
    if (sizeOf(message) && this.numBytes >= MAX_BYTES) return false;
    this.#messages.push(message);
    this.numBytes += sizeOf(message);
    return true;
  }

  // The server has taken `num` messages.
  acknowledge(num) {
    while (this.#first < num && this.#messages.length) this.#drop();
  }

  // Another session begins with `hello`, in place of `last`: what the last one did not take goes to the new one, if that
  // makes sense.
  restart(last, hello, keepsRest) {
    const rest = keepsRest ? this.#messages.filter((message) => message !== last) : [];
    this.#messages = [hello, ...rest];
    this.#first = this.#firstByte = 0;
    this.numBytes = rest.reduce((sum, message) => sum + sizeOf(message), 0);
  }

  clear() {
    this.#messages = [];
    this.numBytes = 0;
  }

  #drop() {
    const size = sizeOf(this.#messages.shift());
    this.numBytes -= size;
    this.#firstByte += size;
    this.#first += 1;
  }
}

function sizeOf(message) {
  return typeof message === "string" ? 0 : message.byteLength;
}
