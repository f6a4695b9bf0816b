// A session with the server: sound goes out, and what comes back is shown.

import { coach } from "./coach.js";
import { Link, Problem } from "./link.js";
import * as view from "./view.js";
import { clock } from "./words.js";

// The last commit is the second of two: nothing is left for it, and its answer says that all is committed. The first one
// gets no answer if voice activity has just ended its turn.
const LAST = "last";
const ENDING = [{ type: "input_audio_buffer.commit" }, { type: "input_audio_buffer.commit", event_id: LAST }];

const LIVE_UPDATE_S = 3;
const FRAME_S = 0.04; // of a recording
const ANSWER_S = 30; // for the last sentence
const MAX_MEASURES = 64; // 13 s of them; a sentence so far comes within that time
const TOLERANCE_S = 0.002; // audio_s is rounded to milliseconds

// `done` resolves with null or a Problem.
export class Job {
  isFinished = false; // all sound is sent
  hasText = false; // some turn gave a sentence
  #isAway = false; // the link is broken, and the user knows
  #begins = new Map(); // item -> second of the session where voice activity began it
  #endS = 0; // of the last turn that is described; a part of it goes on there
  #numCommitted = 0; // turns
  #numAnswered = 0;
  #isLastKnown = false; // every turn has been committed
  #isHearing = false; // another turn has begun
  #measures = []; // {heard_s, so_far} of the turn in hand, the last ones
  #soFar = null; // the live update of the turn in hand that is shown

  // sound: {rateHz, and of a recording file, pcm, seconds, of the microphone close()}. server: {url, key, live, language}.
  constructor(sound, server) {
    Object.assign(this, { sound, server, isSpoken: !sound.file });
    this.done = new Promise((resolve) => (this.resolve = resolve));
    this.link = new Link(server.url, server.key, this.#session(), this);
  }

  // A transcription session answers every turn by itself, the parts of a long recording too.
  #session() {
    const detection = this.isSpoken ? { type: "server_vad" } : null;
    const input = { format: { type: "audio/pcm", rate: this.sound.rateHz }, turn_detection: detection };
    const { live, language } = this.server;
    const streamer = { events: true, binary: true, acks: true, measures: true, live_update_s: live ? LIVE_UPDATE_S : null };
    const wanted = { language, coach: this.isSpoken ? coach.wanted : undefined };
    return { type: "transcription", audio: { input }, streamer: { ...streamer, ...wanted } };
  }

  // Between turns.
  get #idle() {
    if (this.isSpoken) return [this.isFinished ? "describing" : "listening"];
    return [this.isFinished ? "describing-file" : "sending", this.sound.file.name];
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
    if (!this.link.isBroken) view.status(...this.#idle);
    await this.sound.close?.();
    ENDING.forEach((message) => this.link.send(message));
    const late = () => this.link.close(new Problem(this.isSpoken && this.link.isBroken ? "away" : "late", ANSWER_S));
    const timer = setTimeout(late, 1_000 * ANSWER_S);
    this.done.then(() => clearTimeout(timer));
  }

  // The rest is called by the link.

  opened() {
    if (this.#isAway) view.noProblem();
    this.#isAway = false;
    view.status(...this.#idle);
  }

  broken() {
    this.#isAway = true;
    view.level(0);
    view.status("waiting");
    view.problem("broke");
  }

  lost() {
    view.problem("lost");
  }

  // The session is gone. Another one hears the rest of what is spoken; a recording is sent again from its beginning.
  anew(byte) {
    this.#leave();
    if (!this.isSpoken) return null;
    this.#begins.clear();
    this.#endS = this.#numCommitted = this.#numAnswered = 0;
    this.#isAway = false;
    view.problem("anew");
    coach.anew(byte / 2 / this.sound.rateHz);
    return this.#session();
  }

  over(problem) {
    this.#leave();
    this.resolve(problem);
  }

  hear(event) {
    if (this.isSpoken) coach.hear(event); // a recording is not in the coach's report
    switch (event.type) {
      case "input_audio_buffer.speech_started":
        this.#isHearing = true;
        this.#begins.set(event.item_id, event.audio_start_ms / 1_000);
        this.#begun();
        return view.status("hearing");
      case "input_audio_buffer.speech_stopped":
        return this.#closed();
      case "input_audio_buffer.committed":
        this.#numCommitted += 1;
        return this.#closed();
      case "streamer.live_update":
        this.#soFar = event;
        return this.#showSoFar();
      case "streamer.measures":
        this.#measures = [...this.#measures.slice(1 - MAX_MEASURES), event];
        if (event.heard_s <= this.#soFar?.heard_s + TOLERANCE_S) this.#showSoFar(); // they came after the sentence
        return;
      case "streamer.coach":
        return this.#isHearing && event.last && !this.#soFar && view.show({ latest: event.last });
      case "streamer.delta":
        if (!view.shown.isWriting) view.showNext({ isWriting: true, file: this.sound.file ?? null });
        return view.show({ text: view.shown.text + event.text });
      case "streamer.description":
        return this.#described(event.item_id, event.description);
      case "error":
        return this.#failed(event.error);
    }
  }

  #begun() {
    this.#measures = [];
    this.#soFar = null;
  }

  // A part of a recording may end while the rest is still being sent.
  #closed() {
    this.#isHearing = false;
    this.#begun();
    if (this.isSpoken) view.status("describing");
  }

  // Sentence and numbers of one time: the last ones within it.
  #showSoFar() {
    if (view.shown.isWriting) return;
    const { text, attributes: levels, heard_s: seconds } = this.#soFar;
    const known = this.#measures.filter(({ heard_s }) => heard_s <= seconds + TOLERANCE_S).at(-1);
    view.showNext({ soFar: ["so-far", seconds.toFixed(0)], text, levels, measures: known?.so_far ?? null });
  }

