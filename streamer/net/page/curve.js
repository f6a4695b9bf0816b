// Pitch and loudness over time, on the page and in a report: the inside of an SVG of 600 times 100.

import { MEASURES, shareOf } from "./list.js";

const [WIDTH, HEIGHT] = [600, 100];
const PITCH_HZ = MEASURES.pitch_median_hz.scale;
const LEVEL_DBFS = MEASURES.level_dbfs.scale;

// points: {t, hz or null, level}, one at least. nudges: seconds. baseline: or null. from, end: seconds at the sides.
// The line of the pitch is parted where points are more than `gap` seconds apart.
export function curveOf({ points, nudges, baseline }, from, end, gap) {
  const x = (t) => ((WIDTH * (t - from)) / (end - from)).toFixed(1);
  const pitchY = (hz) => (3 + (0.58 * HEIGHT - 6) * (1 - shareOf(hz, PITCH_HZ, true))).toFixed(1);
  const levelY = (level) => (HEIGHT * (1 - 0.36 * shareOf(level, LEVEL_DBFS))).toFixed(1);
  const levels = points.map(({ t, level }) => `L${x(t)} ${levelY(level)}`).join("");
  const usual = baseline ? [pitchY(baseline.pitch_median_hz), levelY(baseline.level_dbfs)] : [];
  let pitch = "";
  let last = -Infinity;
  for (const { t, hz } of points.filter((point) => point.hz !== null)) {
    pitch += `${t - last <= gap ? "L" : "M"}${x(t)} ${pitchY(hz)}`;
    last = t;
  }
  return [
    `<path class="level" d="M${x(points[0].t)} ${HEIGHT}${levels}L${x(points.at(-1).t)} ${HEIGHT}Z"/>`,
    ...nudges.map((t) => `<path class="nudge" d="M${x(t)} 0V${HEIGHT}"/>`),
    ...usual.map((y) => `<path class="usual" d="M0 ${y}H${WIDTH}"/>`),
    `<path class="pitch" d="${pitch}"/>`,
  ].join("");
}
