// What the server's events mean on the screen. In: server events. Out: calls of the view and the chart; `settled` when
// every turn that was committed is answered.

import { parse } from "./attributes.js";

// The client's last commit is the second of two: there is nothing left for it, and the answer says that all is committed.
// The first may be silent, where voice activity has just ended the turn that it means.
const LAST = "last";
export const ENDING = [{ type: "input_audio_buffer.commit" }, { type: "input_audio_buffer.commit", event_id: LAST }];

const HEARING = "Hearing you …";
const TOLERANCE_S = 0.002; // audio_s is rounded to milliseconds

export class Turns {
  #item = null; // whose sentence is being written
  #text = "";
  #numOpen = 0; // turns committed and not yet described
  #numDescribed = 0;
  #describedS = 0;
  #isHearing = false; // another turn has begun
  #isLastKnown = false; // every turn has been committed
  #hasText = false; // some turn brought a sentence
  #isOver = false;

  // sound: origin, "microphone" or a file's name; idle, the status between turns; seconds of a recording, else null.
  // on: {settled(), failed(message)}.
  constructor({ view, chart, attributes }, sound, on) {
    Object.assign(this, { view, chart, attributes, sound, on });
  }

  // Another session, which knows nothing of the last one's turns.
  anew() {
    this.leave();
    this.#numOpen = this.#describedS = 0;
    this.#isLastKnown &&= this.sound.seconds === null;
  }

  // Nothing more comes of the turn that is being heard.
  leave() {
    this.view.settled();
    this.chart.back();
  }

  hear(event) {
    switch (event.type) {
      case "input_audio_buffer.speech_started":
        this.#isHearing = true;
        return this.view.status(HEARING);
      case "input_audio_buffer.speech_stopped":
        this.#isHearing = false;
        return this.view.status("Describing …");
      case "input_audio_buffer.committed":
        this.#numOpen += 1;
        this.#isHearing = false;
        return this.view.status("Describing …");
      case "streamer.live_update":
        this.view.soFar(event.text, event.heard_s);
        return this.chart.showSoFar(parse(event.text, this.attributes));
      case "streamer.delta":
        return this.#delta(event);
      case "streamer.description":
        return this.#described(event.description);
      case "error":
        return this.#error(event.error);
    }
  }

  #delta(event) {
    if (this.#item !== event.item_id) {
      this.view.begin();
      this.#text = "";
    }
    this.#item = event.item_id;
    this.#text += event.text;
    this.view.append(event.text, event.verified);
    this.chart.show(parse(this.#text, this.attributes));
  }

  #described(found) {
    if (found.text) {
      this.chart.show(found.attributes);
      this.view.end(found.text, factsOf(found, this.sound.origin), found.warning);
      this.#hasText = true;
    } else {
      this.leave();
    }
    const idle = this.#isHearing ? HEARING : this.sound.idle;
    this.view.status(found.text ? idle : `No speech in ${found.audio_s.toFixed(1)} s of sound.`);
    this.#numDescribed += 1;
    this.#describedS += found.audio_s;
    this.#close();
  }

  #error({ code, message, event_id: cause }) {
    if (code === "turn_failed") {
      if (this.#item !== null) this.view.end(this.#text, [`${this.sound.origin}: failed`]);
      this.leave();
      if (this.sound.seconds !== null) return this.on.failed(message);
      this.view.problem(message);
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
    const isHeard = seconds === null || this.#describedS >= seconds - TOLERANCE_S * (1 + this.#numDescribed);
    if (!this.#isLastKnown || this.#numOpen > 0 || !isHeard || this.#isOver) return;
    this.#isOver = true;
    if (seconds !== null && !this.#hasText) this.view.note(`${this.sound.origin}: no speech`);
    this.on.settled();
  }
}

function factsOf(found, origin) {
  const first = found.ttft_ms === null ? [] : [`TTFT ${found.ttft_ms.toFixed(0)} ms`];
  const whole = `whole after ${found.total_ms.toFixed(0)} ms`;
  const verified = `${Math.round(100 * found.verified_share)} % verified`;
  const time = new Date().toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  return [...first, whole, verified, `${found.audio_s.toFixed(1)} s of ${origin}`, time];
}
