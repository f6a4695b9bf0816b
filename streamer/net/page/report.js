// A report of a conversation as one HTML file that needs nothing else.

import { MEASURES, read, shareOf } from "./view.js";
import { clock, languageOf, named, say, told as unitOf } from "./words.js";

const STYLE = `:root{color-scheme:light dark;--ink:#18212b;--muted:#566270;--line:#dfe3e1;--paper:#fff;--accent:#0f766e;--soft:#cfe3df;--warn:#b42318}
@media (prefers-color-scheme:dark){:root{--ink:#e9eef2;--muted:#9dabb9;--line:#2c3641;--paper:#11161b;--accent:#2dd4bf;--soft:#21403d;--warn:#fda29b}}
body{max-width:60rem;margin:0 auto;padding:1.5rem 1rem;font:16px/1.55 system-ui,"PingFang SC","Microsoft YaHei","Noto Sans CJK SC",sans-serif;color:var(--ink);background:var(--paper)}
h1{font-size:1.5rem;margin:0}h2{font-size:1.05rem;margin:2rem 0 .5rem}p{margin:.3rem 0}.muted,caption,figcaption{color:var(--muted);font-size:.9rem}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%}th,td{text-align:left;white-space:nowrap;font-variant-numeric:tabular-nums;padding:.4rem .8rem .4rem 0;border-bottom:1px solid var(--line);vertical-align:top}th{white-space:normal;word-break:keep-all}caption{text-align:left}
audio{width:100%}figure{margin:1rem 0}svg{width:100%;min-width:38rem;height:auto;display:block}
.said{min-width:15rem;white-space:normal;display:inline-block}text{fill:var(--muted);font-size:11px}.pitch{stroke:var(--accent);fill:none;stroke-width:2;stroke-linecap:round;stroke-linejoin:round}.level{fill:var(--soft)}.rate{stroke:var(--ink);fill:none;stroke-width:1.5}
.usual{stroke:var(--muted);stroke-dasharray:4 5}.nudge{stroke:var(--warn)}.axis{stroke:var(--line)}@media print{body{max-width:none}}`;
const WIDTH = 900;
const LEFT = 46;
const GAP_S = 3;
const NUM_TIMES = 6; // of an axis
const MAX_POINTS = 3_600; // of a curve

// kept: what the coach keeps of a conversation, with its baseline. sound: a data URL, or null.
export function reportOf(kept, sound = null) {
  const lang = document.documentElement.lang;
  const when = safe(kept.begun.toLocaleString(lang));
  const player = sound ? `<audio controls src="${sound}" aria-label="${told("playback")}"></audio>` : "";
  const parts = {
    "report-measures": measuresOf(kept),
    "report-curves": curvesOf(kept),
    "report-nudges": nudgesOf(kept),
    "report-sentences": sentencesOf(kept),
  };
  return `<!doctype html>
<html lang="${lang}"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>${told("now")}</title><style>${STYLE}</style></head>
<body><main><h1>${told("now")}</h1>
<p class="muted">${when} · ${told("report-length", clock(kept.seconds))}</p>${player}
${Object.entries(parts).map(([name, part]) => `<h2>${told(name)}</h2>${part}`).join("\n")}
</main></body></html>
`;
}

function measuresOf({ windows, baseline }) {
  const rows = Object.entries(MEASURES).map(([name, { attribute, unit }]) => {
    const [low, median, high] = [0.05, 0.5, 0.95].map((share) => read(name, quantile(windows, name, share)));
    return [safe(named(attribute)), read(name, baseline?.[name]), median, `${low} … ${high}`, safe(unitOf(unit))];
  });
  const heads = ["report-measure", "usual", "report-median", "report-range", "report-unit"].map((name) => told(name));
  return table(heads, rows, `<caption>${told("report-windows")}</caption>`);
}

function nudgesOf({ nudges }) {
  const rows = nudges.map((each) => [clock(each.t_s), safe(each.word), safe(each.why)]);
  return table([told("report-time"), told("report-word"), told("report-why")], rows);
}

