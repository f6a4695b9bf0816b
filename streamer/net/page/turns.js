// Shows a session's events. `settled` is called when every committed turn is answered.

// The last commit is the second of two: nothing is left for it, and its answer says that all is committed. The first one
// gets no answer if voice activity has just ended its turn.
const LAST = "last";
export const ENDING = [{ type: "input_audio_buffer.commit" }, { type: "input_audio_buffer.commit", event_id: LAST }];

const MAX_MEASURES = 64; // 13 s of them; a sentence so far comes within that time
const TOLERANCE_S = 0.002; // audio_s is rounded to milliseconds

export class Turns {
  #item = null; // whose sentence is being written
  #text = "";
  #numOpen = 0; // turns committed and not yet described
  #numDescribed = 0;
  #describedS = 0;
  #begins = new Map(); // item -> second of the session where voice activity began it
  #endS = 0; // of the last turn that is described; a part of it goes on there
  #isHearing = false; // another turn has begun
  #measures = []; // {heard_s, so_far} of the turn in hand, the last ones
  #soFar = null; // the live update of the turn in hand that is shown
  #isLastKnown = false; // every turn has been committed
  #hasText = false; // some turn gave a sentence
  #hasFailed = false; // the last turn, and its message is shown
  #isOver = false;

  // sound: {name and file of a recording or null, idle: the status between turns, seconds of a recording or null}.
  // on: {settled(), failed(message), described(second up to which all turns are)}.
  constructor({ view, list, coach }, sound, on) {
    Object.assign(this, { view, list, coach, sound, on });
  }

  // Another session, without the turns of the last one.
  anew() {
    this.leave();
    this.#numOpen = this.#describedS = this.#endS = 0;
    this.#begins.clear();
    this.#isLastKnown &&= this.sound.seconds === null;
  }

  // Nothing more comes of the turn that is open, or of the sentence that is being written.
  leave() {
    if (this.#item !== null) this.view.end(this.#text, [this.#isSpoken ? ["spoken-failed"] : ["failed", this.sound.name]]);
    this.#item = null;
    this.view.settled();
    this.list.back();
  }

  hear(event) {
    if (this.#isSpoken) this.coach.hear(event); // a recording is not in the coach's report
    switch (event.type) {
      case "input_audio_buffer.speech_started":
        this.#isHearing = true;
        this.#begins.set(event.item_id, event.audio_start_ms / 1_000);
        this.#begun();
        if (this.#hasFailed) this.view.noProblem(); // of the last turn
        this.#hasFailed = false;
        return this.view.status("hearing");
      case "input_audio_buffer.speech_stopped":
        return this.#closed();
      case "input_audio_buffer.committed":
        this.#numOpen += 1;
        return this.#closed();
      case "streamer.live_update":
        this.#soFar = event;
        this.view.soFar(event.text, event.heard_s);
        return this.#showSoFar();
      case "streamer.measures":
        return this.#measured(event);
      case "streamer.coach":
        return this.#isHearing && event.last && !this.#soFar ? this.#lastSeconds(event.last) : undefined;
      case "streamer.delta":
        return this.#delta(event);
      case "streamer.description":
        this.#heard(event.item_id, event.description.audio_s);
        return this.#described(event.description);
      case "error":
        return this.#error(event.error);
    }
  }

  #heard(item, seconds) {
    this.#endS = (this.#begins.get(item) ?? this.#endS) + seconds;
    this.#begins.delete(item);
    this.on.described(this.#endS);
  }

  #begun() {
    this.#measures = [];
    this.#soFar = null;
  }

  #measured(event) {
    if (this.#measures.push(event) > MAX_MEASURES) this.#measures.shift();
    if (this.#soFar && event.heard_s <= this.#soFar.heard_s + TOLERANCE_S) this.#showSoFar(); // they came after the sentence
  }

  // Numbers of now stand beside the sentence of the turn before, which says so.
  #lastSeconds(measures) {
    this.view.before();
    this.list.showNow(measures);
  }

  // Sentence and numbers of one time: the last ones within it.
  #showSoFar() {
    const { attributes, heard_s: seconds } = this.#soFar;
    const known = this.#measures.filter((measures) => measures.heard_s <= seconds + TOLERANCE_S).at(-1);
    this.list.showSoFar(attributes, known?.so_far ?? null, seconds.toFixed(0));
  }

  // A part of a recording may end while the rest is still being sent.
  #closed() {
    this.#isHearing = false;
    this.#begun();
    if (this.#isSpoken) this.view.status("describing");
  }

  // Whether any turn gave a sentence.
  get hasText() {
    return this.#hasText;
  }

  get #isSpoken() {
    return this.sound.seconds === null;
  }

