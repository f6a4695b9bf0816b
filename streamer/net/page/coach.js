// The coach on the page: a curve, a short word, the usual values, and a report. All that is kept is bounded.

import { MEASURES, shareOf, shown } from "./list.js";
import { broken, reportOf } from "./report.js";
import { Sound } from "./sound.js";
import { browser, put, say } from "./words.js";

const SHOWN_S = 30; // of the curve
const POINT_S = 0.05;
const MAX_POINTS = SHOWN_S / POINT_S;
const CALM_EVERY_S = 2; // for users who want less motion
const [WIDTH, HEIGHT] = [600, 100]; // of the curve, as index.html has them
const PITCH_HZ = MEASURES.pitch_median_hz.scale;
const LEVEL_DBFS = MEASURES.level_dbfs.scale;
const USUAL = "streamer.usual"; // in the browser's storage: a baseline that its speaker keeps
// A baseline's numbers, as extras/coach/options.py names them.
const NAMES = `rate_syllables_per_s pitch_median_hz pitch_sd_semitones level_dbfs pause_share speech_s
  loudness_db loudness_sd_db tempo_octaves tempo_sd_octaves melody_octaves melody_sd_octaves`.split(/\s+/);
const FORM = 5; // of what is kept, as extras/coach/network.py numbers it
const LEARN_S = 30; // of an older server, which does not tell
const FRESH_S = 8; // a word is shown
const MAX_ROWS = 3_600; // of the report's curves; then every other one goes
const MAX_NUDGES = 500;
const MAX_SENTENCES = 500;

const at = (id) => document.getElementById(id);

export class CoachView {
  #curve = new Curve(at("curve"));
  #baseline = null;
  #nudgedAt = -Infinity;
  #shown = null; // the nudge whose word is on the page
  #learnS = 0; // of speech, as the server tells
  #learntS = -1; // as it is shown
  #fromS = 0; // where the server's session began, in seconds of the report
  #isKept = false; // as the button shows it
  #every = 1; // points of 50 ms in a row
  #held = [];
  #kept = nothing();
  #sound = null; // for the report, where it is wished

