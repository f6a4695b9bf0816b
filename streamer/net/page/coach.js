// The coach on the page: a curve, a short word, the usual values, and a report. All that is kept is bounded.

import { MEASURES, compareWith, read } from "./list.js";
import { curveOf, reportOf } from "./report.js";
import { page } from "./view.js";
import { put, say, storage, told } from "./words.js";

const SHOWN_S = 30; // of the curve
const POINT_S = 0.05;
const USUAL = "streamer.usual"; // in the browser's storage: a baseline that its speaker keeps
const FRESH_S = 8; // a word is shown
const MAX_POINTS = 72_000; // an hour, the last one
const MAX_LINES = 500; // nudges, and sentences

class Coach {
  #kept; // the content of a report: a conversation with the microphone
  #nudge = null; // the one that the page shows
  #learnS = 0; // of speech, as the server tells
  #learntS = 0;

  constructor() {
    page.save.addEventListener("click", () => this.#save());
    page.keep.addEventListener("click", () => this.#keep());
    this.#clear();
  }

  // The setting of a session; undefined without a coach.
  get wanted() {
    if (page.coach.hidden) return undefined;
    const baseline = keptBaseline();
    return baseline ? { baseline } : true;
  }

  // A conversation begins, with a coach if the settings say so.
  begin() {
    page.coach.hidden = !page.coaching.checked;
    if (!page.coach.hidden) this.#clear();
  }

  // The word goes; the report's content stays.
  end() {
    this.#nudge = null;
    this.#draw();
  }

  hear(event) {
    if (page.coach.hidden) return;
    const kept = this.#kept;
    switch (event.type) {
      case "session.updated":
        this.#learnS = event.session.streamer.coach.learn_s;
        return;
      case "streamer.coach":
        return this.#remember(event);
      case "streamer.baseline":
        kept.baseline = event.baseline;
        return this.#draw();
      case "streamer.nudge":
        this.#nudge = { ...event, word: say(`nudge-${event.kind}`), why: whyOf(event) };
        add(kept.nudges, this.#nudge, MAX_LINES);
        return this.#draw();
      case "streamer.description": {
        const { text, measures } = event.description;
        if (text) add(kept.sentences, { text, measures, t_s: kept.seconds }, MAX_LINES);
      }
    }
  }

  #clear() {
    this.#kept = { begun: new Date(), seconds: 0, points: [], nudges: [], sentences: [], baseline: null };
    this.#learntS = 0;
    page.curve.replaceChildren();
    this.end();
  }

  #remember({ t_s, learnt_s, curve_s, pitch_hz, level_dbfs }) {
    const { points } = this.#kept;
    this.#kept.seconds = t_s;
    this.#learntS = learnt_s;
    pitch_hz.forEach((hz, i) => add(points, { t_s: curve_s + i * POINT_S, hz, level: level_dbfs[i] }, MAX_POINTS));
    if (t_s - this.#nudge?.t_s > FRESH_S) this.#nudge = null;
    const end = Math.max(SHOWN_S, t_s);
    page.curve.innerHTML = curveOf(this.#kept, end - SHOWN_S, end);
    this.#draw();
  }

  #draw() {
    const { seconds, baseline } = this.#kept;
    const isKept = keptBaseline() !== null;
    put(page.keep, say(isKept ? "forget-usual" : "keep-usual"));
    page.keep.disabled = !isKept && !baseline;
    page.save.disabled = !seconds;
    const learning = say("learning", Math.floor(this.#learntS), this.#learnS);
    put(page.learning, baseline ? say("learnt", Math.round(baseline.speech_s)) : seconds ? learning : "");
    put(page.nudge, this.#nudge?.word ?? "");
    put(page["nudge-why"], this.#nudge?.why ?? "");
    compareWith(baseline);
  }

  #save() {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([reportOf(this.#kept)], { type: "text/html" }));
    link.download = `${say("report-file")}-${this.#kept.begun.toISOString().slice(0, 16).replace(/[T:]/g, "-")}.html`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  }

  #keep() {
    if (keptBaseline()) storage("localStorage").removeItem(USUAL);
    else storage("localStorage").setItem(USUAL, JSON.stringify(this.#kept.baseline));
    this.#draw();
  }
}

// Why: the value, its unit, and what is usual.
function whyOf({ measure, value, usual }) {
  if (!(measure in MEASURES)) return say(`nudge-${measure}`, value.toFixed(0));
  return say("nudge-measure", read(measure, value), told(MEASURES[measure].unit), read(measure, usual));
}

// The baseline that the speaker keeps, or null.
function keptBaseline() {
  return JSON.parse(storage("localStorage").getItem(USUAL));
}

// Adds one to a list, which keeps the last ones.
function add(list, one, most) {
  list.push(one);
  if (list.length > most) list.shift();
}

export const coach = new Coach();
