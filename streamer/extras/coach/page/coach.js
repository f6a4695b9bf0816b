// The coach on the page: curves, a short word, the usual values, and a report. All that is kept is bounded.

import { MEASURES, clock, element, languageOf, named, page, put, read, say, shareOf, storage, told, usual } from "./view.js";

const SHOWN_S = 30; // of the curves
const POINT_S = 0.05;
const USUAL = "streamer.usual"; // in the browser's storage: a baseline that its speaker keeps
const COACHING = "streamer.coaching"; // there, too: the settings' switch
const FRESH_S = 8; // a word is shown
const WINDOW_POINTS = 20; // of the curves, between two windows of the report
const MIN_SPEECH_S = 1.5; // in a window of the report
const MAX_POINTS = 72_000; // an hour, the last one
const MAX_LINES = 500; // nudges, and sentences
const MAX_KEPT_S = 300; // of sound: 38 MB in a report, at 48 kHz

let kept; // the content of a report: a conversation with the microphone
let learn = null; // seconds of speech: heard, and needed for a baseline

// The setting of a session.
export function wanted() {
  const baseline = keptBaseline();
  return baseline ? { baseline } : true;
}

// A conversation begins. Returns whether the settings ask for a coach.
export function begin() {
  page.coach.hidden = !page.coaching.checked;
  if (page.coaching.checked) clear();
  return page.coaching.checked;
}

// The word goes; the report's content stays.
export function end() {
  kept.isOver = true;
  draw();
}

export function hear(event) {
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
      add(kept.nudges, { t_s: event.t_s, word: say(`nudge-${event.kind}`), why: whyOf(event) }, MAX_LINES);
      return draw();
    case "streamer.description": {
      const { text, measures } = event.description;
      if (text) add(kept.sentences, { text, measures, t_s: kept.seconds }, MAX_LINES);
    }
  }
}

function clear() {
  kept = { begun: new Date(), seconds: 0, points: [], nudges: [], sentences: [], frames: [], baseline: null };
  kept.isSounding = page.sounding.checked;
  draw();
}

function remember({ t_s, learnt_s, curve_s, pitch_hz, level_dbfs, last }) {
  kept.seconds = t_s;
  learn[0] = Math.floor(learnt_s);
  const measures = last.speech_s >= MIN_SPEECH_S ? last : null;
  const rate_syllables_per_s = measures?.rate_syllables_per_s ?? null;
  pitch_hz.forEach((pitch_median_hz, i) => {
    const point = { t_s: curve_s + i * POINT_S, pitch_median_hz, level_dbfs: level_dbfs[i], rate_syllables_per_s, measures };
    add(kept.points, point, MAX_POINTS);
  });
  draw();
}

