// A report of a session as one HTML file that needs nothing else.

import { curveOf } from "./curve.js";
import { MEASURES, shown } from "./list.js";
import { languageOf } from "./view.js";
import { say } from "./words.js";

const STYLE = `:root{color-scheme:light dark;--ink:#18212b;--muted:#566270;--line:#dfe3e1;--paper:#fff;--accent:#0f766e;--soft:#cfe3df;--warn:#b42318}
@media (prefers-color-scheme:dark){:root{--ink:#e9eef2;--muted:#9dabb9;--line:#2c3641;--paper:#11161b;--accent:#2dd4bf;--soft:#21403d;--warn:#fda29b}}
body{max-width:60rem;margin:0 auto;padding:1.5rem 1rem;font:16px/1.55 system-ui,"PingFang SC","Microsoft YaHei","Noto Sans CJK SC",sans-serif;color:var(--ink);background:var(--paper)}
h1{font-size:1.5rem;margin:0}h2{font-size:1.05rem;margin:2rem 0 .5rem}p{margin:.3rem 0}.muted,caption,figcaption{color:var(--muted);font-size:.9rem}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%}th,td{text-align:left;white-space:nowrap;font-variant-numeric:tabular-nums;padding:.4rem .8rem .4rem 0;border-bottom:1px solid var(--line);vertical-align:top}th{white-space:normal;word-break:keep-all}caption{text-align:left}
figure{margin:1rem 0}svg{width:100%;min-width:38rem;height:8rem;display:block}.said{min-width:15rem;white-space:normal;display:inline-block}
path{fill:none;vector-effect:non-scaling-stroke}.pitch{stroke:var(--accent);stroke-width:2;stroke-linecap:round;stroke-linejoin:round}
path.level{fill:var(--soft)}.usual{stroke:var(--muted);stroke-dasharray:4 5}.nudge{stroke:var(--warn)}@media print{body{max-width:none}}`;
const ROW_S = 0.2; // of kept.rows

// kept: {begun, seconds, rows, windows, nudges, sentences, baseline}.
export function reportOf(kept) {
  const { begun, seconds, baseline } = kept;
  const when = begun.toLocaleString(document.documentElement.lang);
  const parts = [
    `<h1>${told("report-title")}</h1><p class="muted">${safe(when)} · ${told("report-length", clock(seconds))}</p>`,
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

function curvesOf({ rows, nudges, seconds, baseline }) {
  if (!rows.length) return "";
  const [from, end] = [rows[0].t, Math.max(seconds, rows[0].t + 10)];
  const drawn = curveOf({ points: rows, nudges: nudges.map(({ t_s: t }) => t), baseline }, from, end, 1.5 * ROW_S);
  const scales = ["pitch_median_hz", "level_dbfs"].map((name) => {
    const { word, unit, scale } = MEASURES[name];
    return `${told("report-of-unit", [word], [unit])}: ${scale.join(" … ").replace("-", "−")}`;
  });
  const caption = [...scales, `${clock(from)} … ${clock(end)}`].join(" · ");
  const svg = `<svg viewBox="0 0 600 100" preserveAspectRatio="none" role="img" aria-label="${caption}">${drawn}</svg>`;
  return `<figure><div class="scroll">${svg}</div><figcaption>${caption}</figcaption></figure>`;
}

// Why: the value, its unit, and what is usual.
function whyOf({ measure, value, usual }) {
  if (!(measure in MEASURES)) return [`nudge-${measure}`, value.toFixed(0)];
  return ["nudge-measure", shown(measure, value), [MEASURES[measure].unit], shown(measure, usual)];
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
