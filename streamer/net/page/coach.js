// The coach on the page: a curve, a short word, the usual values, and a report. All that is kept is bounded.

import { curveOf } from "./curve.js";
import { reportOf } from "./report.js";
import { put, say } from "./words.js";

const SHOWN_S = 30; // of the curve
const POINT_S = 0.05;
const CALM_EVERY_S = 2; // for users who want less motion
const FRESH_S = 8; // a word is shown
const MOST = { rows: 18_000, windows: 3_600, nudges: 500, sentences: 500 }; // of a report: the last hour

const at = (id) => document.getElementById(id);

export class CoachView {
  #points = []; // {t, hz or null, level}, of SHOWN_S
  #drawnS = -Infinity;
  #nudgedS = -Infinity;
  #learnS = 0; // of speech, as the server tells
  #learntS = -1; // as it is shown
  #report = nothing();

  constructor(list) {
    this.list = list;
    at("save").addEventListener("click", () => this.#save());
  }

  // A session of the microphone begins.
  begin(isCoached) {
    at("coach").hidden = !isCoached;
    if (!isCoached) return;
    this.#points = [];
    this.#drawnS = this.#nudgedS = -Infinity;
    this.#learntS = -1;
    this.#report = { ...nothing(), begun: new Date() };
    this.list.usual(null);
    at("curve").replaceChildren();
    this.end();
    put(at("learning"), null);
    at("save").disabled = true;
  }

  // The word goes; the report's content stays.
  end() {
    put(at("nudge"), null);
  }

  hear(event) {
    switch (event.type) {
      case "session.updated":
        this.#learnS = event.session.streamer.coach.learn_s;
        return;
      case "streamer.coach":
        return this.#news(event);
      case "streamer.baseline":
        return this.#usual(event.baseline);
      case "streamer.nudge":
        return this.#nudge(event);
      case "streamer.description":
        return this.#sentence(event.description);
    }
  }

  #news(event) {
    at("save").disabled = false;
    const learntS = Math.floor(event.learnt_s);
    if (!this.#report.baseline && learntS !== this.#learntS) put(at("learning"), ["learning", learntS, this.#learnS]);
    this.#learntS = learntS;
    if (event.t_s - this.#nudgedS > FRESH_S) this.end();
    this.#draw(event);
    this.#remember(event);
  }

  #usual(baseline) {
    this.#report.baseline = baseline;
    this.list.usual(baseline);
    put(at("learning"), ["learnt", Math.round(baseline.speech_s)]);
  }

  #nudge(event) {
    this.#nudgedS = event.t_s;
    put(at("nudge"), [`nudge-${event.kind}`]);
    this.#add("nudges", event);
  }

  #sentence({ text, measures = null }) {
    if (text && this.#report.begun) this.#add("sentences", { text, measures, atS: this.#report.seconds });
  }

  // The last half minute.
  #draw({ t_s: t, curve_s: from, pitch_hz: pitches, level_dbfs: levels }) {
    pitches.forEach((hz, i) => this.#points.push({ t: from + i * POINT_S, hz, level: levels[i] }));
    this.#points = this.#points.slice(-SHOWN_S / POINT_S);
    const every = matchMedia("(prefers-reduced-motion: reduce)").matches ? CALM_EVERY_S : 0;
    if (t - this.#drawnS < every || !this.#points.length) return;
    this.#drawnS = t;
    const { nudges, baseline } = this.#report;
    const end = Math.max(SHOWN_S, this.#points.at(-1).t);
    const shown = { points: this.#points, nudges: nudges.map(({ t_s }) => t_s), baseline };
    at("curve").innerHTML = curveOf(shown, end - SHOWN_S, end, 1.5 * POINT_S);
  }

  #remember({ t_s: t, curve_s: from, pitch_hz: pitches, level_dbfs: levels, last }) {
    this.#report.seconds = t;
    const voiced = pitches.filter((hz) => hz !== null).sort((a, b) => a - b);
    const hz = voiced[voiced.length >> 1] ?? null;
    if (levels.length) this.#add("rows", { t: from, hz, level: Math.max(...levels) });
    if (Math.round(t * 5) % 5 === 0 && last.speech_s >= 1.5) this.#add("windows", { t, ...last });
  }

  #add(name, one) {
    const kept = this.#report[name];
    if (kept.push(one) > MOST[name]) kept.shift();
  }

  #save() {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([reportOf(this.#report)], { type: "text/html" }));
    link.download = `${say("report-file")}-${this.#report.begun.toISOString().slice(0, 16).replace(/[T:]/g, "-")}.html`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  }
}

// The content of a report.
function nothing() {
  return { begun: null, seconds: 0, rows: [], windows: [], nudges: [], sentences: [], baseline: null };
}
