// The page's texts (words.json) in English or Chinese, and its elements. A change of the language loads the page anew. One object
// says what the box and the list show, one function draws it.

const KEY = "streamer.language"; // in the browser's storage: remembered

// A browser's storage, "localStorage" or "sessionStorage"; where it is blocked, nothing is kept.
export function storage(name) {
  try {
    return window[name];
  } catch {
    return { getItem: () => null, setItem() {}, removeItem() {} };
  }
}

const asked = new URLSearchParams(location.search).get("language") ?? storage("localStorage").getItem(KEY);
const isChinese = asked ? asked === "zh" : navigator.language.startsWith("zh");
export const language = isChinese ? "zh" : "en";

export function speakLanguage(wanted) {
  storage("localStorage").setItem(KEY, wanted);
  location.search = `?language=${wanted}`; // where nothing is kept, too
}

// WORDS: name -> [in English, in Chinese], with {0} for the first argument. SERVER: the languages of its sentences; levels:
// attribute -> their names by language, null where one is unknown; words, warnings: Chinese of its texts, by the English
// one. Warnings are forms: {} stands for what differs, {:.1f} for a number.
const load = async (name) => (await fetch(name)).json();
const [WORDS, SERVER] = await Promise.all(["words.json", "server.json"].map(load));
export const { languages, levels: levelNames } = SERVER;
const WARNINGS = Object.entries(SERVER.warnings).map(([english, chinese]) => {
  const form = english.split(/(\{[^}]*\})/).map((part) => {
    if (part.startsWith("{")) return part === "{}" ? "(.+?)" : "([-\\d.]+)";
    return part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  });
  return [new RegExp(form.join(""), "g"), chinese];
});

export function say(name, ...about) {
  return filled(WORDS[name][isChinese ? 1 : 0], about);
}

// A form with its arguments: {0}, or {0:.1f} in a text of the server.
function filled(form, found) {
  return form.replace(/\{(\d)[^}]*\}/g, (_, i) => found[i]);
}

// A text of the server in the page's language, or as it is.
export function told(text) {
  if (!isChinese) return text;
  if (text in SERVER.words) return SERVER.words[text];
  const found = WARNINGS.reduce((all, [form, chinese]) => all.replace(form, (_, ...parts) => filled(chinese, parts)), text);
  return found.replaceAll("; ", "；");
}

// The same with a capital.
export function named(text) {
  return told(text).replace(/^./, (first) => first.toUpperCase());
}

// A message for the user: a word of words.json, with its arguments.
export class Problem extends Error {
  constructor(word, ...about) {
    super(say(word, ...about));
    this.word = word;
  }
}

// Screen readers read a text again if it is set again.
export function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// 75.2 seconds -> 1:15
export function clock(seconds) {
  const whole = Math.floor(seconds + 0.002); // of the server's, rounded to milliseconds
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`;
}

export function languageOf(text) {
  return /\p{Script=Han}/u.test(text) ? "zh-Hans" : "en";
}

// The texts of index.html: of an element itself (data-word), or its label (data-label).
document.documentElement.lang = say("language");
document.title = say("title");
for (const element of document.querySelectorAll("[data-word]")) element.textContent = say(element.dataset.word);
for (const element of document.querySelectorAll("[data-label]")) element.ariaLabel = say(element.dataset.label);

const MAX_HISTORY = 50;
const MAX_PROBLEMS = 5; // shown at once

export const page = Object.fromEntries([...document.querySelectorAll("[id]")].map((each) => [each.id, each]));

// The sentence of a turn, or an update while the turn goes on, and what is shown beside it.
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

export function element(tag, text) {
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

// The list of what was heard: for each attribute a gauge, a number with its unit, and the word of the sentence. All that it
// shows at a time is of one time: of a sentence, of a turn that goes on, or of the last seconds.

// name in an event -> its attribute, unit, scale, digits, and the factor for display.
export const MEASURES = {
  rate_syllables_per_s: { attribute: "rate", unit: "syllables/s", scale: [0, 10], digits: 1 },
  pitch_median_hz: { attribute: "pitch", unit: "Hz", scale: [60, 480], digits: 0, isLog: true },
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
  <span class="word"></span><div class="gauge" aria-hidden="true"></div>`;

for (const { attribute, unit } of Object.values(ROWS)) {
  const row = document.createElement("li");
  row.id = `attribute-${attribute}`;
  row.innerHTML = ROW;
  put(row.querySelector(".name"), named(attribute));
  put(row.querySelector(".unit"), told(unit));
  page.attributes.append(row);
}
export const usual = { values: null }; // of the speaker

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

// isNow: of the last seconds. Only beside them stand the usual pauses, which are with the silence between turns.
function drawList(levels, measures, isNow) {
  for (const [name, { attribute }] of Object.entries(ROWS)) {
    const level = levels[attribute] ?? null;
    const value = measures?.[name] ?? null;
    const usually = measures && (isNow || name !== "pause_share") ? (usual.values?.[name] ?? null) : null;
    const row = document.getElementById(`attribute-${attribute}`);
    const part = (selector) => row.querySelector(selector);
    row.dataset.level = level ?? "";
    part("b").textContent = value === null ? "" : read(name, value);
    part(".unit").hidden = value === null;
    put(part("small"), usually === null ? "" : say("usually", read(name, usually)));
    const names = levelNames[attribute]?.[level] ?? {};
    put(part(".word"), names[language] ?? Object.values(names).find(Boolean) ?? "");
    const gauge = part(".gauge");
    gauge.classList.toggle("known", usually !== null);
    if (usually !== null) gauge.style.setProperty("--usual", shareOf(name, usually));
    // of a level without a number: the middle of its part
    const place = level === null ? 0 : (level + 0.5) / levelNames[attribute].length;
    gauge.style.setProperty("--share", value === null ? place : shareOf(name, value));
  }
}
