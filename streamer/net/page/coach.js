// The coach on the page: a curve, a short word, the usual values, and a report. All that is kept is bounded.

import { Sound } from "./audio.js";
import { areaOf, lineOf, reportOf } from "./report.js";
import { MEASURES, compareWith, page, read, shareOf } from "./view.js";
import { put, say, storage, told } from "./words.js";

const SHOWN_S = 30; // of the curve
const POINT_S = 0.05;
const [WIDTH, HEIGHT] = [600, 100]; // of the curve, as index.html has them
const USUAL = "streamer.usual"; // in the browser's storage: a baseline that its speaker keeps
const FRESH_S = 8; // a word is shown
const WINDOW_S = 0.9; // between two windows of the report, at least
const MIN_SPEECH_S = 1.5; // in a window of the report
const MAX_POINTS = 72_000; // an hour, the last one
const MAX_LINES = 500; // nudges, and sentences

let kept; // the content of a report: a conversation with the microphone
let nudge = null; // the one that the page shows
let learn = null; // seconds of speech: heard, and needed for a baseline
let sound = null; // for the report, where it is wished

// The setting of a session; undefined without a coach.
export function wanted() {
  if (page.coach.hidden) return undefined;
  const baseline = keptBaseline();
  return baseline ? { baseline } : true;
}

// A conversation begins, with a coach if the settings say so.
export function begin() {
  page.coach.hidden = !page.coaching.checked;
  sound = page.sounding.checked ? new Sound() : null;
  if (!page.coach.hidden) clear();
}

// A frame of the microphone.
export function keepSound(frame, rateHz) {
  sound?.add(frame, rateHz);
}

// The word goes; the report's content stays.
export function end() {
  nudge = null;
  draw();
}

export function hear(event) {
  if (page.coach.hidden) return;
  switch (event.type) {
    case "session.updated":
      learn = [0, event.session.streamer.coach.learn_s];
      return;
    case "streamer.coach":
      return remember(event);
    case "streamer.baseline":
      kept.baseline = event.baseline;
      return draw();
    case "streamer.nudge":
      nudge = { t_s: event.t_s, word: say(`nudge-${event.kind}`), why: whyOf(event) };
      add(kept.nudges, nudge, MAX_LINES);
      return draw();
    case "streamer.description": {
      const { text, measures } = event.description;
      if (text) add(kept.sentences, { text, measures, t_s: kept.seconds }, MAX_LINES);
    }
  }
}

function clear() {
  kept = { begun: new Date(), seconds: 0, points: [], nudges: [], windows: [], sentences: [], baseline: null };
  page.curve.replaceChildren();
  end();
}

function remember({ t_s, learnt_s, curve_s, pitch_hz, level_dbfs, last }) {
  const { windows } = kept;
  kept.seconds = t_s;
  learn[0] = Math.floor(learnt_s);
  pitch_hz.forEach((hz, i) => add(kept.points, { t_s: curve_s + i * POINT_S, hz, level: level_dbfs[i] }, MAX_POINTS));
  const isDue = !(t_s - windows.at(-1)?.t_s < WINDOW_S);
  if (isDue && last.speech_s >= MIN_SPEECH_S) add(windows, { ...last, t_s }, MAX_POINTS * POINT_S);
  if (t_s - nudge?.t_s > FRESH_S) nudge = null;
  page.curve.innerHTML = curve();
  draw();
}

function draw() {
  const { baseline } = kept;
  const isKept = keptBaseline() !== null;
  put(page.keep, say(isKept ? "forget-usual" : "keep-usual"));
  page.keep.disabled = !isKept && !baseline;
  page.save.disabled = !kept.seconds;
  const learning = kept.seconds ? say("learning", ...learn) : "";
  put(page.learning, baseline ? say("learnt", Math.round(baseline.speech_s)) : learning);
  put(page.nudge, nudge?.word ?? "");
  put(page["nudge-why"], nudge?.why ?? "");
  compareWith(baseline);
}

// The value, its unit, and what is usual.
function whyOf({ measure, value, usual }) {
  if (!(measure in MEASURES)) return say(`nudge-${measure}`, value.toFixed(0));
  return say("nudge-measure", read(measure, value), told(MEASURES[measure].unit), read(measure, usual));
}

// Adds one to a list, which keeps the last ones.
function add(list, one, most) {
  list.push(one);
  if (list.length > most) list.shift();
}

// The baseline that the speaker keeps, or null.
function keptBaseline() {
  return JSON.parse(storage("localStorage").getItem(USUAL));
}

// Pitch and level of the last half minute, in a box of WIDTH times HEIGHT.
function curve() {
  const { points, nudges, baseline } = kept;
  const end = Math.max(SHOWN_S, kept.seconds);
  const shown = points.filter(({ t_s }) => t_s > end - SHOWN_S);
  const x = (t) => (WIDTH * (1 - (end - t) / SHOWN_S)).toFixed(1);
  const pitchY = (hz) => (3 + (0.58 * HEIGHT - 6) * (1 - shareOf("pitch_median_hz", hz))).toFixed(1);
  const levelY = (level) => (HEIGHT * (1 - 0.36 * shareOf("level_dbfs", level))).toFixed(1);
  const usual = baseline ? [pitchY(baseline.pitch_median_hz), levelY(baseline.level_dbfs)] : [];
  return [
    `<path class="level" d="${areaOf(shown, x, levelY, HEIGHT)}"/>`,
    ...nudges.map(({ t_s }) => `<path class="nudge" d="M${x(t_s)} 0V${HEIGHT}"/>`),
    ...usual.map((y) => `<path class="usual" d="M0 ${y}H${WIDTH}"/>`),
    `<path class="pitch" d="${lineOf(shown, ({ hz }) => hz, x, pitchY)}"/>`,
  ].join("");
}

page.save.onclick = async () => {
  const html = reportOf(kept, (await sound?.url()) ?? null);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([html], { type: "text/html" }));
  link.download = `${say("report-file")}-${kept.begun.toISOString().slice(0, 16).replace(/[T:]/g, "-")}.html`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
};
page.keep.onclick = () => {
  if (keptBaseline()) storage("localStorage").removeItem(USUAL);
  else storage("localStorage").setItem(USUAL, JSON.stringify(kept.baseline));
  draw();
};
clear();
