// The list of what was heard: for each attribute a gauge, a number with its unit, and the word of the sentence.
//
// All that it shows at a time is of one time: of a sentence, of a turn so far, or of the last seconds.

import { element, told } from "./view.js";
import { learn, put } from "./words.js";

// name in an event -> its word, unit, scale, digits, and the factor for display.
export const MEASURES = {
  rate_syllables_per_s: { word: "a-rate", unit: "u-rate", scale: [0, 10], digits: 1 },
  pitch_median_hz: { word: "a-pitch", unit: "u-hz", scale: [60, 500], digits: 0, isLog: true },
  pitch_sd_semitones: { word: "a-variation", unit: "u-semitones", scale: [0, 6], digits: 1 },
  level_dbfs: { word: "a-loudness", unit: "u-dbfs", scale: [-60, 0], digits: 0 },
  pause_share: { word: "a-pauses", unit: "u-percent", scale: [0, 60], digits: 0, times: 100 },
};
const TIMBRE = { word: "a-timbre", unit: "u-db", scale: [-30, 10], digits: 1 };
const ROWS = {
  rate: "rate_syllables_per_s",
  pitch: "pitch_median_hz",
  variation: "pitch_sd_semitones",
  loudness: "level_dbfs",
  pauses: "pause_share",
  timbre: "timbre_db",
  arousal: null,
};
const FORMS = { ...MEASURES, timbre_db: TIMBRE };

// 0 to 1 between the bounds; pitch by octaves.
export function shareOf(value, [low, high], isLog = false) {
  const share = isLog ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
  return Math.max(0, Math.min(1, share));
}

// A measure as it is read, without its unit; a dash if there is none.
export function shown(name, value) {
  if (value === null || value === undefined) return "–";
  const { digits, times = 1 } = FORMS[name];
  return (times * value).toFixed(digits).replace("-", "−");
}

function gaugeShare(name, value) {
  const { scale, times = 1, isLog } = FORMS[name];
  return shareOf(times * value, scale, isLog).toFixed(4);
}

export class List {
  #rows = {};
  #levels;
  #baseline = null;
  #said = [{}, null]; // levels and measures of the last sentence
  #measures = null; // as they are shown
  drawn = () => {}; // called after each change

  // found: the server's attributes.json, attribute -> names of its levels by language, null where one is unknown.
  constructor(body, found) {
    this.#levels = found;
    for (const [attribute, name] of Object.entries(ROWS)) {
      (found[attribute] ?? []).forEach((names, i) => {
        learn(`l-${attribute}-${i}`, names.en ?? "", names.zh ?? Object.values(names).find(Boolean) ?? "");
      });
      const number = element("b");
      const usual = element("small");
      const unit = name === null ? element("span") : told("span", [FORMS[name].unit]);
      const word = element("span", { className: "word" });
      const gauge = element("div", { className: "gauge", ariaHidden: "true" }, [element("i"), element("s")]);
      const figure = element("span", { className: "figure" }, [number, " ", unit, usual]);
      const title = told("span", [`a-${attribute}`], { className: "name" });
      const item = element("li", { id: `attribute-${attribute}` }, [title, figure, word, gauge]);
      body.append(item);
      this.#rows[attribute] = { item, name, number, unit, usual, word, gauge };
    }
    this.show({}, null);
  }

  // The values of a sentence; measures: null while it is being written.
  show(levels, measures) {
    this.#said = [levels, measures];
    this.#draw(levels, measures);
    put(document.getElementById("list-title"), ["of-sentence"]);
  }

  // The values of the turn so far.
  showSoFar(levels, measures, seconds) {
    this.#draw(levels, measures);
    put(document.getElementById("list-title"), ["so-far", seconds]);
  }

  // Measures of the last seconds, beside what is usual.
  showNow(measures) {
    this.#draw({}, measures, true);
    put(document.getElementById("list-title"), ["of-now"]);
  }

  // The last sentence again.
  back() {
    this.show(...this.#said);
  }

  usual(baseline) {
    this.#baseline = baseline;
  }

  // The value that is shown of a measure; null if there is none.
  value(name) {
    return name in MEASURES ? (this.#measures?.[name] ?? null) : null;
  }

  // isNow: of the last seconds. Only beside them stand the usual pauses, which are with the silence between turns.
  #draw(levels, measures, isNow = false) {
    this.#measures = measures;
    for (const [attribute, row] of Object.entries(this.#rows)) {
      const value = (row.name && measures?.[row.name]) ?? null;
      const isUsualKnown = row.name && measures && (isNow || row.name !== "pause_share");
      const usual = (isUsualKnown && this.#baseline?.[row.name]) || null;
      const level = levels[attribute] ?? null;
      row.item.dataset.level = level ?? "";
      row.number.textContent = value === null ? "" : shown(row.name, value);
      row.unit.hidden = value === null;
      put(row.usual, usual === null ? null : ["usually", shown(row.name, usual)]);
      put(row.word, level === null ? null : [`l-${attribute}-${level}`]);
      row.gauge.classList.toggle("known", usual !== null);
      if (usual !== null) row.gauge.style.setProperty("--usual", gaugeShare(row.name, usual));
      row.gauge.style.setProperty("--now", value === null ? this.#place(attribute, level) : gaugeShare(row.name, value));
    }
    this.drawn();
  }

  // The gauge of a level without a number: the middle of its part.
  #place(attribute, level) {
    return level === null ? 0 : ((level + 0.5) / this.#levels[attribute].length).toFixed(4);
  }
}
