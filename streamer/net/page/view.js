// The page's elements besides the list: status, problems, the sentence, the history.

import { put } from "./words.js";

const MAX_HISTORY = 50;
const METER_EVERY_MS = 50;
const MAX_PROBLEMS = 5; // shown at once

const at = (id) => document.getElementById(id);

export function element(tag, properties = {}, children = []) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

// An element with a word, in the language in force.
export function told(tag, word, properties = {}) {
  const made = element(tag, properties);
  put(made, word);
  return made;
}

export class View {
  #meteredAt = 0;
  #played = null;
  #finished = null; // the whole sentence on the screen: [text, facts, warning]

  status(...word) {
    put(at("status"), word);
  }

  // A message that stays until it is closed, something else begins, or all works again.
  problem(...word) {
    at("problem").replaceChildren(told("p", word));
  }

  // A further one, of another recording.
  addProblem(...word) {
    at("problem").append(told("p", word));
    while (at("problem").children.length > MAX_PROBLEMS) at("problem").firstChild.remove();
  }

  noProblem() {
    at("problem").replaceChildren();
  }

  // The server wants a key: its field is shown and takes the focus.
  askKey() {
    at("key-row").hidden = false;
    at("settings").open = true;
    at("key").focus();
  }

  // The button, pressed while the microphone is on.
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

  // The share of a recording that is sent; null: there is none, and nothing to cancel.
  progress(share) {
    at("sending").hidden = share === null;
    at("progress").value = share ?? 0;
  }

  // A live update: the sentence of a turn that is not over. The last turn's goes to the history.
  soFar(text, heardS) {
    this.#clear();
    put(at("now-title"), ["so-far", heardS.toFixed(0)]);
    this.#show(text);
  }

  // The sentence on the screen is of the turn before: another one has begun.
  before() {
    if (this.#finished) put(at("now-title"), ["before"]);
  }

  // A live update is shown no longer, and the last turn's sentence stays in the history.
  settled() {
    if (!this.#finished && at("sentence").getAttribute("aria-busy") !== "true") at("sentence").textContent = "";
    put(at("now-title"), ["now"]);
  }

  // A sentence begins: the last one goes to the history. Screen readers wait until it is whole.
  begin() {
    this.#clear();
    put(at("now-title"), ["now"]);
    at("sentence").setAttribute("aria-busy", "true");
  }

  append(text) {
    this.#show(at("sentence").textContent + text);
  }

  // facts: words. warning: one line, or null.
  end(text, facts, warning = null) {
    at("sentence").setAttribute("aria-busy", "false");
    this.#show(text);
    at("facts").replaceChildren(...spans(facts));
    put(at("warning"), warning ? ["told", warning] : null);
    this.#finished = [text, facts, warning];
  }

  // Screen readers need the language of the sentence, whatever that of the page.
  #show(text) {
    Object.assign(at("sentence"), { textContent: text, lang: languageOf(text) });
  }

  // The recording of the sentence, to be played; null: there is none.
  playback(file) {
    if (file === this.#played) return;
    this.#played = file;
    const audio = at("playback");
    if (audio.src) URL.revokeObjectURL(audio.src);
    if (file) audio.src = URL.createObjectURL(file);
    else audio.removeAttribute("src");
    audio.hidden = !file;
  }

  #clear() {
    if (this.#finished) this.#remember(...this.#finished);
    this.#finished = null;
    for (const id of ["sentence", "facts"]) at(id).replaceChildren();
    put(at("warning"), null);
  }

  #remember(text, facts, warning) {
    const parts = [element("p", { lang: languageOf(text) }, [text]), element("p", { className: "facts" }, spans(facts))];
    if (warning) parts.push(told("p", ["told", warning], { className: "facts" }));
    const list = at("history");
    list.prepend(element("li", {}, parts));
    while (list.children.length > MAX_HISTORY) list.lastChild.remove();
  }
}

export function languageOf(text) {
  return /\p{Script=Han}/u.test(text) ? "zh-Hans" : "en";
}

function spans(facts) {
  return facts.map((word) => told("span", word));
}
