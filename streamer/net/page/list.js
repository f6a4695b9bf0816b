// The list of what was heard: for each attribute a gauge, a number with its unit, and the word of the sentence.
//
// All that it shows at a time is of one time: of a sentence, of a turn so far, or of the last seconds.

import { language, named, put, say, told } from "./words.js";

// name in an event -> its attribute, unit, scale, digits, and the factor for display.
export const MEASURES = {
  rate_syllables_per_s: { attribute: "rate", unit: "syllables/s", scale: [0, 10], digits: 1 },
  pitch_median_hz: { attribute: "pitch", unit: "Hz", scale: [60, 500], digits: 0, isLog: true },
  pitch_sd_semitones: { attribute: "variation", unit: "semitones", scale: [0, 6], digits: 1 },
  level_dbfs: { attribute: "loudness", unit: "dBFS", scale: [-60, 0], digits: 0 },
  pause_share: { attribute: "pauses", unit: "%", scale: [0, 60], digits: 0, times: 100 },
};
const ROWS = {
  ...MEASURES,
  timbre_db: { attribute: "timbre", unit: "dB", scale: [-30, 10], digits: 1 },
  arousal: { attribute: "arousal", unit: "" }, // it has no number
};
const ROW = `<span class="name"></span><span class="figure"><b></b> <span class="unit"></span><small></small></span>
  <span class="word"></span><div class="gauge" aria-hidden="true"><i></i><s></s></div>`;

let levelNames = {}; // attribute -> names of its levels by language
let baseline = null;

// Where a value stands on its measure's scale, 0 to 1; pitch by octaves.
export function shareOf(name, value) {
  const { scale: [low, high], times = 1, isLog } = ROWS[name];
  const share = isLog ? Math.log(value / low) / Math.log(high / low) : (times * value - low) / (high - low);
  return Math.max(0, Math.min(1, share));
}

// A measure as it is read, without its unit; a dash if there is none.
export function read(name, value) {
  if (value === null || value === undefined) return "–";
  const { digits, times = 1 } = ROWS[name];
  return (times * value).toFixed(digits).replace("-", "−");
}

// found: the server's attributes.json, attribute -> names of its levels by language, null where one is unknown.
export function buildList(list, found) {
  levelNames = found;
  for (const { attribute, unit } of Object.values(ROWS)) {
    const row = document.createElement("li");
    row.id = `attribute-${attribute}`;
    row.innerHTML = ROW;
    put(row.querySelector(".name"), named(attribute));
    put(row.querySelector(".unit"), told(unit));
    list.append(row);
  }
}

// The usual values of the speaker, or null.
export function compareWith(usual) {
  baseline = usual;
}

// isNow: of the last seconds. Only beside them stand the usual pauses, which are with the silence between turns.
export function drawList(levels, measures, isNow) {
  for (const [name, { attribute }] of Object.entries(ROWS)) {
    const isUsualKnown = measures && (isNow || name !== "pause_share");
    const usual = (isUsualKnown && baseline?.[name]) || null;
    drawRow(name, attribute, levels[attribute] ?? null, measures?.[name] ?? null, usual);
  }
}

function drawRow(name, attribute, level, value, usual) {
  const row = document.getElementById(`attribute-${attribute}`);
  const part = (selector) => row.querySelector(selector);
  row.dataset.level = level ?? "";
  part("b").textContent = value === null ? "" : read(name, value);
  part(".unit").hidden = value === null;
  put(part("small"), usual === null ? "" : say("usually", read(name, usual)));
  const names = levelNames[attribute]?.[level] ?? {};
  put(part(".word"), names[language] ?? Object.values(names).find(Boolean) ?? "");
  const gauge = part(".gauge");
  gauge.classList.toggle("known", usual !== null);
  if (usual !== null) gauge.style.setProperty("--usual", shareOf(name, usual));
  // of a level without a number: the middle of its part
  const place = level === null ? 0 : (level + 0.5) / levelNames[attribute].length;
  gauge.style.setProperty("--now", value === null ? place : shareOf(name, value));
}
