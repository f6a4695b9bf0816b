// A session whose link may break. In: PCM and client events. Out: server events, in order, none lost and none twice.
//
// The server acknowledges what it took; after a break `?resume=ID&event=M&bytes=N` goes on where both sides stopped. When
// the session is gone (a restart), another one begins and gets what the last one had not taken.

import { Problem, whyRefused } from "./problems.js";
import { Tail } from "./tail.js";

const PATIENCE_S = 60; // of a broken link
const MAX_WAIT_MS = 3_000; // between two attempts
const SILENT_S = 15; // unacknowledged for so long: the link is dead though nobody closed it
const MAX_AHEAD_BYTES = 512 << 10; // a recording waits while so much is unacknowledged

export class Link {
  #tail = new Tail();
  #socket = null;
  #sessionId = null;
  #numEvents = 0; // of the session, heard
  #isOpen = false; // the session takes messages
  #isOver = false;
  #brokenAt = null;
  #heardAt = 0;

  // session: of session.update. on: {event(object), open(), broken(), lost(), over(Problem or null), anew()}.
  // lost: there was no room for audio, the link being broken for too long. anew tells whether a new session gets what
  // the last one had not taken.
  constructor(url, key, session, on) {
    Object.assign(this, { url, key, on });
    this.greet(session);
    this.#tail.push(this.hello);
    this.#connect();
    this.watch = setInterval(() => this.#checkPulse(), 1_000);
  }

  // What the next session is asked for.
  greet(session) {
    this.hello = JSON.stringify({ type: "session.update", session });
  }

  send(message) {
    const data = message instanceof ArrayBuffer ? message : JSON.stringify(message);
    if (!this.#tail.push(data)) this.on.lost();
    else if (this.#isOpen) this.#socket.send(data);
  }

  // Until more audio may be sent; false when there is no use in sending any.
  async room() {
    while (!this.#isOver && (!this.#isOpen || this.#tail.numBytes > MAX_AHEAD_BYTES)) await sleep(20);
    return !this.#isOver;
  }

  get isBroken() {
    return this.#brokenAt !== null;
  }

  close(problem = null) {
    this.#end(problem);
  }

  #connect() {
    const url = new URL(this.url);
    if (this.#sessionId) {
      url.searchParams.set("resume", this.#sessionId);
      url.searchParams.set("event", this.#numEvents);
      url.searchParams.set("bytes", this.#tail.firstByte);
    }
    const protocols = ["realtime", ...(this.key ? [`openai-insecure-api-key.${this.key}`] : [])];
    try {
      this.#socket = new WebSocket(url, protocols);
    } catch {
      this.#end(new Problem("odd-key"));
      return;
    }
    this.#socket.binaryType = "arraybuffer";
    this.#socket.onmessage = ({ data }) => this.#hear(JSON.parse(data));
    this.#socket.onclose = ({ target, code, reason }) => this.#closed(target, url, code, reason);
    this.#heardAt = performance.now();
  }

  #hear(event) {
    this.#heardAt = performance.now();
    if (event.type === "streamer.resumed") {
      this.#numEvents = event.event;
      this.#tail.acknowledge(event.messages);
      this.#opened();
      return;
    }
    this.#numEvents += 1;
    if (event.type === "session.created") {
      this.#sessionId = event.session.id;
      this.#opened();
    } else if (event.type === "streamer.ack") {
      this.#tail.acknowledge(event.messages);
    } else {
      this.on.event(event);
    }
  }

  #opened() {
    this.#tail.messages.forEach((message) => this.#socket.send(message));
    this.#isOpen = true;
    this.#brokenAt = null;
    this.on.open();
  }

  async #closed(socket, url, code, reason) {
    if (this.#isOver || socket !== this.#socket) return;
    const wasOpen = this.#isOpen;
    this.#isOpen = false;
    if (wasOpen && (code === 1000 || code === 1008 || code >= 4000)) {
      this.#end(new Problem("closed", reason));
      return;
    }
    const isFirst = this.#brokenAt === null;
    this.#brokenAt ??= performance.now();
    if (!wasOpen && !(await this.#mayRetry(url))) return;
    if (isFirst) this.on.broken();
    const brokenMs = performance.now() - this.#brokenAt;
    await sleep(isFirst ? 0 : Math.min(MAX_WAIT_MS, 100 + brokenMs / 2));
    if (!this.#isOver) this.#connect();
  }

  // A refused connection: whether another attempt may help. A session that is gone is replaced.
  async #mayRetry(url) {
    const { status, problem } = await whyRefused(url.href.replace(/^ws/, "http"), this.key);
    const isGone = this.#sessionId !== null && (status === 404 || status === 400);
    if (isGone) {
      this.#sessionId = null;
      this.#numEvents = 0;
      const last = this.hello;
      const sendsAgain = this.on.anew();
      this.#tail.restart(last, this.hello, sendsAgain);
    }
    const canWait = (performance.now() - this.#brokenAt) / 1_000 < PATIENCE_S;
    const isPassing = isGone || status === 426 || (this.#sessionId !== null && (status === 0 || status === 503));
    if (!isPassing || !canWait) this.#end(problem);
    return !this.#isOver;
  }

  #checkPulse() {
    const isSilent = performance.now() - this.#heardAt > 1_000 * SILENT_S;
    if (this.#isOpen && this.#tail.messages.length && isSilent) {
      const dead = this.#socket;
      dead.close();
      this.#closed(dead, new URL(this.url), 1006, "");
    }
  }

  #end(problem) {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#isOpen = false;
    clearInterval(this.watch);
    this.#tail.clear();
    this.#socket?.close(1000);
    this.on.over(problem);
  }
}

function sleep(ms) {
  return new Promise((done) => setTimeout(done, ms));
}