  constructor(list) {
    this.list = list;
    list.drawn = () => this.#explain();
    at("save").addEventListener("click", () => this.#save());
    at("keep").addEventListener("click", () => this.#keep());
    addEventListener("storage", () => this.#showKeep()); // of another tab
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
    at("main").classList.toggle("coached", isCoached);
    if (!isCoached) return;
    this.#baseline = null;
    this.#nudgedAt = -Infinity;
    this.#learntS = -1;
    this.#fromS = 0;
    this.#every = 1;
    this.#held = [];
    this.#kept = { ...nothing(), begun: new Date() };
    this.#sound = at("sounding").checked ? new Sound() : null;
    this.list.usual(null);
    this.#curve.clear();
    this.end();
    put(at("learning"), null);
    at("save").disabled = at("keep").disabled = true;
    this.#showKeep();
  }

  // A frame of the microphone.
  sound(frame, rateHz) {
    this.#sound?.add(frame, rateHz);
  }

  // The word goes; the report's content stays.
  end() {
    this.#shown = null;
    put(at("nudge"), null);
    put(at("nudge-why"), null);
  }

  // Another session, asked for `wanted`, from a second of the last one on: the report goes on, and the learnt baseline goes
  // along.
  anew(wanted, fromS) {
    this.#fromS += fromS;
    const isBefore = ({ t }) => t < this.#fromS;
    for (const name of ["rows", "windows"]) this.#kept[name] = this.#kept[name].filter(isBefore);
    this.#curve.keep(isBefore);
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
    this.#curve.add(event);
    const learntS = Math.floor(event.learnt_s);
    if (!this.#baseline && learntS !== this.#learntS) put(at("learning"), ["learning", learntS, this.#learnS]);
    this.#learntS = learntS;
    if (event.t_s - this.#nudgedAt > FRESH_S) this.end();
    this.#remember(event);
  }

  #usual(baseline) {
    this.#baseline = this.#kept.baseline = baseline;
    this.list.usual(baseline);
    this.#curve.usual(baseline);
    at("keep").disabled = false;
    put(at("learning"), ["learnt", Math.round(baseline.speech_s)]);
  }

  #nudge(event) {
    this.#nudgedAt = event.t_s;
    this.#curve.nudge(event.t_s);
    this.#shown = { ...event, isSeen: false };
    put(at("nudge"), [`nudge-${event.kind}`]);
    put(at("nudge-why"), whyOf(event));
    this.#explain();
    this.#kept.nudges.push(event);
    this.#kept.nudges.splice(0, this.#kept.nudges.length - MAX_NUDGES);
  }

  // The reason has the number that the list shows; none while that, of a longer time, is still as usual. Once it has
  // been unusual, the word goes when it is usual again.
  #explain() {
    const { measure, value, usual, isSeen } = this.#shown ?? {};
    const now = this.list.value(measure);
    if (now === null) return;
    const isUsual = (now - usual) * (value - usual) <= 0 || shown(measure, now) === shown(measure, usual);
    if (isUsual && isSeen) return this.end();
    this.#shown.isSeen = !isUsual;
    put(at("nudge-why"), isUsual ? null : whyOf({ measure, value: now, usual }));
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

  async #save() {
    const page = reportOf(this.#kept, (await this.#sound?.url()) ?? null);
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

// The content of a report.
function nothing() {
  return { begun: null, seconds: 0, rows: [], windows: [], nudges: [], sentences: [], baseline: null };
}

// Why: the value, its unit, and what is usual.
export function whyOf({ measure, value, usual }) {
  if (!(measure in MEASURES)) return [`nudge-${measure}`, value.toFixed(0)];
  return ["nudge-measure", shown(measure, value), [MEASURES[measure].unit], shown(measure, usual)];
}

// The baseline that the speaker keeps, or null.
function kept() {
  try {
    const usual = JSON.parse(browser.get(USUAL));
    const isWhole = usual.form === FORM && NAMES.every((name) => typeof usual[name] === "number");
    return isWhole && Object.keys(usual).length === NAMES.length + 1 ? usual : null;
  } catch {
    return null;
  }
}

// Drops a baseline that an older page has kept, which the server would refuse; whether there was one.
export function dropOlder() {
  const isOlder = browser.get(USUAL) !== null && kept() === null;
  if (isOlder) browser.drop(USUAL);
  return isOlder;
}

// Pitch and level of the last half minute, drawn in a box of WIDTH times HEIGHT.
class Curve {
  #svg;
  #points = []; // {t, hz or null, level}, of SHOWN_S
  #nudges = []; // seconds
  #baseline = null;
  #drawnS = -Infinity;

  constructor(svg) {
    this.#svg = svg;
  }

  clear() {
    this.#points = [];
    this.#nudges = [];
    this.#baseline = null;
    this.#drawnS = -Infinity;
    this.#svg.replaceChildren();
  }

  keep(isKept) {
    this.#points = this.#points.filter(isKept);
  }

  usual(baseline) {
    this.#baseline = baseline;
  }

  nudge(seconds) {
    this.#nudges.push(seconds);
    if (this.#nudges.length > MAX_POINTS) this.#nudges.shift();
  }

  // The new points of one event.
  add({ t_s: t, curve_s: from, pitch_hz: pitches, level_dbfs: levels }) {
    pitches.forEach((hz, i) => this.#points.push({ t: from + i * POINT_S, hz, level: levels[i] }));
    this.#points.splice(0, this.#points.length - MAX_POINTS);
    const every = matchMedia("(prefers-reduced-motion: reduce)").matches ? CALM_EVERY_S : 0;
    if (t - this.#drawnS < every || !this.#points.length) return;
    this.#drawnS = t;
    this.#draw();
  }

  #draw() {
    const points = this.#points;
    const [first, last] = [points[0].t, points.at(-1).t];
    const end = Math.max(SHOWN_S, last);
    const x = (t) => (WIDTH * (1 - (end - t) / SHOWN_S)).toFixed(1);
    const pitchY = (hz) => (3 + (0.58 * HEIGHT - 6) * (1 - shareOf(hz, PITCH_HZ, true))).toFixed(1);
    const levelY = (level) => (HEIGHT * (1 - 0.36 * shareOf(level, LEVEL_DBFS))).toFixed(1);
    const levels = points.map(({ t, level }) => `L${x(t)} ${levelY(level)}`).join("");
    const pitches = points.map(({ t, hz }) => (hz === null ? null : [t, hz]));
    const usual = this.#baseline ? [pitchY(this.#baseline.pitch_median_hz), levelY(this.#baseline.level_dbfs)] : [];
    this.#svg.innerHTML = [
      `<path class="level" d="M${x(first)} ${HEIGHT}${levels}L${x(last)} ${HEIGHT}Z"/>`,
      ...this.#nudges.map((t) => `<path class="nudge" d="M${x(t)} 0V${HEIGHT}"/>`),
      ...usual.map((y) => `<path class="usual" d="M0 ${y}H${WIDTH}"/>`),
      `<path class="pitch" d="${broken(pitches, x, pitchY, 1.5 * POINT_S)}"/>`,
    ].join("");
  }
}
