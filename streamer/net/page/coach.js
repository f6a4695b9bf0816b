// The coach on the page: a curve, a short word, the usual values, and a report. All that is kept is bounded.

import { Sound } from "./audio.js";
import { MEASURES, compareWith, read, shareOf } from "./list.js";
import { areaOf, lineOf, reportOf } from "./report.js";
import { page, problem, shown } from "./view.js";
import { browser, put, say } from "./words.js";

const SHOWN_S = 30; // of the curve
const POINT_S = 0.05;
const CALM_EVERY_S = 2; // for users who want less motion
const [WIDTH, HEIGHT] = [600, 100]; // of the curve, as index.html has them
const USUAL = "streamer.usual"; // in the browser's storage: a baseline that its speaker keeps
const FORM = 5; // of what is kept, as extras/coach/network.py numbers it
const FRESH_S = 8; // a word is shown
const WINDOW_POINTS = 20; // between two windows of the report
const MIN_SPEECH_S = 1.5; // in a window of the report
const MAX_POINTS = 72_000; // an hour; then every second one is dropped
const MAX_NUDGES = 500;
const MAX_SENTENCES = 500;

// The content of a report: a conversation with the microphone, over all its sessions with the server.
const NOTHING = { begun: null, seconds: 0, stepS: POINT_S, points: [], windows: [], nudges: [], sentences: [], baseline: null };

class Coach {
  #kept = NOTHING;
  #fromS = 0; // where the server's session began
  #nudge = null; // the one that the page shows
  #learnS = 0; // of speech, as the server tells
  #learntS = 0;
  #drawnS = 0;
  #sound = null; // for the report, where it is wished

