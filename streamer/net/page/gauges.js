// Measures as gauges. In: the last seconds' measures, the baseline. Out: rows with a scale, a value, and what is usual.

import { LEVEL_DBFS, PITCH_HZ, shareOf } from "./curve.js";
import { element, told } from "./view.js";
import { put, say } from "./words.js";

// name in an event -> the word for it, its unit, its scale, digits, and what it is multiplied by to be shown.
export const MEASURES = {
  rate_syllables_per_s: { word: "m-rate", unit: "u-rate", scale: [0, 10], digits: 1 },
  pitch_median_hz: { word: "m-pitch", unit: "u-hz", scale: PITCH_HZ, digits: 0, isLog: true },
  pitch_sd_semitones: { word: "m-movement", unit: "u-semitones", scale: [0, 6], digits: 1 },
  level_dbfs: { word: "m-level", unit: "u-dbfs", scale: LEVEL_DBFS, digits: 0 },
  pause_share: { word: "m-pauses", unit: "u-percent", scale: [0, 60], digits: 0, times: 100 },
};

// As it is read, without its unit; a dash where there is none.
export function shown(name, value) {
  if (value === null || value === undefined) return "–";
  const { digits, times = 1 } = MEASURES[name];
  const text = (times * value).toFixed(digits);
  return text.replace("-", "−");
}

export class Gauges {
  #rows = {};
  #baseline = null;

  constructor(body) {
    for (const [name, { word, unit, scale }] of Object.entries(MEASURES)) {
      const value = element("b", { textContent: "–" });
      const usual = element("small");
      const bar = element("div", { className: "gauge", role: "meter" }, [element("i"), element("s")]);
      bar.dataset.label = word;
      bar.ariaLabel = say(word);
      bar.ariaValueMin = String(scale[0]);
      bar.ariaValueMax = String(scale[1]);
      const figure = element("span", { className: "figure" }, [value, " ", told("span", [unit]), usual]);
      body.append(element("div", { id: `gauge-${name}`, className: "row" }, [told("span", [word]), figure, bar]));
      this.#rows[name] = { value, usual, bar };
    }
  }

  usual(baseline) {
    this.#baseline = baseline;
    for (const [name, { usual, bar }] of Object.entries(this.#rows)) {
      const value = baseline?.[name];
      put(usual, value === undefined ? null : ["usually", shown(name, value)]);
      bar.classList.toggle("known", value !== undefined);
      if (value !== undefined) bar.style.setProperty("--usual", this.#share(name, value));
    }
  }

  show(measures) {
    for (const [name, { value, bar }] of Object.entries(this.#rows)) {
      const found = measures[name] ?? null;
      value.textContent = shown(name, found);
      bar.classList.toggle("on", found !== null);
      bar.style.setProperty("--now", found === null ? 0 : this.#share(name, found));
      bar.ariaValueNow = found === null ? null : shown(name, found).replace("−", "-");
      const usual = this.#baseline?.[name];
      const words = [shown(name, found), say(MEASURES[name].unit), usual === undefined ? "" : say("usually", shown(name, usual))];
      bar.ariaValueText = words.join(" ").trim();
    }
  }

  #share(name, value) {
    const { scale, times = 1, isLog } = MEASURES[name];
    return shareOf(times * value, scale, isLog).toFixed(4);
  }
}
