// A session with the server that survives broken connections. Server events come in order, none is lost or repeated.
//
// The server acknowledges messages; after a break `?resume=ID&event=M&bytes=N` goes on where both sides stopped. If the
// session is gone (a restart), another one begins and gets the messages that the last one had not taken, after the audio
// that it took and has not described.

// A message for the user: a word of words.json. wantsKey: another API key would help.
export class Problem extends Error {
  constructor(...word) {
    super(word[0]);
    this.word = word;
    this.wantsKey = word[0] === "no-key" || word[0] === "wrong-key";
  }
}

const MICROPHONE = { NotAllowedError: "not-allowed", NotFoundError: "no-microphone", NotReadableError: "taken" };

export function ofMicrophone(error) {
  if (error instanceof Problem) return error;
  const name = MICROPHONE[error.name];
  return name ? new Problem(name) : new Problem("no-opening", error.message || error.name);
}

const REFUSED = {
  401: (_, key) => [key ? "wrong-key" : "no-key"],
  403: () => ["origin"],
  503: (response) => (response.headers.has("Retry-After") ? ["full-for", response.headers.get("Retry-After")] : ["full"]),
};

// A browser hides why a websocket was refused. The same request without the upgrade tells: {status, problem}.
export async function whyRefused(url, key) {
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

const MAX_BYTES = 4 << 20; // of audio that is kept: 43 s at 48 kHz

// Messages that are not acknowledged, numbered from 0 as the server counts them.
class Tail {
  #messages = []; // text or ArrayBuffer
  #first = 0; // number of the oldest that is kept
  #firstByte = 0; // of audio: where the oldest that is kept begins
  #taken = []; // {end: byte, message}: audio that is acknowledged and not described yet, the last MAX_BYTES
  numBytes = 0; // of audio that is kept

  get firstByte() {
    return this.#firstByte;
  }

  get messages() {
    return this.#messages;
  }

  // False if there is no room.
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

  // The byte of the session where another one would begin.
  get beginByte() {
    const [first] = this.#taken;
    return first ? first.end - sizeOf(first.message) : this.#firstByte;
  }

  // All audio before this byte is described.
  described(end) {
    this.#taken = this.#taken.filter((one) => one.end > end);
  }

  // Another session begins with `hello` instead of `last`. keepsRest: it gets the audio that the last one did not describe,
  // and the messages that it did not take.
  restart(last, hello, keepsRest) {
    const all = [...this.#taken.map(({ message }) => message), ...this.#messages];
    const rest = keepsRest ? all.filter((message) => message !== last) : [];
    this.#messages = [hello, ...rest];
    this.#taken = [];
    this.#first = this.#firstByte = 0;
    this.numBytes = rest.reduce((sum, message) => sum + sizeOf(message), 0);
  }

  clear() {
    this.#messages = this.#taken = [];
    this.numBytes = 0;
  }

  #drop() {
    const message = this.#messages.shift();
    const size = sizeOf(message);
    this.numBytes -= size;
    this.#firstByte += size;
    this.#first += 1;
    if (size) this.#taken.push({ end: this.#firstByte, message });
    if (this.#firstByte - this.beginByte > MAX_BYTES) this.#taken.shift();
  }
}

function sizeOf(message) {
  return typeof message === "string" ? 0 : message.byteLength;
}

const PATIENCE_S = 60; // of a broken link
const MAX_WAIT_MS = 3_000; // between two attempts
const SILENT_S = 15; // without an acknowledgement: the link is dead, though not closed
const MAX_AHEAD_BYTES = 512 << 10; // a recording waits while more is unacknowledged

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
  // lost: no room for audio, since the link is broken for too long. anew(byte of the last session where it begins):
  // returns whether a new session gets the audio that the last one had not described.
  constructor(url, key, session, on) {
    Object.assign(this, { url, key, on });
    this.greet(session);
    this.#tail.push(this.hello);
    this.#connect();
    this.watch = setInterval(() => this.#checkPulse(), 1_000);
  }

  // The settings of the next session.
  greet(session) {
    this.hello = JSON.stringify({ type: "session.update", session });
  }

  send(message) {
    const data = message instanceof ArrayBuffer ? message : JSON.stringify(message);
    if (!this.#tail.push(data)) this.on.lost();
    else if (this.#isOpen) this.#socket.send(data);
  }

  // Until more audio may be sent; false if it would be useless.
  async room() {
    while (!this.#isOver && (!this.#isOpen || this.#tail.numBytes > MAX_AHEAD_BYTES)) await sleep(20);
    return !this.#isOver;
  }

  // The turn that ends at this byte of audio is described.
  described(end) {
    this.#tail.described(end);
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
      this.#end(reason ? new Problem("closed-why", ["told", reason]) : new Problem("closed"));
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

  // Whether another attempt may help after a refused connection. A session that is gone is replaced.
  async #mayRetry(url) {
    const { status, problem } = await whyRefused(url.href.replace(/^ws/, "http"), this.key);
    const isGone = this.#sessionId !== null && (status === 404 || status === 400);
    if (isGone) {
      this.#sessionId = null;
      this.#numEvents = 0;
      const last = this.hello;
      const sendsAgain = this.on.anew(this.#tail.beginByte);
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