  constructor() {
    page.save.addEventListener("click", () => this.#save());
    page.keep.addEventListener("click", () => this.#keep());
    page.list.addEventListener("change", () => this.#explain());
    addEventListener("storage", () => this.#draw()); // another tab changed it
    this.#draw();
  }

  // The setting of a session; undefined without a coach.
  get wanted() {
    if (page.coach.hidden) return undefined;
    const baseline = this.#kept.baseline ?? keptBaseline();
    return baseline ? { baseline } : true;
  }

  // A conversation begins, with a coach if the settings say so.
  begin() {
    page.coach.hidden = !page.coaching.checked;
    this.#sound = page.sounding.checked ? new Sound() : null;
    if (page.coach.hidden) return;
    if (browser.getItem(USUAL) !== null && !keptBaseline()) {
      browser.removeItem(USUAL); // the server would refuse it
      problem("usual-older");
    }
    this.#kept = { ...structuredClone(NOTHING), begun: new Date() };
    this.#fromS = this.#learntS = this.#drawnS = 0;
    page.curve.replaceChildren();
    this.end();
  }

  // A frame of the microphone.
  sound(frame, rateHz) {
    this.#sound?.add(frame, rateHz);
  }

  // The word goes; the report's content stays.
  end() {
    this.#nudge = null;
    this.#draw();
  }

  // Another session replaces the last one from its second `fromS` on. Report and learnt baseline are kept.
  anew(fromS) {
    this.#fromS += fromS;
    for (const name of ["points", "windows"]) this.#kept[name] = this.#kept[name].filter(({ t }) => t < this.#fromS);
    this.end();
  }

  hear(event) {
    if (page.coach.hidden) return;
    const kept = this.#kept;
    const nudge = { ...event, t: this.#fromS + event.t_s };
    switch (event.type) {
      case "session.updated":
        this.#learnS = event.session.streamer.coach.learn_s;
        return;
      case "streamer.coach":
        this.#remember(event, this.#fromS + event.t_s);
        this.#drawCurve();
        return this.#draw();
      case "streamer.baseline":
        kept.baseline = event.baseline;
        return this.#draw();
      case "streamer.nudge":
        kept.nudges = [...kept.nudges.slice(1 - MAX_NUDGES), nudge];
        this.#nudge = { ...nudge, why: whyOf(nudge), isSeen: false };
        this.#draw();
        return this.#explain();
      case "streamer.description": {
        const { text, measures = null } = event.description;
        if (text) kept.sentences = [...kept.sentences.slice(1 - MAX_SENTENCES), { text, measures, t: kept.seconds }];
      }
    }
  }

  #remember(event, t) {
    const kept = this.#kept;
    kept.seconds = t;
    this.#learntS = event.learnt_s;
    const from = this.#fromS + event.curve_s;
    const points = event.pitch_hz.map((hz, i) => ({ t: from + i * POINT_S, hz, level: event.level_dbfs[i] }));
    points.forEach((point) => addDue(kept.points, point, kept.stepS));
    if (event.last.speech_s >= MIN_SPEECH_S) addDue(kept.windows, { ...event.last, t }, WINDOW_POINTS * kept.stepS);
    if (kept.points.length > MAX_POINTS) {
      for (const name of ["points", "windows"]) kept[name] = kept[name].filter((_, i) => i % 2);
      kept.stepS *= 2;
    }
    if (t - this.#nudge?.t > FRESH_S) this.#nudge = null;
  }

  // The reason has the number that the list shows; none while that, of a longer time, is still as usual. Once it has
  // been unusual, the word goes when it is usual again.
  #explain() {
    const { measure, value, usual, isSeen } = this.#nudge ?? {};
    const now = measure in MEASURES ? (shown.latest ?? shown.measures)?.[measure] : null;
    if (now === null || now === undefined) return;
    const isUsual = (now - usual) * (value - usual) <= 0 || read(measure, now) === read(measure, usual);
    const why = isUsual ? null : whyOf({ measure, value: now, usual });
    this.#nudge = isUsual && isSeen ? null : { ...this.#nudge, why, isSeen: !isUsual };
    this.#draw();
  }

  #draw() {
    const { seconds, baseline } = this.#kept;
    const isKept = keptBaseline() !== null;
    put(page.keep, [isKept ? "forget-usual" : "keep-usual"]);
    page.keep.disabled = !isKept && !baseline;
    page.save.disabled = !seconds;
    const learnt = baseline ? ["learnt", Math.round(baseline.speech_s)] : ["learning", Math.floor(this.#learntS), this.#learnS];
    put(page.learning, seconds ? learnt : null);
    put(page.nudge, this.#nudge && [`nudge-${this.#nudge.kind}`]);
    put(page["nudge-why"], this.#nudge && this.#nudge.why);
    compareWith(baseline);
  }

  #drawCurve() {
    const every = matchMedia("(prefers-reduced-motion: reduce)").matches ? CALM_EVERY_S : 0;
    if (this.#kept.seconds < this.#drawnS + every) return;
    this.#drawnS = this.#kept.seconds;
    page.curve.innerHTML = curveOf(this.#kept);
  }

  async #save() {
    const html = reportOf(this.#kept, (await this.#sound?.url()) ?? null);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([html], { type: "text/html" }));
    link.download = `${say("report-file")}-${this.#kept.begun.toISOString().slice(0, 16).replace(/[T:]/g, "-")}.html`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  }

  #keep() {
    if (keptBaseline()) browser.removeItem(USUAL);
    else browser.setItem(USUAL, JSON.stringify(this.#kept.baseline));
    this.#draw();
  }
}

// Why: the value, its unit, and what is usual.
export function whyOf({ measure, value, usual }) {
  if (!(measure in MEASURES)) return [`nudge-${measure}`, value.toFixed(0)];
  return ["nudge-measure", read(measure, value), ["told", MEASURES[measure].unit], read(measure, usual)];
}

// The baseline that the speaker keeps; null if there is none, or one of an older page.
function keptBaseline() {
  try {
    const usual = JSON.parse(browser.getItem(USUAL));
    return usual.form === FORM ? usual : null;
  } catch {
    return null;
  }
}

// Adds what comes `stepS` or more after the last one.
function addDue(list, one, stepS) {
  if (!(one.t - list.at(-1)?.t < 0.9 * stepS)) list.push(one);
}

// Pitch and level of the last half minute, in a box of WIDTH times HEIGHT.
function curveOf({ points, seconds, nudges, baseline }) {
  const end = Math.max(SHOWN_S, seconds);
  const shownPoints = points.filter(({ t }) => t > end - SHOWN_S);
  if (!shownPoints.length) return "";
  const x = (t) => (WIDTH * (1 - (end - t) / SHOWN_S)).toFixed(1);
  const pitchY = (hz) => (3 + (0.58 * HEIGHT - 6) * (1 - shareOf(hz, MEASURES.pitch_median_hz.scale, true))).toFixed(1);
  const levelY = (level) => (HEIGHT * (1 - 0.36 * shareOf(level, MEASURES.level_dbfs.scale))).toFixed(1);
  const usual = baseline ? [pitchY(baseline.pitch_median_hz), levelY(baseline.level_dbfs)] : [];
  return [
    `<path class="level" d="${areaOf(shownPoints, x, levelY, HEIGHT)}"/>`,
    ...nudges.map(({ t }) => `<path class="nudge" d="M${x(t)} 0V${HEIGHT}"/>`),
    ...usual.map((y) => `<path class="usual" d="M0 ${y}H${WIDTH}"/>`),
    `<path class="pitch" d="${lineOf(shownPoints.map(({ t, hz }) => [t, hz]), x, pitchY)}"/>`,
  ].join("");
}

export const coach = new Coach();
