// A report of a session as one HTML file that needs nothing else.

import { whyOf } from "./coach.js";
import { MEASURES, read, shareOf } from "./list.js";
import { clock, languageOf, say } from "./words.js";

const STYLE = `:root{color-scheme:light dark;--ink:#18212b;--muted:#566270;--line:#dfe3e1;--paper:#fff;--accent:#0f766e;--soft:#cfe3df;--warn:#b42318}
@media (prefers-color-scheme:dark){:root{--ink:#e9eef2;--muted:#9dabb9;--line:#2c3641;--paper:#11161b;--accent:#2dd4bf;--soft:#21403d;--warn:#fda29b}}
body{max-width:60rem;margin:0 auto;padding:1.5rem 1rem;font:16px/1.55 system-ui,"PingFang SC","Microsoft YaHei","Noto Sans CJK SC",sans-serif;color:var(--ink);background:var(--paper)}
h1{font-size:1.5rem;margin:0}h2{font-size:1.05rem;margin:2rem 0 .5rem}p{margin:.3rem 0}.muted,caption,figcaption{color:var(--muted);font-size:.9rem}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%}th,td{text-align:left;white-space:nowrap;font-variant-numeric:tabular-nums;padding:.4rem .8rem .4rem 0;border-bottom:1px solid var(--line);vertical-align:top}th{white-space:normal;word-break:keep-all}caption{text-align:left}
.headline{font-size:1.2rem}audio{width:100%}figure{margin:1rem 0}svg{width:100%;min-width:38rem;height:auto;display:block}
.said{min-width:15rem;white-space:normal;display:inline-block}text{fill:var(--muted);font-size:11px}.pitch{stroke:var(--accent);fill:none;stroke-width:2;stroke-linecap:round;stroke-linejoin:round}.level{fill:var(--soft)}.rate{stroke:var(--ink);fill:none;stroke-width:1.5}
.usual{stroke:var(--muted);stroke-dasharray:4 5}.nudge{stroke:var(--warn)}.axis{stroke:var(--line)}@media print{body{max-width:none}}`;
const WIDTH = 900;
const LEFT = 46;
const MAX_POINTS = 3_600;
const GAP_S = 3;
const STEPS_S = [2, 5, 10, 15, 30, 60, 120, 300, 600, 900];

// kept: {begun, seconds, points, windows, nudges, sentences, baseline}. sound: a data URL, or null.
export function reportOf(kept, sound = null) {
  const lang = document.documentElement.lang;
  const when = safe(kept.begun.toLocaleString(lang));
  const player = sound ? `<audio controls src="${sound}" aria-label="${told("playback")}"></audio>` : "";
  const how = ["report-how-1", "report-how-2", kept.baseline ? "report-how-3" : "report-how-4"];
  const parts = {
    "report-measures": measuresOf(kept),
    "report-curves": curvesOf(kept),
    "report-nudges": nudgesOf(kept),
    "report-sentences": sentencesOf(kept),
    "report-how": how.map((name) => `<p>${told(name)}</p>`).join(""),
  };
  return `<!doctype html>
<html lang="${lang}"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>${told("now")}</title><style>${STYLE}</style></head>
<body><main><h1>${told("now")}</h1>${headlineOf(kept)}
<p class="muted">${when} · ${told("report-length", clock(kept.seconds))}</p>${player}
${Object.entries(parts).map(([name, part]) => `<h2>${told(name)}</h2>${part}`).join("\n")}
</main></body></html>
`;
}

// How the pace of the last third compares with what is usual, or with the first third.
function headlineOf({ windows, seconds, baseline }) {
  const name = "rate_syllables_per_s";
  const pace = (from, to) => quantile(valuesOf(name, windows.filter(({ t }) => t >= from * seconds && t <= to * seconds)), 0.5);
  const [usual, end] = [baseline?.[name] ?? pace(0, 1 / 3), pace(2 / 3, 1)];
  if (!usual || !end) return "";
  const times = end / usual;
  const isSteady = times > 0.85 && times < 1.15;
  const word = isSteady ? ["report-steady"] : [baseline ? "report-pace" : "report-pace-began", times.toFixed(1)];
  return `<p class="headline">${told(...word)}</p>`;
}

function valuesOf(name, windows) {
  return windows.map((each) => each[name]).filter((value) => value !== null && value !== undefined);
}

function measuresOf({ windows, baseline }) {
  const rows = Object.entries(MEASURES).map(([name, { attribute, unit }]) => {
    const values = valuesOf(name, windows);
    const [low, median, high] = [0.05, 0.5, 0.95].map((share) => read(name, quantile(values, share)));
    return [told("named", attribute), read(name, baseline?.[name]), median, values.length ? `${low} … ${high}` : "–", told("told", unit)];
  });
  const heads = ["report-measure", "usual", "report-median", "report-range", "report-unit"].map((name) => told(name));
  return table(heads, rows, `<caption>${told("report-windows")}</caption>`);
}

