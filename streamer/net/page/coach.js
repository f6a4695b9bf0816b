// The coach's part of the page. In: the server's coach events and descriptions. Out: gauges, a curve, a short word, and
// what a report is made of. Everything that is kept is bounded.

import { Curve } from "./curve.js";
import { Gauges, MEASURES, shown } from "./gauges.js";
import { reportOf } from "./report.js";
import { browser } from "./storage.js";
import { put, say } from "./words.js";

const USUAL = "streamer.usual"; // in the browser's storage: a baseline that its speaker keeps
// A baseline's numbers, as core/coach/baseline.py names them.
const NAMES = `rate_syllables_per_s pitch_median_hz pitch_sd_semitones level_dbfs pause_share speech_s
  loudness_db loudness_sd_db tempo_octaves tempo_sd_octaves melody_octaves melody_sd_octaves`.split(/\s+/);
const FORM = 5; // of what is kept, as core/coach/voice.py numbers it
const LEARN_S = 30; // where the server is older and does not tell
const FRESH_S = 8; // a word stays so long
const MAX_ROWS = 3_600; // of the report's curves; then every other one goes
const MAX_NUDGES = 500;
const MAX_SENTENCES = 500;

const at = (id) => document.getElementById(id);

export class CoachView {
  #gauges = new Gauges(at("gauges"));
  #curve = new Curve(at("curve"));
  #baseline = null;
  #nudgedAt = -Infinity;
  #learnS = 0; // of speech, as the server tells
  #learntS = -1; // as it is shown
  #fromS = 0; // where the server's session began, in seconds of the report
  #isKept = false; // as the button shows it
  #every = 1; // of the points of 50 ms, so many make a row
  #held = [];
  #kept = nothing();

