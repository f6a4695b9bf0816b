// The page's elements: one object says what the box and the list show, one function draws it.

import { drawList } from "./list.js";
import { languageOf, put, say } from "./words.js";

const MAX_HISTORY = 50;
const MAX_PROBLEMS = 5; // shown at once

export const page = Object.fromEntries([...document.querySelectorAll("[id]")].map((each) => [each.id, each]));

// A sentence, being written or whole, or one so far, and what is shown of the same time.
const NOTHING = {
  text: "",
  facts: [],
  warning: "",
  file: null, // its recording, to be played
  levels: {},
  measures: null,
  soFar: null, // the title, of a turn that is not over
  latest: null, // measures of the last seconds: the sentence is of the turn before
  isWriting: false,
  isWhole: false,
};
export let shown = NOTHING;

export function show(change) {
  shown = { ...shown, ...change };
  const { latest, soFar } = shown;
  put(page["now-title"], soFar ?? say(latest && shown.isWhole ? "before" : "now"));
  page.sentence.setAttribute("aria-busy", String(shown.isWriting)); // screen readers wait until it is whole
  draw([page.sentence, page.facts, page.warning]);
  play(shown.file);
  put(page["list-title"], soFar ?? say(latest ? "of-now" : "of-sentence"));
  drawList(latest ? {} : shown.levels, latest ?? shown.measures, latest !== null);
}

// Something else is shown from here on; a whole sentence goes to the history.
export function showNext(next = {}) {
  if (shown.isWhole) {
    const item = page.said.content.firstChild.cloneNode(true);
    draw(item.children);
    page.history.prepend(item);
    while (page.history.children.length > MAX_HISTORY) page.history.lastChild.remove();
  }
  shown = NOTHING;
  show(next);
}

// Nothing more comes of the sentence that is being written, which gets this fact, or of a live update. A whole one stays.
export function leave(fact) {
  if (shown.isWriting) show({ facts: [fact], isWriting: false, isWhole: true });
  else if (shown.isWhole) show({ latest: null });
  else showNext();
}

function play(file) {
  const audio = page.playback;
  if (audio.file === file) return;
  if (audio.src) URL.revokeObjectURL(audio.src);
  if (file) audio.src = URL.createObjectURL(file);
  else audio.removeAttribute("src");
  Object.assign(audio, { file, hidden: !file });
}

// The sentence, with its facts and warning beneath. Screen readers need its language, whatever that of the page.
function draw([sentence, facts, warning]) {
  sentence.lang = languageOf(shown.text);
  put(sentence, shown.text);
  facts.replaceChildren(...shown.facts.map((fact) => element("span", fact)));
  put(warning, shown.warning);
}

function element(tag, text) {
  return Object.assign(document.createElement(tag), { textContent: text });
}

export function status(text) {
  put(page.status, text);
}

// A message that stays until it is closed, something else begins, or all works again.
export function problem(text) {
  page.problem.replaceChildren(element("p", text));
}

// A further one, of another recording.
export function addProblem(text) {
  page.problem.append(element("p", text));
  while (page.problem.children.length > MAX_PROBLEMS) page.problem.firstChild.remove();
}

export function noProblem() {
  page.problem.replaceChildren();
}

// The button, pressed while the microphone is on.
export function microphone(isOn) {
  page.mic.setAttribute("aria-pressed", String(isOn));
  put(page["mic-label"], say(isOn ? "stop" : "speak"));
  level(0);
}

// Loudness of the microphone, 0 to 1.
export function level(share) {
  page.talk.style.setProperty("--level", share.toFixed(3));
  page.level.setAttribute("aria-valuenow", String(Math.round(100 * share)));
}

// The share of a recording that is sent; null: there is none, and nothing to cancel.
export function progress(share) {
  page.sending.hidden = share === null;
  page.progress.value = share ?? 0;
}
