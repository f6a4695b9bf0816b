// The coach on the page: a curve, a short word, the usual values, and a report. All that is kept is bounded.

import { curveOf } from "./curve.js";
import { reportOf } from "./report.js";
import { browser, put, say } from "./words.js";

const SHOWN_S = 30; // of the curve
const POINT_S = 0.05;
const CALM_EVERY_S = 2; // for users who want less motion
const USUAL = "streamer.usual"; // in the browser's storage: a baseline that its speaker keeps
const FORM = 5; // of what is kept, as extras/coach/network.py numbers it
const FRESH_S = 8; // a word is shown
const MOST = { rows: 18_000, windows: 3_600, nudges: 500, sentences: 500 }; // of a report: the last hour

const at = (id) => document.getElementById(id);

export class CoachView {
  #points = []; // {t, hz or null, level}, of SHOWN_S
  #drawnS = -Infinity;
  #nudgedS = -Infinity;
  #learnS = 0; // of speech, as the server tells
  #learntS = -1; // as it is shown
  #isKept = false; // as the button shows it
  #report = nothing();

  constructor(list) {
    this.list = list;
    at("save").addEventListener("click", () => this.#save());
    at("keep").addEventListener("click", () => this.#keep());
    this.#showKeep();
  }

  // The setting of a session; null without a coach.
  get wanted() {
    if (!at("coaching").checked) return null;
    const usual = kept();
    return usual ? { baseline: usual } : true;
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
    this.#showKeep();
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
    at("keep").disabled = false;
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

  #keep() {
    if (this.#isKept) browser.drop(USUAL);
    else browser.set(USUAL, JSON.stringify(this.#report.baseline));
    this.#showKeep();
  }

  #showKeep() {
    this.#isKept = kept() !== null;
    put(at("keep"), [this.#isKept ? "forget-usual" : "keep-usual"]);
    at("keep").disabled = !this.#isKept && !this.#report.baseline;
  }
}

// The content of a report.
function nothing() {
  return { begun: null, seconds: 0, rows: [], windows: [], nudges: [], sentences: [], baseline: null };
}

// The baseline that the speaker keeps; null if there is none, or an older page has kept it.
function kept() {
  const usual = JSON.parse(browser.get(USUAL));
  return usual?.form === FORM ? usual : null;
}
