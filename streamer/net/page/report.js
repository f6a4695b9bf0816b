// A curve of a conversation, and a report of it as one HTML file that needs nothing else. Both take what the coach keeps:
// {begun, seconds, points, nudges, sentences, baseline}.

import { MEASURES, read, shareOf } from "./list.js";
import { page } from "./view.js";
import { clock, languageOf, named, say, told } from "./words.js";

const [WIDTH, HEIGHT] = [600, 100]; // of the curve, as index.html has them
const GAP_S = 3;
const MAX_POINTS = 3_600; // of a curve

// Pitch and level from `begin` to `end`, in seconds of the conversation, as the inside of an SVG.
export function curveOf({ points, nudges, baseline }, begin, end) {
  const inside = points.filter(({ t_s }) => t_s > begin);
  const drawn = inside.filter((_, i) => i % Math.ceil(inside.length / MAX_POINTS) === 0);
  const x = (t) => (WIDTH * ((t - begin) / (end - begin))).toFixed(1);
  const pitchY = (hz) => (3 + (0.58 * HEIGHT - 6) * (1 - shareOf("pitch_median_hz", hz))).toFixed(1);
  const levelY = (level) => (HEIGHT * (1 - 0.36 * shareOf("level_dbfs", level))).toFixed(1);
  const usual = baseline ? [pitchY(baseline.pitch_median_hz), levelY(baseline.level_dbfs)] : [];
  const area = drawn.map(({ t_s, level }) => `L${x(t_s)} ${levelY(level)}`).join("");
  const [first, last] = [drawn[0], drawn.at(-1)].map((point) => x(point?.t_s ?? begin));
  return [
    `<path class="level" d="M${first} ${HEIGHT}${area}L${last} ${HEIGHT}Z"/>`,
    ...nudges.map(({ t_s }) => `<path class="nudge" d="M${x(t_s)} 0V${HEIGHT}"/>`),
    ...usual.map((y) => `<path class="usual" d="M0 ${y}H${WIDTH}"/>`),
    `<path class="pitch" d="${pitchLine(drawn, x, pitchY)}"/>`,
  ].join("");
}

// A line, parted where there is no pitch, or no point for GAP_S.
function pitchLine(points, x, y) {
  let path = "";
  let lastS = -Infinity;
  for (const { hz, t_s } of points) {
    if (hz !== null) path += `${t_s - lastS > GAP_S ? "M" : "L"}${x(t_s)} ${y(hz)}`;
    lastS = hz === null ? -Infinity : t_s;
  }
  return path;
}

// With the page's own style and figure.
export function reportOf(kept) {
  const lang = document.documentElement.lang;
  const style = [...document.styleSheets[0].cssRules].map((rule) => rule.cssText).join("\n");
  const figure = page.curve.closest("figure").cloneNode(true);
  figure.querySelector("svg").innerHTML = curveOf(kept, 0, kept.seconds);
  const numbersOf = (measures) => Object.keys(MEASURES).map((name) => read(name, measures?.[name]));
  const heads = Object.values(MEASURES).map(({ attribute, unit }) => safe(`${named(attribute)}, ${told(unit)}`));
  const usual = kept.baseline ? [["", safe(say("usual")), ...numbersOf(kept.baseline)]] : [];
  const sentences = kept.sentences.map(({ text, measures, t_s }) => {
    return [clock(t_s), `<span lang="${languageOf(text)}">${safe(text)}</span>`, ...numbersOf(measures)];
  });
  const nudges = kept.nudges.map(({ t_s, word, why }) => [clock(t_s), safe(word), safe(why)]);
  return `<!doctype html>
<html lang="${lang}"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>${say("now")}</title><style>${style}</style></head><body>
<header><h1>${say("now")}</h1><p>${safe(kept.begun.toLocaleString(lang))} · ${say("report-length", clock(kept.seconds))}</p></header>
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