function sentencesOf({ sentences }) {
  const rows = sentences.map(({ text, measures, t_s }) => {
    const said = `<span class="said" lang="${languageOf(text)}">${safe(text)}</span>`;
    return [clock(t_s), said, ...Object.keys(MEASURES).map((name) => read(name, measures?.[name]))];
  });
  return table([told("report-time"), told("report-sentence"), ...Object.keys(MEASURES).map(labelOf)], rows);
}

function curvesOf({ points, windows, nudges, seconds, baseline }) {
  const end = Math.max(seconds, 10);
  const drawn = points.filter((_, i) => i % Math.ceil(points.length / MAX_POINTS) === 0);
  const x = (t) => (LEFT + (WIDTH - LEFT) * (t / end)).toFixed(1);
  const times = Array.from({ length: NUM_TIMES }, (_, i) => i * Math.ceil(end / NUM_TIMES)).filter((t) => t < 0.98 * end);
  return [
    plot("pitch_median_hz", [60, 100, 200, 500], (y) => `<path class="pitch" d="${lineOf(drawn, ({ hz }) => hz, x, y)}"/>`),
    plot("level_dbfs", [-60, -40, -20, 0], (y) => `<path class="level" d="${areaOf(drawn, x, y, y(-60))}"/>`),
    plot("rate_syllables_per_s", [0, 5, 10], (y) => {
      return `<path class="rate" d="${lineOf(windows, (each) => each.rate_syllables_per_s, x, y)}"/>`;
    }),
  ].join("");

  function plot(name, values, lines) {
    const y = (value) => (8 + 104 * (1 - shareOf(name, value))).toFixed(1);
    const across = (kind, value) => `<line class="${kind}" x1="${LEFT}" x2="${WIDTH}" y1="${y(value)}" y2="${y(value)}"/>`;
    const text = (at, below, anchor, said) => `<text x="${at}" y="${below}" text-anchor="${anchor}">${said}</text>`;
    const drawing = [
      ...values.map((value) => across("axis", value) + text(LEFT - 6, Number(y(value)) + 4, "end", read(name, value))),
      lines(y),
      baseline ? across("usual", baseline[name]) : "",
      ...nudges.map(({ t_s }) => `<line class="nudge" x1="${x(t_s)}" x2="${x(t_s)}" y1="8" y2="112"/>`),
      ...times.map((t) => text(x(t), 126, t ? "middle" : "start", clock(t))),
    ].join("");
    const label = labelOf(name);
    return `<figure><figcaption>${label}</figcaption><div class="scroll"><svg viewBox="0 0 ${WIDTH} 130" role="img" aria-label="${label}">${drawing}</svg></div></figure>`;
  }
}

// A line through the values of points, parted where there is none, or no point for GAP_S.
export function lineOf(points, of, x, y) {
  let path = "";
  let lastS = -Infinity;
  for (const point of points) {
    const value = of(point);
    if (value !== null) path += `${point.t_s - lastS > GAP_S ? "M" : "L"}${x(point.t_s)} ${y(value)}`;
    lastS = value === null ? -Infinity : point.t_s;
  }
  return path;
}

// The area between the level of each point and the bottom.
export function areaOf(points, x, y, bottom) {
  if (!points.length) return "";
  const [first, last] = [points[0], points.at(-1)].map(({ t_s }) => x(t_s));
  return `M${first} ${bottom}${points.map(({ t_s, level }) => `L${x(t_s)} ${y(level)}`).join("")}L${last} ${bottom}Z`;
}

// The value below which this share of a measure lies; undefined if it is never known.
function quantile(windows, name, share) {
  const values = windows.map((each) => each[name]).filter((value) => value !== null && value !== undefined);
  return values.sort((a, b) => a - b)[Math.round(share * (values.length - 1))];
}

function labelOf(name) {
  const { attribute, unit } = MEASURES[name];
  return told("report-of-unit", named(attribute), unitOf(unit));
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