  constructor() {
    at("save").addEventListener("click", () => this.#save());
    at("keep").addEventListener("click", () => this.#keep());
    addEventListener("storage", () => this.#showKeep()); // of another tab
    this.#showKeep();
  }

  // What a session is asked for: null where nobody wants a coach.
  get wanted() {
    if (!at("coaching").checked) return null;
    const usual = kept();
    return usual ? { baseline: usual } : true;
  }

  // Somebody begins to speak, or nobody is coached.
  begin(isCoached) {
    at("coach").hidden = !isCoached;
    at("main").classList.toggle("coached", isCoached);
    if (!isCoached) return;
    this.#baseline = null;
    this.#nudgedAt = -Infinity;
    this.#learntS = -1;
    this.#fromS = 0;
    this.#every = 1;
    this.#held = [];
    this.#kept = { ...nothing(), begun: new Date() };
    this.#gauges.usual(null);
    this.#gauges.show({});
    this.#curve.clear();
    put(at("nudge"), null);
    put(at("nudge-why"), null);
    put(at("learning"), null);
    at("save").disabled = at("keep").disabled = true;
    this.#showKeep();
  }

  // Nobody speaks any more. What a report is made of stays.
  end() {
    put(at("nudge"), null);
    put(at("nudge-why"), null);
  }

  // Another session of the server, which was asked for `wanted`: the report goes on. What this one is asked for knows
  // what was learnt.
  anew(wanted) {
    this.#fromS = this.#kept.seconds;
    this.#held = [];
    this.#learntS = -1;
    this.end();
    return wanted && this.#baseline ? { baseline: this.#baseline } : wanted;
  }

  hear(event) {
    switch (event.type) {
      case "session.updated":
        this.#learnS = event.session.streamer.coach.learn_s ?? LEARN_S;
        return;
      case "streamer.coach":
        return this.#news({ ...event, t_s: this.#fromS + event.t_s, curve_s: this.#fromS + event.curve_s });
      case "streamer.baseline":
        return this.#usual(event.baseline);
      case "streamer.nudge":
        return this.#nudge({ ...event, t_s: this.#fromS + event.t_s });
      case "streamer.description":
        return this.#sentence(event.description);
    }
  }

  #news(event) {
    at("save").disabled = false;
    this.#gauges.show(event.last);
    this.#curve.add(event);
    const learntS = Math.floor(event.learnt_s);
    if (!this.#baseline && learntS !== this.#learntS) put(at("learning"), ["learning", learntS, this.#learnS]);
    this.#learntS = learntS;
    if (event.t_s - this.#nudgedAt > FRESH_S) at("words").classList.add("past");
    this.#remember(event);
  }

  #usual(baseline) {
    this.#baseline = this.#kept.baseline = baseline;
    this.#gauges.usual(baseline);
    this.#curve.usual(baseline);
    at("keep").disabled = false;
    put(at("learning"), ["learnt", Math.round(baseline.speech_s)]);
  }

  #nudge(event) {
    this.#nudgedAt = event.t_s;
    this.#curve.nudge(event.t_s);
    at("words").classList.remove("past");
    put(at("nudge"), [`nudge-${event.kind}`]);
    put(at("nudge-why"), whyOf(event));
    this.#kept.nudges.push(event);
    this.#kept.nudges.splice(0, this.#kept.nudges.length - MAX_NUDGES);
  }

  #sentence(found) {
    if (!found.text || !this.#kept.begun) return;
    this.#kept.sentences.push({ text: found.text, measures: found.measures ?? null, atS: this.#kept.seconds });
    this.#kept.sentences.splice(0, this.#kept.sentences.length - MAX_SENTENCES);
  }

  // Rows of the report's curves: the mean of some points, more of them the longer somebody speaks.
  #remember(event) {
    const kept = this.#kept;
    kept.seconds = event.t_s;
    event.pitch_hz.forEach((hz, i) => this.#held.push({ t: event.curve_s + 0.05 * i, hz, level: event.level_dbfs[i] }));
    while (this.#held.length >= this.#every) {
      const part = this.#held.splice(0, this.#every);
      const voiced = part.map(({ hz }) => hz).filter((hz) => hz !== null).sort((a, b) => a - b);
      const hz = voiced.length ? voiced[voiced.length >> 1] : null;
      kept.rows.push({ t: part[0].t, hz, level: Math.max(...part.map(({ level }) => level)) });
    }
    if (Math.round(event.t_s * 5) % 5 === 0 && event.last.speech_s >= 1.5) kept.windows.push({ t: event.t_s, ...event.last });
    if (kept.windows.length > MAX_ROWS) kept.windows = kept.windows.filter((_, i) => i % 2);
    if (kept.rows.length > MAX_ROWS) {
      kept.rows = kept.rows.filter((_, i) => i % 2);
      this.#every *= 2;
    }
  }

  #save() {
    const page = reportOf(this.#kept);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([page], { type: "text/html" }));
    link.download = `${say("report-file")}-${this.#kept.begun.toISOString().slice(0, 16).replace(/[T:]/g, "-")}.html`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  }

  #keep() {
    if (this.#isKept) browser.drop(USUAL);
    else browser.set(USUAL, JSON.stringify(this.#baseline));
    this.#showKeep();
  }

  #showKeep() {
    this.#isKept = kept() !== null;
    put(at("keep"), [this.#isKept ? "forget-usual" : "keep-usual"]);
    at("keep").disabled = !this.#isKept && !this.#baseline;
  }
}

// What a report is made of.
function nothing() {
  return { begun: null, seconds: 0, rows: [], windows: [], nudges: [], sentences: [], baseline: null };
}

// Why: the value, its unit, and what is usual.
export function whyOf({ measure, value, usual }) {
  if (!(measure in MEASURES)) return [`nudge-${measure}`, value.toFixed(0)];
  return ["nudge-measure", shown(measure, value), [MEASURES[measure].unit], shown(measure, usual)];
}

// The baseline that its speaker keeps, or null.
function kept() {
  try {
    const usual = JSON.parse(browser.get(USUAL));
    const isWhole = usual.form === FORM && NAMES.every((name) => typeof usual[name] === "number");
    return isWhole && Object.keys(usual).length === NAMES.length + 1 ? usual : null;
  } catch {
    return null;
  }
}

// Whether one went that cannot be used: the server refuses what an older form of this page kept.
export function dropOlder() {
  const isOlder = browser.get(USUAL) !== null && kept() === null;
  if (isOlder) browser.drop(USUAL);
  return isOlder;
}
