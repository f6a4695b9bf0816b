// A session with the server that survives broken connections: each message is taken once, each event heard once.
//
// The server acknowledges messages. After a break `?resume=ID&event=M` goes on where both sides stopped.

import { Problem, told } from "./words.js";

const REFUSED = { 400: "anew", 401: "wrong-key", 403: "origin", 404: "anew", 503: "full" };

// A browser hides why a websocket was refused. The same request without the upgrade tells: {status, problem}.
async function whyRefused(url, key) {
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  const response = await fetch(url, { headers, cache: "no-store" }).catch(() => null);
  if (!response) return { status: 0, problem: new Problem("unreachable") };
  const { status } = response;
  const word = status === 401 && !key ? "no-key" : (REFUSED[status] ?? "refused");
  return { status, problem: new Problem(word, status) };
}

const PATIENCE_MS = 60_000; // of a broken link
const MAX_WAIT_MS = 3_000; // between two attempts
const SILENT_MS = 15_000; // without an acknowledgement: the link is dead, though not closed
const MAX_BYTES = 4 << 20; // of audio that waits: 43 s at 48 kHz
const MAX_AHEAD_BYTES = 512 << 10; // a recording waits while more is not taken

export class Link {
  isBroken = false;
  #waiting; // messages that the server has not taken
  #taken = { messages: 0, bytes: 0 }; // those before them
  #waitingBytes = 0; // of audio
  #socket = null;
  #sessionId = null;
  #numEvents = 0; // of the session, heard
  #isOpen = false; // the session takes messages
  #isOver = false;
  #brokenAt = 0;
  #heardAt = 0;

  // server: {url, key}. session: of session.update. on: {hear(event), opened(), broken(), over(Problem or null)}.
  constructor(server, session, on) {
    Object.assign(this, { server, on });
    this.#waiting = [JSON.stringify({ type: "session.update", session })];
    this.#connect();
    this.pulse = setInterval(() => this.#checkPulse(), 1_000);
  }

  // An object, or audio as an ArrayBuffer.
  send(message) {
    const isAudio = message instanceof ArrayBuffer;
    if (isAudio && this.#waitingBytes >= MAX_BYTES) return this.close(new Problem("lost"));
    if (isAudio) this.#waitingBytes += message.byteLength;
    const data = isAudio ? message : JSON.stringify(message);
    this.#waiting.push(data);
    if (this.#isOpen) this.#socket.send(data);
  }

  // Until more audio may be sent; false if it would be useless.
  async room() {
    while (!this.#isOver && (!this.#isOpen || this.#waitingBytes > MAX_AHEAD_BYTES)) await sleep(20);
    return !this.#isOver;
  }

  close(problem = null) {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#isOpen = false;
    clearInterval(this.pulse);
    this.#socket?.close(1000);
    this.on.over(problem);
  }

  #connect() {
    const { url, key } = this.server;
    const address = new URL(url);
    if (this.#sessionId) {
      address.searchParams.set("resume", this.#sessionId);
      address.searchParams.set("event", this.#numEvents);
    }
    const protocols = ["realtime", ...(key ? [`openai-insecure-api-key.${key}`] : [])];
    try {
      this.#socket = new WebSocket(address, protocols);
    } catch {
      return this.close(new Problem("wrong-key")); // it holds what no key may hold
    }
    this.#socket.binaryType = "arraybuffer";
    this.#socket.onmessage = ({ data }) => this.#hear(JSON.parse(data));
    this.#socket.onclose = (event) => this.#closed(event);
    this.#heardAt = performance.now();
  }

  #hear(event) {
    this.#heardAt = performance.now();
    this.#numEvents = event.type === "streamer.resumed" ? event.event : this.#numEvents + 1;
    if (event.type === "session.created") this.#sessionId = event.session.id;
    if (["streamer.ack", "streamer.resumed"].includes(event.type)) this.#acknowledged(event);
    if (["session.created", "streamer.resumed"].includes(event.type)) return this.#opened();
    this.on.hear(event);
  }

  #acknowledged({ messages, bytes }) {
    if (messages < this.#taken.messages) return; // from before the break, and sent again
    this.#waiting.splice(0, messages - this.#taken.messages);
    this.#waitingBytes -= bytes - this.#taken.bytes;
    this.#taken = { messages, bytes };
  }

  #opened() {
    this.#waiting.forEach((data) => this.#socket.send(data));
    this.#isOpen = true;
    this.isBroken = false;
    this.on.opened();
  }

  async #closed({ code, reason }) {
    if (this.#isOver) return;
    const wasOpen = this.#isOpen;
    this.#isOpen = false;
    if (wasOpen && (code === 1000 || code === 1008 || code >= 4000)) {
      return this.close(new Problem("closed", told(reason)));
    }
    const isFirst = !this.isBroken;
    if (isFirst) this.#brokenAt = performance.now();
    this.isBroken = true;
    const brokenMs = performance.now() - this.#brokenAt;
    if (!wasOpen) {
      const { status, problem } = await whyRefused(this.#socket.url.replace(/^ws/, "http"), this.server.key);
      const isPassing = status === 426 || (this.#sessionId && (status === 0 || status === 503));
      if (!isPassing || brokenMs > PATIENCE_MS) return this.close(problem);
    }
    if (isFirst) this.on.broken();
    await sleep(isFirst ? 0 : Math.min(MAX_WAIT_MS, 100 + brokenMs / 2));
    if (!this.#isOver) this.#connect();
  }

  #checkPulse() {
    const isSilent = performance.now() - this.#heardAt > SILENT_MS;
    if (!this.#isOpen || !this.#waiting.length || !isSilent) return;
    this.#socket.onclose = null; // it may come much later
    this.#socket.close();
    this.#closed({ code: 1006 });
  }
}

function sleep(ms) {
  return new Promise((done) => setTimeout(done, ms));
}
