// The seven attributes as seven rows. In: their names and levels; attribute -> level or null. Out: a table.

import { element, told } from "./view.js";

export class Chart {
  #rows = {};
  #attributes;
  #said = {}; // the levels of the last sentence

  constructor(body, attributes) {
    this.#attributes = attributes;
    for (const [attribute, { chinese, english, levels }] of Object.entries(attributes)) {
      const bars = element("div", { className: "bars" });
      bars.append(...levels.map(() => element("i")));
      const name = element("td", { className: "level" });
      const title = element("th", { scope: "row" }, [element("span", { lang: "zh-Hans" }, [chinese]), inEnglish(english)]);
      const middle = element("td", { ariaHidden: "true" }, [bars]);
      body.append(element("tr", { id: `attribute-${attribute}` }, [title, middle, name]));
      this.#rows[attribute] = { bars, name };
    }
  }

  // Of a sentence.
  show(levels) {
    this.#said = levels;
    this.#draw(levels);
  }

  // Of what was heard so far; `back` to the last sentence.
  showSoFar(levels) {
    this.#draw(levels);
  }

  back() {
    this.#draw(this.#said);
  }

  #draw(levels) {
    for (const [attribute, { bars, name }] of Object.entries(this.#rows)) {
      const level = levels[attribute] ?? null;
      [...bars.children].forEach((bar, i) => bar.classList.toggle("on", level !== null && i <= level));
      name.replaceChildren(...this.#nameOf(attribute, level));
    }
  }

  #nameOf(attribute, level) {
    if (level === null) return ["–"];
    const { levels } = this.#attributes[attribute];
    const { chinese, english } = levels[level] ?? { chinese: "", english: "" };
    const place = told("small", ["level", level, levels.length - 1], { className: "sr-only" });
    return [element("span", { lang: "zh-Hans" }, [chinese]), inEnglish(english), place];
  }
}

// Hidden where the page speaks Chinese.
function inEnglish(text) {
  return element("span", { className: "english" }, [` ${text}`]);
}
