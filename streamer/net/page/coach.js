// The coach on the page: a curve, a short word, the usual values, and a report. All that is kept is bounded.

import { Sound } from "./audio.js";
import { MEASURES, compareWith, read, shareOf } from "./list.js";
import { areaOf, lineOf, reportOf } from "./report.js";
import { page } from "./view.js";
import { keep, kept, put, say } from "./words.js";

const SHOWN_S = 30; // of the curve
const POINT_S = 0.05;
const [WIDTH, HEIGHT] = [600, 100]; // of the curve, as index.html has them
const USUAL = "streamer.usual"; // in the browser's storage: a baseline that its speaker keeps
const FRESH_S = 8; // a word is shown
const WINDOW_S = 0.9; // between two windows of the report, at least
const MIN_SPEECH_S = 1.5; // in a window of the report
const MAX_POINTS = 72_000; // an hour, the last one
const MAX_LINES = 500; // nudges, and sentences

class Coach {
  #kept; // the content of a report: a conversation with the microphone
  #nudge = null; // the one that the page shows
  #learnS = 0; // of speech, as the server tells
  #learntS = 0;
  #sound = null; // for the report, where it is wished

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
    this.#sound = page.sounding.checked ? new Sound() : null;
    if (!page.coach.hidden) this.#clear();
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
        this.#nudge = event;
        add(kept.nudges, event, MAX_LINES);
        return this.#draw();
      case "streamer.description": {
        const { text, measures = null } = event.description;
        if (text) add(kept.sentences, { text, measures, t_s: kept.seconds }, MAX_LINES);
      }
    }
  }

  #clear() {
    this.#kept = { begun: new Date(), seconds: 0, points: [], windows: [], nudges: [], sentences: [], baseline: null };
    this.#learntS = 0;
    page.curve.replaceChildren();
    this.end();
  }

  #remember({ t_s, learnt_s, curve_s, pitch_hz, level_dbfs, last }) {
    const { points, windows } = this.#kept;
    this.#kept.seconds = t_s;
    this.#learntS = learnt_s;
    pitch_hz.forEach((hz, i) => add(points, { t_s: curve_s + i * POINT_S, hz, level: level_dbfs[i] }, MAX_POINTS));
    const isDue = !(t_s - windows.at(-1)?.t_s < WINDOW_S);
    if (isDue && last.speech_s >= MIN_SPEECH_S) add(windows, { ...last, t_s }, MAX_POINTS * POINT_S);
    if (t_s - this.#nudge?.t_s > FRESH_S) this.#nudge = null;
    page.curve.innerHTML = curveOf(this.#kept);
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
    put(page["nudge-why"], this.#nudge && whyOf(this.#nudge));
    compareWith(baseline);
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
    keep("localStorage", USUAL, keptBaseline() ? null : JSON.stringify(this.#kept.baseline));
    this.#draw();
  }
}

// Why: the value, its unit, and what is usual.
export function whyOf({ measure, value, usual }) {
  if (!(measure in MEASURES)) return [`nudge-${measure}`, value.toFixed(0)];
  return ["nudge-measure", read(measure, value), ["told", MEASURES[measure].unit], read(measure, usual)];
}

// The baseline that the speaker keeps, or null.
function keptBaseline() {
  return JSON.parse(kept("localStorage", USUAL));
}

// Adds one to a list, which keeps the last ones.
function add(list, one, most) {
  list.push(one);
  if (list.length > most) list.shift();
}

// Pitch and level of the last half minute, in a box of WIDTH times HEIGHT.
function curveOf({ points, seconds, nudges, baseline }) {
  const end = Math.max(SHOWN_S, seconds);
  const shownPoints = points.filter(({ t_s }) => t_s > end - SHOWN_S);
  const x = (t) => (WIDTH * (1 - (end - t) / SHOWN_S)).toFixed(1);
  const pitchY = (hz) => (3 + (0.58 * HEIGHT - 6) * (1 - shareOf("pitch_median_hz", hz))).toFixed(1);
  const levelY = (level) => (HEIGHT * (1 - 0.36 * shareOf("level_dbfs", level))).toFixed(1);
  const usual = baseline ? [pitchY(baseline.pitch_median_hz), levelY(baseline.level_dbfs)] : [];
  return [
    `<path class="level" d="${areaOf(shownPoints, x, levelY, HEIGHT)}"/>`,
    ...nudges.map(({ t_s }) => `<path class="nudge" d="M${x(t_s)} 0V${HEIGHT}"/>`),
    ...usual.map((y) => `<path class="usual" d="M0 ${y}H${WIDTH}"/>`),
    `<path class="pitch" d="${lineOf(shownPoints, ({ hz }) => hz, x, pitchY)}"/>`,
  ].join("");
}

export const coach = new Coach();
