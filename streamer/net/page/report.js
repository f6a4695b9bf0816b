// A report of a session as one HTML file that needs nothing else.

import { MEASURES, shareOf, shown } from "./list.js";
import { whyOf } from "./coach.js";
import { languageOf } from "./view.js";
import { say } from "./words.js";

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
const MAX_POINTS = 1_200;
const STEPS_S = [2, 5, 10, 15, 30, 60, 120, 300, 600, 900];
const PITCH_HZ = MEASURES.pitch_median_hz.scale;
const LEVEL_DBFS = MEASURES.level_dbfs.scale;

// kept: {begun, seconds, rows, windows, nudges, sentences, baseline}. sound: a data URL, or null.
export function reportOf(kept, sound = null) {
  const { begun, seconds, baseline } = kept;
  const when = begun.toLocaleString(document.documentElement.lang);
  const parts = [
    `<h1>${told("report-title")}</h1>${headlineOf(kept)}<p class="muted">${safe(when)} · ${told("report-length", clock(seconds))}</p>${sound ? `<audio controls src="${sound}" aria-label="${told("playback")}"></audio>` : ""}`,
    `<h2>${told("report-measures")}</h2>${measuresOf(kept)}`,
    `<h2>${told("report-curves")}</h2>${curvesOf(kept)}`,
    `<h2>${told("report-nudges")}</h2>${nudgesOf(kept)}`,
    `<h2>${told("report-sentences")}</h2>${sentencesOf(kept)}`,
    `<h2>${told("report-how")}</h2><p>${told("report-how-1")}</p><p>${told("report-how-2")}</p><p>${told(baseline ? "report-how-3" : "report-how-4")}</p>`,
  ];
  const lang = document.documentElement.lang;
  return `<!doctype html>
<html lang="${lang}"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>${told("report-title")}</title><style>${STYLE}</style></head>
<body><main>${parts.join("\n")}</main></body></html>
`;
}

// How the pace of the last third compares with what is usual, or with the first third.
function headlineOf({ windows, seconds, baseline }) {
  const pace = (from, to) =>
    quantile(
      windows.filter((each) => each.rate_syllables_per_s && each.t >= from * seconds && each.t <= to * seconds).map((each) => each.rate_syllables_per_s),
      0.5,
    );
  const [usual, end] = [baseline?.rate_syllables_per_s ?? pace(0, 1 / 3), pace(2 / 3, 1)];
  if (!usual || !end) return "";
  const times = end / usual;
  const isSteady = times > 0.85 && times < 1.15;
  const word = isSteady ? ["report-steady"] : [baseline ? "report-pace" : "report-pace-began", times.toFixed(1)];
  return `<p class="headline">${told(...word)}</p>`;
}

function measuresOf({ windows, baseline }) {
  const head = row("th", [told("report-measure"), told("report-usual"), told("report-median"), told("report-range"), told("report-unit")]);
  const rows = Object.entries(MEASURES).map(([name, { word, unit }]) => {
    const values = windows.map((each) => each[name]).filter((value) => value !== null && value !== undefined);
    const cells = [baseline?.[name], quantile(values, 0.5)].map((value) => shown(name, value));
    const range = values.length ? `${shown(name, quantile(values, 0.05))} … ${shown(name, quantile(values, 0.95))}` : "–";
    return row("td", [told(word), ...cells, range, told(unit)]);
  });
  return table(told("report-windows"), head, rows);
}

function nudgesOf({ nudges }) {
  if (!nudges.length) return `<p class="muted">${told("report-no-nudge")}</p>`;
  const head = row("th", [told("report-time"), told("report-word"), told("report-why")]);
  return table("", head, nudges.map((each) => row("td", [clock(each.t_s), told(`nudge-${each.kind}`), told(...whyOf(each))])));
}

function sentencesOf({ sentences }) {
  if (!sentences.length) return `<p class="muted">${told("report-no-sentence")}</p>`;
  const names = Object.keys(MEASURES);
  const heads = names.map((name) => told("report-of-unit", [MEASURES[name].word], [MEASURES[name].unit]));
  const rows = sentences.map(({ text, measures, atS }) => {
    const said = `<span class="said" lang="${languageOf(text)}">${safe(text)}</span>`;
    return row("td", [clock(atS), said, ...names.map((name) => shown(name, measures?.[name]))]);
  });
  return table("", row("th", [told("report-time"), told("report-sentence"), ...heads]), rows);
}

