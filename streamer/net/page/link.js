// A session with the server that survives broken connections. Server events come in order, none is lost or repeated.
//
// The server acknowledges messages; after a break `?resume=ID&event=M` goes on where both sides stopped. If the session is
// gone (a restart), another one begins and gets the messages that the last one had not taken, after the audio that it took
// and has not described.

// A message for the user: a word of words.json. wantsKey: another API key would help.
export class Problem extends Error {
  constructor(...word) {
    super(word[0]);
    this.word = word;
    this.wantsKey = word[0] === "no-key" || word[0] === "wrong-key";
  }
}

const REFUSED = {
  401: (_, key) => [key ? "wrong-key" : "no-key"],
  403: () => ["origin"],
  503: (response) => (response.headers.has("Retry-After") ? ["full-for", response.headers.get("Retry-After")] : ["full"]),
};

// A browser hides why a websocket was refused. The same request without the upgrade tells: {status, problem}.
async function whyRefused(url, key) {
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  let response;
  try {
    response = await fetch(url, { headers, cache: "no-store" });
  } catch {
    return { status: 0, problem: new Problem("unreachable") };
  }
  const word = REFUSED[response.status]?.(response, key) ?? ["refused", response.status];
  return { status: response.status, problem: new Problem(...word) };
}

const MAX_BYTES = 4 << 20; // of audio that waits, and of audio that is taken and not described: 43 s at 48 kHz

// Messages until the server has taken them and described their audio, numbered from 0 as the server counts them.
class Tail {
  #kept = []; // {data: text or ArrayBuffer, number, begin and end: bytes of the session's audio}
  #num = 0;
  #byte = 0;
  #taken = { messages: 0, bytes: 0 };
  #describedByte = 0;

  push(data) {
    const begin = this.#byte;
    this.#byte += data.byteLength ?? 0;
    this.#kept.push({ data, number: this.#num++, begin, end: this.#byte });
  }

  // taken: messages and bytes, as the server tells. All audio before describedByte is described.
  forget(taken = this.#taken, describedByte = this.#describedByte) {
    this.#taken = taken;
    this.#describedByte = describedByte;
    const from = Math.max(describedByte, taken.bytes - MAX_BYTES);
    this.#kept = this.#kept.filter(({ number, end }) => number >= taken.messages || end >= from);
  }

  // Messages that the server has not taken.
  get waiting() {
    return this.#kept.filter(({ number }) => number >= this.#taken.messages).map(({ data }) => data);
  }

  get numWaitingBytes() {
    return this.#byte - this.#taken.bytes;
  }

  // Messages for another session, after its settings, and the byte of the audio of this one where they begin.
  get rest() {
    const messages = this.#kept.filter(({ number }) => number > 0).map(({ data }) => data);
    return { byte: this.#kept[0]?.begin ?? this.#byte, messages };
  }
}

const PATIENCE_S = 60; // of a broken link
const MAX_WAIT_MS = 3_000; // between two attempts
const SILENT_S = 15; // without an acknowledgement: the link is dead, though not closed
const MAX_AHEAD_BYTES = 512 << 10; // a recording waits while more is unacknowledged

export class Link {
  #tail;
  #socket = null;
  #sessionId = null;
  #numEvents = 0; // of the session, heard
  #isOpen = false; // the session takes messages
  #isOver = false;
  #brokenAt = null;
  #heardAt = 0;

