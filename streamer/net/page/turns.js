// What the server's events mean on the screen. In: server events. Out: calls of the view and the chart; `settled` when
// every turn that was committed is answered.

import { parse } from "./attributes.js";

export class Turns {
  #item = null; // whose sentence is being written
  #text = "";
  #numOpen = 0; // turns committed and not yet described
  #isEnding = false;
  #endsAnswered = false;

  // origin: "microphone" or a file's name. idle: the status between turns. on: {committed(), settled(), failed(message)}.
  constructor({ view, chart, attributes }, origin, idle, on) {
    Object.assign(this, { view, chart, attributes, origin, idle, on });
  }

  // The client has committed for the last time.
  ending() {
    this.#isEnding = true;
  }

  hear(event) {
    switch (event.type) {
      case "input_audio_buffer.speech_started":
        return this.view.status("Hearing you …");
      case "input_audio_buffer.committed":
        return this.#committed();
      case "streamer.live_update":
        this.view.soFar(event.text, event.heard_s);
        return this.chart.show(parse(event.text, this.attributes));
      case "streamer.delta":
        return this.#delta(event);
      case "streamer.description":
        return this.#described(event.description);
      case "response.done":
        return event.response.status === "failed" ? this.#failed() : undefined;
      case "error":
        return this.#error(event.error);
    }
  }

  #committed() {
    this.#numOpen += 1;
    this.#endsAnswered = this.#isEnding;
    this.view.status("Describing …");
    this.on.committed();
  }

  #delta(event) {
    if (this.#item !== event.item_id) this.view.begin();
    if (this.#item !== event.item_id) this.#text = "";
    this.#item = event.item_id;
    this.#text += event.text;
    this.view.append(event.text, event.verified);
    this.chart.show(parse(this.#text, this.attributes));
  }

  #described(found) {
    if (found.text) {
      this.chart.show(found.attributes);
      this.view.end(found.text, factsOf(found, this.origin));
    }
    this.view.status(found.text ? this.idle : `No speech in ${found.audio_s.toFixed(1)} s of sound.`);
    this.#close();
  }

  #failed() {
    this.view.end(this.#text, [`${this.origin}: failed`]);
    this.#close();
  }

  #error({ code, message }) {
    if (code !== "input_audio_buffer_commit_empty") return this.on.failed(message);
    this.#endsAnswered = true; // the last turn ended by itself, just before
    this.#settle();
  }

  #close() {
    this.#item = null;
    this.#numOpen -= 1;
    this.#settle();
  }

  #settle() {
    if (this.#isEnding && this.#endsAnswered && this.#numOpen <= 0) this.on.settled();
  }
}

function factsOf(found, origin) {
  const first = found.ttft_ms === null ? [] : [`TTFT ${found.ttft_ms.toFixed(0)} ms`];
  const whole = `whole after ${found.total_ms.toFixed(0)} ms`;
  const verified = `${Math.round(100 * found.verified_share)} % verified`;
  const time = new Date().toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  return [...first, whole, verified, `${found.audio_s.toFixed(1)} s of ${origin}`, time];
}
