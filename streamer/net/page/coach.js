// The coach on the page: a curve, a short word, the usual values, and a report as one HTML file that needs nothing else.
// All that is kept is bounded.

import { MEASURES, compareWith, page, read, shareOf } from "./view.js";
import { clock, languageOf, named, put, say, told } from "./words.js";

const SHOWN_S = 30; // of the curve
const POINT_S = 0.05;
const [WIDTH, HEIGHT] = [600, 100]; // of the curve, as index.html has them
const GAP_S = 3; // between points, parts a line
const FRESH_S = 8; // a word is shown
const MAX_POINTS = 72_000; // an hour, the last one
const MAX_DRAWN = 3_600; // points of a curve
const MAX_LINES = 500; // nudges, and sentences

let kept; // the content of a report: a conversation with the microphone
let nudge = null; // the one that the page shows
let learn = null; // seconds of speech, so far and in all
let baseline = null; // the speaker's usual values, for all conversations

// The setting of a session; undefined without a coach.
export function wanted() {
  if (page.coach.hidden) return undefined;
  return baseline ? { baseline } : true;
}

// A conversation begins, with a coach if the settings say so.
export function begin() {
  page.coach.hidden = !page.coaching.checked;
  if (!page.coach.hidden) clear();
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
      baseline = event.baseline;
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
  kept = { begun: new Date(), seconds: 0, points: [], nudges: [], sentences: [] };
  page.curve.replaceChildren();
  end();
}

function remember({ t_s, learnt_s, curve_s, pitch_hz, level_dbfs }) {
  kept.seconds = t_s;
  learn[0] = Math.floor(learnt_s);
  pitch_hz.forEach((hz, i) => add(kept.points, { t_s: curve_s + i * POINT_S, hz, level: level_dbfs[i] }, MAX_POINTS));
  if (t_s - nudge?.t_s > FRESH_S) nudge = null;
  const end = Math.max(SHOWN_S, t_s);
  page.curve.innerHTML = curve(end - SHOWN_S, end);
  draw();
}

function draw() {
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

// Pitch and level from `begin` to `end`, in seconds of the conversation, as the inside of an SVG.
function curve(begin, end) {
  const inside = kept.points.filter(({ t_s }) => t_s > begin);
  const points = inside.filter((_, i) => i % Math.ceil(inside.length / MAX_DRAWN) === 0);
  const x = (t) => (WIDTH * ((t - begin) / (end - begin))).toFixed(1);
  const pitchY = (hz) => (3 + (0.58 * HEIGHT - 6) * (1 - shareOf("pitch_median_hz", hz))).toFixed(1);
  const levelY = (level) => (HEIGHT * (1 - 0.36 * shareOf("level_dbfs", level))).toFixed(1);
  const usual = baseline ? [pitchY(baseline.pitch_median_hz), levelY(baseline.level_dbfs)] : [];
  const area = points.map(({ t_s, level }) => `L${x(t_s)} ${levelY(level)}`).join("");
  const [first, last] = [points[0], points.at(-1)].map((point) => x(point?.t_s ?? begin));
  let line = "";
  let lastS = -Infinity;
  for (const { hz, t_s } of points) {
    if (hz !== null) line += `${t_s - lastS > GAP_S ? "M" : "L"}${x(t_s)} ${pitchY(hz)}`;
    lastS = hz === null ? -Infinity : t_s;
  }
  return [
    `<path class="level" d="M${first} ${HEIGHT}${area}L${last} ${HEIGHT}Z"/>`,
    ...kept.nudges.map(({ t_s }) => `<path class="nudge" d="M${x(t_s)} 0V${HEIGHT}"/>`),
    ...usual.map((y) => `<path class="usual" d="M0 ${y}H${WIDTH}"/>`),
    `<path class="pitch" d="${line}"/>`,
  ].join("");
}

// With the page's own style and figure.
function report() {
  const lang = document.documentElement.lang;
  const style = [...document.styleSheets[0].cssRules].map((rule) => rule.cssText).join("\n");
  const figure = page.curve.closest("figure").cloneNode(true);
  figure.querySelector("svg").innerHTML = curve(0, kept.seconds);
  const numbersOf = (measures) => Object.keys(MEASURES).map((name) => read(name, measures?.[name]));
  const heads = Object.values(MEASURES).map(({ attribute, unit }) => `${named(attribute)}, ${told(unit)}`);
  const usual = baseline ? [["", say("usual"), ...numbersOf(baseline)]] : [];
  const sentences = kept.sentences.map(({ text, measures, t_s }) => {
    return [clock(t_s), `<span lang="${languageOf(text)}">${safe(text)}</span>`, ...numbersOf(measures)];
  });
  const nudges = kept.nudges.map(({ t_s, word, why }) => [clock(t_s), word, why]);
  return `<!doctype html>
<html lang="${lang}"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>${say("now")}</title><style>${style}</style></head><body>
<header><h1>${say("now")}</h1><p>${kept.begun.toLocaleString(lang)} · ${say("report-length", clock(kept.seconds))}</p></header>
<section id="coach"><h2>${say("report-curves")}</h2>${figure.outerHTML}</section>
${table("report-sentences", ["", "", ...heads], [...sentences, ...usual])}
${table("report-nudges", [], nudges)}
</body></html>
`;
}

// A part of the report; cells are HTML.
function table(title, heads, rows) {
  const row = (tag, cells) => `<tr>${cells.map((cell) => `<${tag}>${cell}</${tag}>`).join("")}</tr>`;
  const body = rows.map((cells) => row("td", cells)).join("");
  return `<section><h2>${say(title)}</h2><table>${row("th", heads)}${body || row("td", [say("report-none")])}</table></section>`;
}

function safe(text) {
  return text.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}

page.save.onclick = () => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([report()], { type: "text/html" }));
  link.download = `${say("report-file")}-${kept.begun.toISOString().slice(0, 16).replace(/[T:]/g, "-")}.html`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
};
clear();
