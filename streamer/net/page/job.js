// One conversation with the server: sound goes out, and what comes back is shown.
//
// Its link survives broken connections: each message is taken once, each event heard once. The server acknowledges messages.
// After a break `?resume=ID&event=M` goes on where both sides stopped.

import * as view from "./view.js";
import { Problem, clock, say, told } from "./view.js";

const REFUSED = { 0: "unreachable", 400: "anew", 401: "wrong-key", 403: "origin", 404: "anew", 503: "full" };

const PATIENCE_MS = 60_000; // of a broken link
const MAX_WAIT_MS = 3_000; // between two attempts
const SILENT_MS = 15_000; // without an acknowledgement: the link is dead, though not closed
const MAX_BYTES = 4 << 20; // of audio that waits: 43 s at 48 kHz
const MAX_AHEAD_BYTES = 512 << 10; // a recording waits while more is not taken

class Link {
  brokenAt = null; // null: it is not broken
  #waiting; // messages that the server has not taken
  #taken = { messages: 0, bytes: 0 }; // those before them
  #waitingBytes = 0; // of audio
  #socket = null;
  #sessionId = null;
  #numEvents = 0; // of the session, heard
  #isOpen = false; // the session takes messages
  #isOver = false;
  #heardAt = 0;
  #resolve;