function nudgesOf({ nudges }) {
  const rows = nudges.map((each) => [clock(each.t), told(`nudge-${each.kind}`), told(...whyOf(each))]);
  return table([told("report-time"), told("report-word"), told("report-why")], rows);
}

function sentencesOf({ sentences }) {
  const heads = Object.values(MEASURES).map(({ attribute, unit }) => told("report-of-unit", ["named", attribute], ["told", unit]));
  const rows = sentences.map(({ text, measures, t }) => {
    const said = `<span class="said" lang="${languageOf(text)}">${safe(text)}</span>`;
    return [clock(t), said, ...Object.keys(MEASURES).map((name) => read(name, measures?.[name]))];
  });
  return table([told("report-time"), told("report-sentence"), ...heads], rows);
}

function curvesOf({ points, windows, nudges, seconds, baseline }) {
  const end = Math.max(seconds, 10);
  const x = (t) => (LEFT + (WIDTH - LEFT) * (t / end)).toFixed(1);
  const every = Math.ceil(points.length / MAX_POINTS);
  const drawn = points.filter((_, i) => i % every === 0);
  const pitches = drawn.map(({ t, hz }) => [t, hz]);
  const rates = windows.map(({ t, rate_syllables_per_s: rate }) => [t, rate]);
  return [
    plot("pitch_median_hz", [100, 200], (y) => `<path class="pitch" d="${lineOf(pitches, x, y)}"/>`),
    plot("level_dbfs", [-40, -20], (y) => `<path class="level" d="${areaOf(drawn, x, y, y(-60))}"/>`),
    plot("rate_syllables_per_s", [5], (y) => `<path class="rate" d="${lineOf(rates, x, y)}"/>`),
  ].join("");

  function plot(name, between, lines) {
    const { attribute, unit, scale, isLog } = MEASURES[name];
    const y = (value) => (8 + 104 * (1 - shareOf(value, scale, isLog))).toFixed(1);
    const across = (kind, value) => `<line class="${kind}" x1="${LEFT}" x2="${WIDTH}" y1="${y(value)}" y2="${y(value)}"/>`;
    const marks = nudges.map(({ t, kind }) => `<line class="nudge" x1="${x(t)}" x2="${x(t)}" y1="8" y2="112"><title>${clock(t)} ${told(`nudge-${kind}`)}</title></line>`);
    const sides = [...scale, ...between].map((value) => `${across("axis", value)}<text x="${LEFT - 6}" y="${Number(y(value)) + 4}" text-anchor="end">${String(value).replace("-", "−")}</text>`);
    const times = timesUpTo(end).map((t) => `<text x="${x(t)}" y="126" text-anchor="${t ? "middle" : "start"}">${clock(t)}</text>`);
    const usual = baseline ? across("usual", baseline[name]) : "";
    const label = told("report-of-unit", ["named", attribute], ["told", unit]);
    const drawing = [...sides, lines(y), usual, ...marks, ...times].join("");
    return `<figure><figcaption>${label}</figcaption><div class="scroll"><svg viewBox="0 0 ${WIDTH} 130" role="img" aria-label="${label}">${drawing}</svg></div></figure>`;
  }
}

// Round times for an axis, 3 to 8 of them, none where its text would be cut off.
function timesUpTo(end) {
  const step = STEPS_S.find((each) => end / each <= 7) ?? 900 * Math.ceil(end / 6_300);
  return Array.from({ length: Math.floor((0.98 * end) / step) + 1 }, (_, i) => i * step);
}

// A line through [t, value], parted where there is no value, or none for GAP_S.
export function lineOf(points, x, y) {
  let path = "";
  let lastT = -Infinity;
  for (const [t, value] of points) {
    if (value !== null) path += `${t - lastT > GAP_S ? "M" : "L"}${x(t)} ${y(value)}`;
    lastT = value === null ? -Infinity : t;
  }
  return path;
}

// The area between the level of each point and the bottom.
export function areaOf(points, x, y, bottom) {
  if (!points.length) return "";
  const [first, last] = [points[0], points.at(-1)].map(({ t }) => x(t));
  return `M${first} ${bottom}${points.map(({ t, level }) => `L${x(t)} ${y(level)}`).join("")}L${last} ${bottom}Z`;
}

function quantile(values, share) {
  return [...values].sort((a, b) => a - b)[Math.round(share * (values.length - 1))];
}

function table(heads, rows, caption = "") {
  if (!rows.length) return `<p class="muted">${told("report-none")}</p>`;
  const row = (tag, cells) => `<tr>${cells.map((cell) => `<${tag}>${cell}</${tag}>`).join("")}</tr>`;
  const body = rows.map((cells) => row("td", cells)).join("");
  return `<div class="scroll"><table>${caption}<thead>${row("th", heads)}</thead><tbody>${body}</tbody></table></div>`;
}

// A word, fit for HTML.
function told(...word) {
  return safe(say(...word));
}

function safe(text) {
  return String(text).replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}