function curvesOf({ rows, windows, nudges, seconds, baseline }) {
  const end = Math.max(seconds, 10);
  const x = (t) => (LEFT + (WIDTH - LEFT) * (t / end)).toFixed(1);
  const every = Math.max(1, Math.ceil(rows.length / MAX_POINTS));
  const points = rows.filter((_, i) => i % every === 0);
  const gap = every * (rows.length > 1 ? rows[1].t - rows[0].t : 0.05) * 1.5;
  return [
    plot("a-pitch", "u-hz", PITCH_HZ, [100, 200], true, baseline?.pitch_median_hz, (y) =>
      `<path class="pitch" d="${broken(points.map(({ t, hz }) => (hz === null ? null : [t, hz])), x, y, gap)}"/>`),
    plot("a-loudness", "u-dbfs", LEVEL_DBFS, [-40, -20], false, baseline?.level_dbfs, (y) =>
      points.length ? `<path class="level" d="M${x(points[0].t)} ${y(LEVEL_DBFS[0])}${points.map(({ t, level }) => `L${x(t)} ${y(level)}`).join("")}L${x(points.at(-1).t)} ${y(LEVEL_DBFS[0])}Z"/>` : ""),
    plot("a-rate", "u-rate", [0, 10], [5], false, baseline?.rate_syllables_per_s, (y) =>
      `<path class="rate" d="${broken(windows.map((each) => (each.rate_syllables_per_s === null ? null : [each.t, each.rate_syllables_per_s])), x, y, 3)}"/>`),
  ].join("");

  function plot(name, unit, scale, between, isLog, usual, drawn) {
    const y = (value) => (8 + 104 * (1 - shareOf(value, scale, isLog))).toFixed(1);
    const marks = nudges.map(({ t_s: t, kind }) => `<line class="nudge" x1="${x(t)}" x2="${x(t)}" y1="8" y2="112"><title>${clock(t)} ${told(`nudge-${kind}`)}</title></line>`);
    const level = usual === undefined ? "" : `<line class="usual" x1="${LEFT}" x2="${WIDTH}" y1="${y(usual)}" y2="${y(usual)}"/>`;
    const sides = [...scale, ...between].map((value) => `<line class="axis" x1="${LEFT}" x2="${WIDTH}" y1="${y(value)}" y2="${y(value)}"/><text x="${LEFT - 6}" y="${Number(y(value)) + 4}" text-anchor="end">${String(value).replace("-", "−")}</text>`);
    const times = timesUpTo(end).map((t) => `<text x="${x(t)}" y="126" text-anchor="${t ? "middle" : "start"}">${clock(t)}</text>`);
    const label = told("report-of-unit", [name], [unit]);
    return `<figure><figcaption>${label}</figcaption><div class="scroll"><svg viewBox="0 0 ${WIDTH} 130" role="img" aria-label="${label}">${sides.join("")}${drawn(y)}${level}${marks.join("")}${times.join("")}</svg></div></figure>`;
  }
}

// Round times for an axis, 3 to 8 of them, none where its text would be cut off.
function timesUpTo(end) {
  const step = STEPS_S.find((each) => end / each <= 7) ?? 900 * Math.ceil(end / 6_300);
  return Array.from({ length: Math.floor((0.98 * end) / step) + 1 }, (_, i) => i * step);
}

// A line through points [t, value], parted where one is null or far from the last.
export function broken(points, x, y, gap) {
  let last = null;
  let path = "";
  for (const point of points) {
    if (point) path += `${last !== null && point[0] - last <= gap ? "L" : "M"}${x(point[0])} ${y(point[1])}`;
    last = point ? point[0] : null;
  }
  return path;
}

function quantile(values, share) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.round(share * (sorted.length - 1))];
}

function table(caption, head, rows) {
  const named = caption ? `<caption>${caption}</caption>` : "";
  return `<div class="scroll"><table>${named}<thead>${head}</thead><tbody>${rows.join("")}</tbody></table></div>`;
}

function row(tag, cells) {
  return `<tr>${cells.map((cell) => `<${tag}>${cell}</${tag}>`).join("")}</tr>`;
}

// A word, fit for HTML.
function told(...word) {
  return safe(say(...word));
}

function safe(text) {
  return String(text).replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}

// 75.2 seconds -> 1:15
function clock(seconds) {
  const whole = Math.floor(seconds);
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`;
}