  // server: {url, key}. session: of session.update. on: {hear(event), opened(isBack), broken()}. `done` resolves with null or a
  // Problem.
  constructor(server, session, on) {
    Object.assign(this, { server, on });
    this.done = new Promise((resolve) => (this.#resolve = resolve));
    this.#waiting = [JSON.stringify({ type: "session.update", session })];
    this.pulse = setInterval(() => this.#checkPulse(), 1_000);
    this.#connect();
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
    this.#resolve(problem);
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
    this.on.opened(this.brokenAt !== null);
    this.brokenAt = null;
  }

  async #closed({ code, reason }) {
    if (this.#isOver) return;
    const wasOpen = this.#isOpen;
    this.#isOpen = false;
    if (wasOpen && (code === 1000 || code === 1008 || code >= 4000)) {
      return this.close(new Problem("closed", told(reason)));
    }
    const isFirst = this.brokenAt === null;
    this.brokenAt ??= performance.now();
    const brokenMs = performance.now() - this.brokenAt;
    if (!wasOpen) {
      // A browser hides the status by which a websocket was refused; the same request without the upgrade shows it.
      const { key } = this.server;
      const headers = key ? { Authorization: `Bearer ${key}` } : {};
      const url = this.#socket.url.replace(/^ws/, "http");
      const status = (await fetch(url, { headers, cache: "no-store" }).catch(() => null))?.status ?? 0; // 0: none came
      const isPassing = status === 426 || (this.#sessionId && (status === 0 || status === 503));
      const word = status === 401 && !key ? "no-key" : (REFUSED[status] ?? "refused");
      if (!isPassing || brokenMs > PATIENCE_MS) return this.close(new Problem(word, status));
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

// The last commit is the second of two: nothing is left for it, and its answer says that all is committed. The first one
// gets no answer if voice activity has just ended its turn.
const LAST = "last";
const ENDING = [{ type: "input_audio_buffer.commit" }, { type: "input_audio_buffer.commit", event_id: LAST }];

const LIVE_UPDATE_S = 3;
const FRAME_S = 0.04; // of a recording
const ANSWER_S = 30; // for the last sentence

// `done` resolves with null or a Problem.
export class Job {
  isFinished = false; // all sound is sent
  hasText = false; // some turn gave a sentence
  #endS = 0; // of the last turn that is described
  #numOpen = 0; // turns to be answered
  #isLastKnown = false; // every turn has been committed
  #isHearing = false; // another turn has begun
  #measures = null; // the latest ones of the open turn

  // sound: {rateHz, and of a recording file, pcm, seconds, of the microphone close()}. server: {url, key, live, language}.
  // coach: of the microphone, {wanted(), hear(event)}.
  constructor(sound, server, coach = null) {
    const isSpoken = !sound.file;
    Object.assign(this, { sound, isSpoken, coach });
    // A transcription session answers every turn by itself, the parts of a long recording too.
    const input = { format: { type: "audio/pcm", rate: sound.rateHz }, turn_detection: isSpoken ? { type: "server_vad" } : null };
    const streamer = { events: true, binary: true, acks: true, measures: true, language: server.language };
    streamer.live_update_s = server.live ? LIVE_UPDATE_S : null;
    streamer.coach = coach?.wanted();
    this.link = new Link(server, { type: "transcription", audio: { input }, streamer }, this);
    this.done = this.link.done.then((problem) => {
      this.#leave();
      return problem;
    });
  }

  // A recording, as fast as the server takes it.
  async send() {
    const { pcm, rateHz } = this.sound;
    const size = Math.round(rateHz * FRAME_S);
    for (let at = 0; at < pcm.length; at += size) {
      if (!(await this.link.room())) return;
      this.link.send(pcm.slice(at, at + size).buffer);
      view.progress((at + size) / pcm.length);
    }
    await this.finish();
  }

  // No more sound; the job is done when all speech is answered.
  async finish() {
    if (this.isFinished) return;
    this.isFinished = true;
    if (this.link.brokenAt === null) this.opened();
    await this.sound.close?.();
    ENDING.forEach((message) => this.link.send(message));
    const timer = setTimeout(() => this.link.close(new Problem("late", ANSWER_S)), 1_000 * ANSWER_S);
    this.done.then(() => clearTimeout(timer));
  }

  // The rest is called by the link.

  // Also between turns. isBack: after a break.
  opened(isBack = false) {
    if (isBack) view.noProblem();
    if (this.isSpoken) return view.status(say(this.isFinished ? "describing" : "listening"));
    view.status(say(this.isFinished ? "describing-file" : "sending", this.sound.file.name));
  }

  broken() {
    view.level(0);
    view.status(say("waiting"));
    view.problem(say("broke"));
  }

  hear(event) {
    this.coach?.hear(event);
    switch (event.type) {
      case "input_audio_buffer.speech_started":
        this.#isHearing = true;
        return view.status(say("hearing"));
      case "input_audio_buffer.committed":
        this.#numOpen += 1;
        // a part of a recording may end while the rest is still being sent
        this.#isHearing = false;
        this.#measures = null;
        return this.isSpoken && view.status(say("describing"));
      case "streamer.live_update": {
        if (view.shown.isWriting) return;
        const { text, attributes: levels, heard_s: seconds } = event;
        return view.showNext({ soFar: say("so-far", seconds.toFixed(0)), text, levels, measures: this.#measures });
      }
      case "streamer.measures":
        this.#measures = event.so_far;
        return;
      case "streamer.coach":
        return this.#isHearing && !view.shown.soFar && view.show({ latest: event.last });
      case "streamer.delta":
        if (!view.shown.isWriting) view.showNext({ isWriting: true, file: this.sound.file ?? null });
        return view.show({ text: view.shown.text + event.text });
      case "streamer.description":
        return this.#described(event.description);
      case "error":
        return this.#failed(event.error);
    }
  }

  #described(found) {
    if (found.text) {
      this.hasText = true;
      const warning = told([found.warning, ...(found.measures?.warnings ?? [])].filter(Boolean).join("; "));
      const { text, attributes: levels, measures = null } = found;
      const facts = this.#factsOf(found);
      view.show({ text, facts, warning, levels, measures, latest: null, isWriting: false, isWhole: true });
      if (this.isSpoken) view.noProblem(); // it works again
    } else {
      this.#leave();
    }
    this.#endS += found.audio_s;
    if (this.#isHearing) view.status(say("hearing"));
    else if (this.isSpoken && !found.text) view.status(say("no-speech", found.audio_s.toFixed(1)));
    else this.opened();
    this.#settle(1);
  }

  #factsOf({ audio_s, ttft_ms, ttft_from_speech_ms, verified_share }) {
    const { file, seconds } = this.sound;
    const firstMs = this.isSpoken ? ttft_from_speech_ms : ttft_ms;
    const percent = Math.round(100 * verified_share);
    const isPart = !this.isSpoken && audio_s < seconds - 0.01; // both are rounded
    return [
      firstMs !== null && say(this.isSpoken ? "first-spoken" : "first", (firstMs / 1_000).toFixed(2)),
      percent > 0 && say("checked", percent),
      this.isSpoken ? say("spoken", audio_s.toFixed(1)) : say("heard", audio_s.toFixed(1), file.name),
      isPart && say("part", clock(this.#endS), clock(this.#endS + audio_s)),
      new Date().toLocaleTimeString(document.documentElement.lang, { hour: "2-digit", minute: "2-digit" }),
    ].filter(Boolean);
  }

  #failed({ code, message, event_id: cause }) {
    if (code === "turn_failed" && this.isSpoken) {
      this.#leave();
      view.problem(told(message));
      this.#settle(1);
    } else if (code !== "input_audio_buffer_commit_empty") {
      this.link.close(new Problem("of-server", told(message)));
    } else if (cause === LAST) {
      this.#isLastKnown = true;
      this.#settle(0);
    }
  }

  #leave() {
    view.leave(this.isSpoken ? say("spoken-failed") : say("failed", this.sound.file.name));
  }

  #settle(numAnswered) {
    this.#numOpen -= numAnswered;
    if (this.#isLastKnown && this.#numOpen <= 0) this.link.close();
  }
}