function draw() {
  const { baseline, isOver } = kept;
  const nudge = kept.nudges.findLast(({ t_s }) => !isOver && kept.seconds - t_s <= FRESH_S);
  const end = Math.max(SHOWN_S, kept.seconds);
  page.curves.innerHTML = curvesOf(end - SHOWN_S, end);
  const isKept = keptBaseline() !== null;
  put(page.keep, say(isKept ? "forget-usual" : "keep-usual"));
  page.keep.disabled = !isKept && !baseline;
  page.save.disabled = !kept.seconds;
  const learning = kept.seconds ? say("learning", ...learn) : "";
  put(page.learning, baseline ? say("learnt", Math.round(baseline.speech_s)) : learning);
  put(page.nudge, nudge?.word ?? "");
  put(page["nudge-why"], nudge?.why ?? "");
  usual.values = baseline;
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

// Keep a frame of the microphone's sound, PCM16, for a report where the user wishes it. All have one length.
export function take(frame, rateHz) {
  if (kept.isSounding) add(kept.frames, frame, (2 * MAX_KEPT_S * rateHz) / frame.byteLength);
  kept.rateHz = rateHz;
}

// The sound as a WAV file in a data URL, or null without any.
async function soundUrl() {
  const { rateHz, frames } = kept;
  const { size } = new Blob(frames);
  if (!size) return null;
  const numbers = (...all) => Uint32Array.from(all);
  const format = numbers(16, 1 | (1 << 16), rateHz, 2 * rateHz, 2 | (16 << 16)); // PCM, one channel
  const head = ["RIFF", numbers(36 + size), "WAVEfmt ", format, "data", numbers(size)];
  const reader = new FileReader();
  reader.readAsDataURL(new Blob([...head, ...frames], { type: "audio/wav" }));
  await new Promise((done) => (reader.onload = done));
  return reader.result;
}

// The baseline that the speaker keeps, or null.
function keptBaseline() {
  return JSON.parse(storage("localStorage").getItem(USUAL));
}

// measure -> the values on its axis, at equal distances
const CURVES = {
  pitch_median_hz: [480, 240, 120, 60],
  level_dbfs: [0, -20, -40, -60],
  rate_syllables_per_s: [10, 5, 0],
};
const [WIDTH, HEIGHT] = [600, 100]; // of a curve's box
const GAP_S = 3;
const MAX_DRAWN = 3_600; // points of a curve

// The curves from one second to another, as HTML.
function curvesOf(from, to) {
  const { points, nudges, baseline } = kept;
  const x = (t) => ((WIDTH * (t - from)) / (to - from)).toFixed(1);
  const within = (all) => all.filter(({ t_s }) => t_s >= from);
  const drawn = within(points).filter((_, i, all) => i % Math.ceil(all.length / MAX_DRAWN) === 0);
  const figures = Object.entries(CURVES).map(([name, values]) => {
    const y = (value) => (HEIGHT * (1 - shareOf(name, value))).toFixed(1);
    const across = (kind, value) => `<path class="${kind}" d="M0 ${y(value)}H${WIDTH}"/>`;
    const lines = [
      ...values.map((value) => across("axis", value)),
      baseline ? across("usual", baseline[name]) : "",
      ...within(nudges).map(({ t_s }) => `<path class="nudge" d="M${x(t_s)} 0V${HEIGHT}"/>`),
      `<path class="${name}" d="${lineOf(drawn, name, x, y)}"/>`,
    ].join("");
    const label = labelOf(name);
    const axis = values.map((value) => `<span>${read(name, value)}</span>`).join("");
    return `<figure><figcaption>${label}</figcaption><div class="axis">${axis}</div>
<svg viewBox="0 0 ${WIDTH} ${HEIGHT}" preserveAspectRatio="none" role="img" aria-label="${label}">${lines}</svg></figure>`;
  });
  return figures.join("");
}

// A line through a measure of points, parted where there is none, or no point for GAP_S.
function lineOf(points, name, x, y) {
  let path = "";
  let lastS = -Infinity;
  for (const { t_s, [name]: value } of points) {
    if (value !== null) path += `${t_s - lastS > GAP_S ? "M" : "L"}${x(t_s)} ${y(value)}`;
    lastS = value === null ? -Infinity : t_s;
  }
  return path;
}

function labelOf(name) {
  const { attribute, unit } = MEASURES[name];
  return say("report-of-unit", named(attribute), told(unit));
}

// A report of the conversation as one HTML file that needs nothing else. sound: a data URL, or null.
function reportOf(sound) {
  const { lang } = document.documentElement;
  const style = [...document.styleSheets[0].cssRules].map((rule) => rule.cssText).join("\n");
  const player = sound ? `<audio controls src="${sound}" aria-label="${say("playback")}"></audio>` : "";
  const end = Math.max(kept.seconds, 10);
  const times = [0, 0.2, 0.4, 0.6, 0.8, 1].map((share) => `<span>${clock(share * end)}</span>`).join("");
  const nudges = kept.nudges.map(({ t_s, word, why }) => [clock(t_s), word, why]);
  const names = Object.keys(MEASURES);
  const sentences = kept.sentences.map(({ t_s, text, measures }) => {
    const said = Object.assign(element("span", text), { className: "said", lang: languageOf(text) });
    return [clock(t_s), said.outerHTML, ...names.map((name) => read(name, measures?.[name]))];
  });
  const headsOf = (...heads) => heads.map((head) => say(`report-${head}`));
  const parts = {
    "report-measures": table(headsOf("measure", "usual", "median", "range", "unit"), names.map(rowOf)),
    "report-curves": `${curvesOf(0, end)}<div class="times">${times}</div>`,
    "report-nudges": table(headsOf("time", "word", "why"), nudges),
    "report-sentences": table([...headsOf("time", "sentence"), ...names.map(labelOf)], sentences),
  };
  const sections = Object.entries(parts).map(([name, part]) => `<section><h2>${say(name)}</h2>${part}</section>`);
  return `<!doctype html>
<html lang="${lang}"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>${say("now")}</title><style>${style}</style></head>
<body><main id="report"><h1>${say("now")}</h1>
<p class="facts">${kept.begun.toLocaleString(lang)} · ${say("report-length", clock(kept.seconds))}</p>${player}
${sections.join("\n")}</main></body></html>
`;
}

// A measure, over all windows: its usual value, the median, the range of most, its unit.
function rowOf(name) {
  const { attribute, unit } = MEASURES[name];
  const windows = kept.points.filter(({ measures }, i) => measures && i % WINDOW_POINTS === 0);
  const values = windows.map(({ measures }) => measures[name]).filter((value) => value !== null).sort((a, b) => a - b);
  const [low, median, high] = [0.05, 0.5, 0.95].map((share) => read(name, values[Math.round(share * (values.length - 1))]));
  return [named(attribute), read(name, kept.baseline?.[name]), median, `${low} … ${high}`, told(unit)];
}

function table(heads, rows) {
  if (!rows.length) return `<p class="facts">${say("report-none")}</p>`;
  const row = (tag, cells) => `<tr>${cells.map((cell) => `<${tag}>${cell}</${tag}>`).join("")}</tr>`;
  return `<div class="scroll"><table>${row("th", heads)}${rows.map((cells) => row("td", cells)).join("")}</table></div>`;
}

page.save.onclick = async () => {
  const html = reportOf(await soundUrl());
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
page.coaching.parentElement.hidden = page.sounding.parentElement.hidden = false;
page.coaching.checked = storage("localStorage").getItem(COACHING) === "on";
page.coaching.onchange = () => storage("localStorage").setItem(COACHING, page.coaching.checked ? "on" : "off");
clear();