  #described(item, found) {
    const beginS = this.#begins.get(item) ?? this.#endS;
    this.#begins.delete(item);
    this.#endS = beginS + found.audio_s;
    this.link.described(2 * Math.floor(this.#endS * this.sound.rateHz));
    if (found.text) {
      this.hasText = true;
      const warning = [found.warning, ...(found.measures?.warnings ?? [])].filter(Boolean).join("; ");
      const { text, attributes: levels, measures = null } = found;
      const facts = this.#factsOf(found, beginS);
      view.show({ text, facts, warning, levels, measures, latest: null, isWriting: false, isWhole: true });
      if (this.isSpoken) view.noProblem(); // it works again
    } else {
      this.#leave();
    }
    const idle = this.#isHearing ? ["hearing"] : this.#idle;
    view.status(...(found.text || !this.isSpoken ? idle : ["no-speech", found.audio_s.toFixed(1)]));
    this.#answered();
  }

  #factsOf(found, beginS) {
    const { file, seconds } = this.sound;
    const heard = found.audio_s.toFixed(1);
    const firstMs = this.isSpoken ? found.ttft_from_speech_ms : found.ttft_ms;
    const percent = Math.round(100 * found.verified_share);
    const now = new Date().toLocaleTimeString(document.documentElement.lang, { hour: "2-digit", minute: "2-digit" });
    const isPart = !this.isSpoken && found.audio_s < seconds - TOLERANCE_S;
    return [
      firstMs !== null && [this.isSpoken ? "first-spoken" : "first", (firstMs / 1_000).toFixed(2)],
      percent > 0 && ["checked", percent],
      this.isSpoken ? ["spoken", heard] : ["heard", heard, file.name],
      isPart && ["part", clock(beginS), clock(this.#endS)],
      ["told", now],
    ].filter(Boolean);
  }

  #failed({ code, message, event_id: cause }) {
    if (code === "turn_failed" && this.isSpoken) {
      this.#leave();
      view.problem("told", message);
      this.#answered();
    } else if (code !== "input_audio_buffer_commit_empty") {
      this.link.close(new Problem("told", message));
    } else if (cause === LAST) {
      this.#isLastKnown = true;
      this.#settle();
    }
  }

  // Nothing more comes of the sentence that is being written, or of the turn that is heard.
  #leave() {
    view.leave(this.isSpoken ? ["spoken-failed"] : ["failed", this.sound.file.name]);
  }

  #answered() {
    this.#numAnswered += 1;
    this.#settle();
  }

  // Long recordings are described in parts, so a recording ends where its last part does.
  #settle() {
    const isHeard = this.isSpoken || this.#endS >= this.sound.seconds - TOLERANCE_S * (1 + this.#numAnswered);
    if (this.#isLastKnown && this.#numAnswered >= this.#numCommitted && isHeard) this.link.close();
  }
}

// Describes {file, rateHz, pcm, seconds}; whether there was speech in it. Rejects with a Problem. An abort of `signal` ends it.
export async function describe(sound, server, signal) {
  while (!signal.aborted) {
    const job = new Job(sound, server);
    signal.onabort = () => job.link.close();
    await job.send();
    const problem = await job.done;
    if (problem?.word[0] === "anew") continue;
    if (problem) throw problem;
    return job.hasText;
  }
}
