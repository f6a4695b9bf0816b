// One conversation with the server: sound goes out, and what comes back is shown.

import * as coach from "./coach.js";
import { Link } from "./link.js";
import * as view from "./view.js";
import { Problem, clock, say, told } from "./words.js";

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
  #isAway = false; // the link is broken, and the user knows
  #endS = 0; // of the last turn that is described
  #numOpen = 0; // turns to be answered
  #isLastKnown = false; // every turn has been committed
  #isHearing = false; // another turn has begun
  #measures = null; // the latest ones of the open turn
  #hasUpdate = false; // a live update of the turn in hand is shown

  // sound: {rateHz, and of a recording file, pcm, seconds, of the microphone close()}. server: {url, key, live, language}.
  constructor(sound, server) {
    const isSpoken = !sound.file;
    Object.assign(this, { sound, isSpoken });
    this.done = new Promise((resolve) => (this.resolve = resolve));
    // A transcription session answers every turn by itself, the parts of a long recording too.
    const input = { format: { type: "audio/pcm", rate: sound.rateHz }, turn_detection: isSpoken ? { type: "server_vad" } : null };
    const streamer = { events: true, binary: true, acks: true, measures: true, language: server.language };
    streamer.live_update_s = server.live ? LIVE_UPDATE_S : null;
    if (isSpoken) streamer.coach = coach.wanted();
    this.link = new Link(server, { type: "transcription", audio: { input }, streamer }, this);
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
    if (!this.link.isBroken) this.opened();
    await this.sound.close?.();
    ENDING.forEach((message) => this.link.send(message));
    const timer = setTimeout(() => this.link.close(new Problem("late", ANSWER_S)), 1_000 * ANSWER_S);
    this.done.then(() => clearTimeout(timer));
  }

  // The rest is called by the link.

  // Also between turns.
  opened() {
    if (this.#isAway) view.noProblem();
    this.#isAway = false;
    if (this.isSpoken) return view.status(say(this.isFinished ? "describing" : "listening"));
    view.status(say(this.isFinished ? "describing-file" : "sending", this.sound.file.name));
  }

  broken() {
    view.level(0);
    this.#isAway = true;
    view.status(say("waiting"));
    view.problem(say("broke"));
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
        return view.status(say("hearing"));
      case "input_audio_buffer.committed":
        this.#numOpen += 1;
        // a part of a recording may end while the rest is still being sent
        this.#isHearing = this.#hasUpdate = false;
        this.#measures = null;
        return this.isSpoken && view.status(say("describing"));
      case "streamer.live_update": {
        if (view.shown.isWriting) return;
        this.#hasUpdate = true;
        const { text, attributes: levels, heard_s: seconds } = event;
        return view.showNext({ soFar: say("so-far", seconds.toFixed(0)), text, levels, measures: this.#measures });
      }
      case "streamer.measures":
        this.#measures = event.so_far;
        return;
      case "streamer.coach":
        return this.#isHearing && event.last && !this.#hasUpdate && view.show({ latest: event.last });
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
