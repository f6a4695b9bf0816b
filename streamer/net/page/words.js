// The page's texts (words.json) in English and Chinese, by name.
//
// A word is [name, ...arguments]; arguments may be words again. An element keeps its word, so that it follows a change of
// the language: data-word for the text itself, data-label for the aria-label.

const LANGUAGES = ["en", "zh"];
const ATTRIBUTES = { word: "textContent", label: "ariaLabel" };
// A browser's storage, "localStorage" or "sessionStorage", by name; where it is blocked, nothing is kept.
export function kept(storage, name) {
  try {
    return window[storage].getItem(name);
  } catch {
    return null;
  }
}

// null: forget it.
export function keep(storage, name, value) {
  try {
    if (value === null) window[storage].removeItem(name);
    else window[storage].setItem(name, value);
  } catch {
    // it is forgotten with the page
  }
}

const KEY = "streamer.language"; // in the browser's storage: remembered

// name: [in English, in Chinese], with {0} for the first argument
const WORDS = await (await fetch("words.json")).json();
let spoken = 0; // the place of the page's language

// Chinese of the server's texts (chinese.json), by the English one. Warnings are forms: {} stands for what differs, {:.1f}
// for a number.
let words = {};
let warnings = [];

export function learnTexts(found) {
  words = found.words;
  warnings = Object.entries(found.warnings).map(([english, chinese]) => {
    const form = english.split(/(\{[^}]*\})/).map((part) => {
      if (part.startsWith("{")) return part === "{}" ? "(.+?)" : "([-\\d.]+)";
      return part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
    });
    return [new RegExp(form.join(""), "g"), chinese];
  });
}

// A form with its arguments: {0}, or {0:.1f} in a text of the server.
function filled(form, found) {
  return form.replace(/\{(\d)[^}]*\}/g, (_, i) => found[i]);
}

// A text of the server in the page's language, or as it is.
function translated(text) {
  if (LANGUAGES[spoken] !== "zh") return text;
  if (text in words) return words[text];
  const told = warnings.reduce((all, [form, chinese]) => all.replace(form, (_, ...found) => filled(chinese, found)), text);
  return told.replaceAll("; ", "；");
}

// The text of a word. ("told", text): a text of the server. ("named", text): the same with a capital.
// ("either", english, chinese): that of the page's language.
export function say(name, ...about) {
  if (name === "told") return translated(about[0]);
  if (name === "named") return translated(about[0]).replace(/^./, (first) => first.toUpperCase());
  const told = about.map((one) => (Array.isArray(one) ? say(...one) : one));
  return name === "either" ? told[spoken] : filled(WORDS[name][spoken], told);
}

// Give `element` a word, or none (null). Screen readers read it again only if it is another one.
export function put(element, word) {
  const data = JSON.stringify(word ?? ["told", ""]);
  if (element.dataset.word === data) return;
  element.dataset.word = data;
  element.textContent = word ? say(...word) : "";
}

// 75.2 seconds -> 1:15
export function clock(seconds) {
  const whole = Math.floor(seconds + 0.002); // of the server's, rounded to milliseconds
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`;
}

export function languageOf(text) {
  return /\p{Script=Han}/u.test(text) ? "zh-Hans" : "en";
}

// "en" or "zh": what was chosen last, else what the browser speaks.
export function wantedLanguage() {
  const chosen = kept("localStorage", KEY);
  if (LANGUAGES.includes(chosen)) return chosen;
  return navigator.language.startsWith("zh") ? "zh" : "en";
}

export function speakLanguage(language) {
  spoken = LANGUAGES.indexOf(language);
  keep("localStorage", KEY, language);
  document.documentElement.lang = say("language");
  document.title = say("title");
  for (const [data, property] of Object.entries(ATTRIBUTES)) {
    for (const element of document.querySelectorAll(`[data-${data}]`)) {
      const word = element.dataset[data];
      element[property] = say(...(word.startsWith("[") ? JSON.parse(word) : [word]));
    }
  }
}