  #delta(event) {
    if (this.#item !== event.item_id) {
      this.view.begin();
      this.view.playback(this.sound.file);
      this.list.show({}, null); // until the sentence is whole
      this.#text = "";
    }
    this.#item = event.item_id;
    this.#text += event.text;
    this.view.append(event.text);
  }

  #described(found) {
    if (found.text) {
      this.list.show(found.attributes, found.measures ?? null);
      const warnings = [found.warning, ...(found.measures?.warnings ?? [])].filter(Boolean);
      this.view.end(found.text, this.#factsOf(found), warnings.join("; "));
      this.#hasText = true;
      if (this.#isSpoken) this.view.noProblem(); // it works again
    } else {
      this.leave();
    }
    const idle = this.#isHearing ? ["hearing"] : this.sound.idle;
    this.view.status(...(found.text || !this.#isSpoken ? idle : ["no-speech", found.audio_s.toFixed(1)]));
    this.#numDescribed += 1;
    this.#describedS += found.audio_s;
    this.#close();
  }

  #factsOf(found) {
    const { name, seconds } = this.sound;
    const heard = found.audio_s.toFixed(1);
    const percent = Math.round(100 * found.verified_share);
    const facts = percent ? [["checked", percent]] : [];
    const firstMs = this.#isSpoken ? found.ttft_from_speech_ms : found.ttft_ms;
    if (firstMs !== null) facts.unshift([this.#isSpoken ? "first-spoken" : "first", (firstMs / 1_000).toFixed(2)]);
    facts.push(this.#isSpoken ? ["spoken", heard] : ["heard", heard, name]);
    if (!this.#isSpoken && found.audio_s < seconds - TOLERANCE_S) {
      facts.push(["part", clock(this.#describedS), clock(this.#describedS + found.audio_s)]);
    }
    const language = document.documentElement.lang;
    facts.push(["told", new Date().toLocaleTimeString(language, { hour: "2-digit", minute: "2-digit" })]);
    return facts;
  }

  #error({ code, message, event_id: cause }) {
    if (code === "turn_failed") {
      this.leave();
      if (!this.#isSpoken) return this.on.failed(message);
      this.view.problem("told", message);
      this.#hasFailed = true;
      this.#close();
    } else if (code !== "input_audio_buffer_commit_empty") {
      this.on.failed(message);
    } else if (cause === LAST) {
      this.#isLastKnown = true;
      this.#settle();
    }
  }

  #close() {
    this.#item = null;
    this.#numOpen -= 1;
    this.#settle();
  }

  // Long recordings are described in parts, so a recording ends where its last part does.
  #settle() {
    const { seconds } = this.sound;
    const isHeard = this.#isSpoken || this.#describedS >= seconds - TOLERANCE_S * (1 + this.#numDescribed);
    if (!this.#isLastKnown || this.#numOpen > 0 || !isHeard || this.#isOver) return;
    this.#isOver = true;
    this.on.settled();
  }
}

// 75.2 seconds -> 1:15
function clock(seconds) {
  const whole = Math.floor(seconds + TOLERANCE_S);
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`;
}