  // session: of session.update. on: {hear(event), opened(), broken(), lost(), over(Problem or null), anew(byte)}.
  // lost: no room for audio, since the link is broken for too long. anew: the session is gone; returns the settings of
  // another one, which gets the audio from this byte on, or null.
  constructor(url, key, session, on) {
    Object.assign(this, { url, key, on });
    this.#begin(session, []);
    this.#connect();
    this.pulse = setInterval(() => this.#checkPulse(), 1_000);
  }

  send(message) {
    if (message instanceof ArrayBuffer && this.#tail.numWaitingBytes >= MAX_BYTES) return this.on.lost();
    const data = message instanceof ArrayBuffer ? message : JSON.stringify(message);
    this.#tail.push(data);
    if (this.#isOpen) this.#socket.send(data);
  }

  // Until more audio may be sent; false if it would be useless.
  async room() {
    while (!this.#isOver && (!this.#isOpen || this.#tail.numWaitingBytes > MAX_AHEAD_BYTES)) await sleep(20);
    return !this.#isOver;
  }

  // The turn that ends at this byte of audio is described.
  described(byte) {
    this.#tail.forget(undefined, byte);
  }

  get isBroken() {
    return this.#brokenAt !== null;
  }

  close(problem = null) {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#isOpen = false;
    clearInterval(this.pulse);
    this.#socket?.close(1000);
    this.on.over(problem);
  }

  // A session, with messages of the one before it.
  #begin(session, messages) {
    this.#sessionId = null;
    this.#numEvents = 0;
    this.#tail = new Tail();
    for (const data of [JSON.stringify({ type: "session.update", session }), ...messages]) this.#tail.push(data);
  }

  #connect() {
    const url = new URL(this.url);
    if (this.#sessionId) {
      url.searchParams.set("resume", this.#sessionId);
      url.searchParams.set("event", this.#numEvents);
    }
    const protocols = ["realtime", ...(this.key ? [`openai-insecure-api-key.${this.key}`] : [])];
    try {
      this.#socket = new WebSocket(url, protocols);
    } catch {
      return this.close(new Problem("odd-key"));
    }
    this.#socket.binaryType = "arraybuffer";
    this.#socket.onmessage = ({ data }) => this.#hear(JSON.parse(data));
    this.#socket.onclose = (event) => this.#closed(event);
    this.#heardAt = performance.now();
  }

  #hear(event) {
    this.#heardAt = performance.now();
    if (event.type === "streamer.resumed") this.#numEvents = event.event;
    else this.#numEvents += 1;
    switch (event.type) {
      case "session.created":
        this.#sessionId = event.session.id;
        return this.#opened();
      case "streamer.resumed":
        this.#tail.forget(event);
        return this.#opened();
      case "streamer.ack":
        return this.#tail.forget(event);
      default:
        this.on.hear(event);
    }
  }

  #opened() {
    this.#tail.waiting.forEach((data) => this.#socket.send(data));
    this.#isOpen = true;
    this.#brokenAt = null;
    this.on.opened();
  }

  async #closed({ target, code, reason }) {
    if (this.#isOver || target !== this.#socket) return;
    const wasOpen = this.#isOpen;
    this.#isOpen = false;
    if (wasOpen && (code === 1000 || code === 1008 || code >= 4000)) {
      return this.close(reason ? new Problem("closed-why", ["told", reason]) : new Problem("closed"));
    }
    const isFirst = this.#brokenAt === null;
    this.#brokenAt ??= performance.now();
    if (!wasOpen && !(await this.#mayRetry(target.url))) return;
    if (isFirst) this.on.broken();
    const brokenMs = performance.now() - this.#brokenAt;
    await sleep(isFirst ? 0 : Math.min(MAX_WAIT_MS, 100 + brokenMs / 2));
    if (!this.#isOver) this.#connect();
  }

  // Whether another attempt may help after a refused connection. A session that is gone is replaced.
  async #mayRetry(url) {
    const { status, problem } = await whyRefused(url.replace(/^ws/, "http"), this.key);
    const hadSession = this.#sessionId !== null;
    const isGone = hadSession && (status === 404 || status === 400);
    if (isGone) this.#beginAnew();
    const canWait = (performance.now() - this.#brokenAt) / 1_000 < PATIENCE_S;
    const isPassing = isGone || status === 426 || (hadSession && (status === 0 || status === 503));
    if (!isPassing || !canWait) this.close(problem);
    return !this.#isOver;
  }

  #beginAnew() {
    const { byte, messages } = this.#tail.rest;
    const session = this.on.anew(byte);
    if (session) this.#begin(session, messages);
    else this.close(new Problem("anew"));
  }

  #checkPulse() {
    const isSilent = performance.now() - this.#heardAt > 1_000 * SILENT_S;
    if (!this.#isOpen || !this.#tail.waiting.length || !isSilent) return;
    this.#socket.close();
    this.#closed({ target: this.#socket, code: 1006 });
  }
}

function sleep(ms) {
  return new Promise((done) => setTimeout(done, ms));
}
