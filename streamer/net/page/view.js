// What is on the screen besides the chart. In: words (words.js), texts and numbers. Out: the page's elements.

import { put } from "./words.js";

const MAX_HISTORY = 50;
const METER_EVERY_MS = 50;
const QUICK_S = 1; // to the first words

const at = (id) => document.getElementById(id);

export function element(tag, properties = {}, children = []) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

// An element that says a word, in whatever language.
export function told(tag, word, properties = {}) {
  const made = element(tag, properties);
  put(made, word);
  return made;
}

export class View {
  #meteredAt = 0;
  #finished = null; // the sentence on the screen, once it is whole: [text, facts, warning]
  #numNoted = 0; // rows of the history that are newer than it

  status(...word) {
    put(at("status"), word);
  }

  // A message that stays until it is closed, something else is begun, or it works again.
  problem(...word) {
    put(at("problem"), word);
  }

  noProblem() {
    put(at("problem"), null);
  }

  // Pressed while the microphone is on.
  microphone(isOn) {
    at("mic").setAttribute("aria-pressed", String(isOn));
    put(at("mic-label"), [isOn ? "stop" : "speak"]);
    if (!isOn) this.level(0, true);
  }

  level(share, isForced = false) {
    const now = performance.now();
    if (!isForced && now - this.#meteredAt < METER_EVERY_MS) return;
    this.#meteredAt = now;
    at("talk").style.setProperty("--level", share.toFixed(3));
    at("level").setAttribute("aria-valuenow", String(Math.round(100 * share)));
  }

  // Share of a recording that was sent; null: there is none, and nothing to cancel.
  progress(share) {
    at("sending").hidden = share === null;
    at("progress").value = share ?? 0;
  }

  // Of a turn that is not over: the last sentence stays, greyed and named as such, and the attributes are said to be these.
  soFar(text, heardS) {
    at("so-far").hidden = false;
    at("main").classList.add("so-far");
    put(at("so-far-title"), ["so-far", heardS.toFixed(0)]);
    at("so-far-text").textContent = text;
  }

  // What was heard so far is no more to be seen.
  settled() {
    at("so-far").hidden = true;
    at("main").classList.remove("so-far");
  }

  // A sentence begins: the last one goes to the history. Screen readers wait until it is whole.
  begin() {
    if (this.#finished) this.#remember(...this.#finished);
    this.#finished = null;
    this.#numNoted = 0;
    this.settled();
    at("sentence").setAttribute("aria-busy", "true");
    at("sentence").replaceChildren();
    at("facts").replaceChildren();
    at("warning").textContent = "";
  }

  append(text, isVerified) {
    at("sentence").append(element("span", { className: isVerified ? "verified" : "unverified" }, [text]));
  }

  // facts: words. warning: one line, or null.
  end(text, facts, warning = null) {
    at("sentence").setAttribute("aria-busy", "false");
    at("facts").replaceChildren(...spans(facts));
    at("warning").textContent = warning ?? "";
    this.#finished = [text, facts, warning];
  }

  // A row of the history, of what brought no sentence.
  note(...word) {
    this.#insert(0, [told("p", word)]);
    this.#numNoted += 1;
  }

  #remember(text, facts, warning) {
    const sentence = element("p", { lang: "zh-Hans" }, [text]);
    const last = warning ? [element("p", { className: "facts" }, [warning])] : [];
    this.#insert(this.#numNoted, [sentence, element("p", { className: "facts" }, spans(facts)), ...last]);
  }

  #insert(place, parts) {
    const list = at("history");
    list.insertBefore(element("li", {}, parts), list.children[place] ?? null);
    while (list.children.length > MAX_HISTORY) list.lastChild.remove();
  }
}

// The time to the first words is marked where it is short.
function spans(facts) {
  return facts.map((word) => {
    const isQuick = word[0] === "first" && Number(word[1]) <= QUICK_S;
    return told("span", word, { className: isQuick ? "quick" : "" });
  });
}
