// The page's texts (words.json) in English and Chinese, by name, and what the browser remembers.
//
// An element keeps the name of its text, so that it follows a change of the language: data-word for the text itself,
// data-label for the aria-label.

// Storage of the browser. If it is blocked, nothing is remembered and nothing breaks.
function storeOf(storage) {
  const tried = (use) => {
    try {
      return use(storage());
    } catch {
      return null;
    }
  };
  return {
    get: (key) => tried((kept) => kept.getItem(key)),
    set: (key, text) => tried((kept) => kept.setItem(key, text)),
    drop: (key) => tried((kept) => kept.removeItem(key)),
  };
}

export const browser = storeOf(() => localStorage);
export const tab = storeOf(() => sessionStorage);

const KEY = "streamer.language"; // in the browser's storage: remembered

// name: [in English, in Chinese], with {0} for the first argument
const WORDS = await (await fetch("words.json")).json();

// Chinese of the server's texts (chinese.json): the form of the English one. {} stands for what differs, {:.1f} for a number.
let texts = [];

export function learnTexts(found) {
  texts = Object.entries(found).map(([english, chinese]) => {
    const form = english.split(/(\{[^}]*\})/).map((part) => {
      if (part.startsWith("{")) return part === "{}" ? "(.+?)" : "([-\\d.]+)";
      return part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
    });
    return [new RegExp(form.join(""), "g"), chinese];
  });
}

// A text of the server in the page's language, or as it is.
function translated(text) {
  if (LANGUAGES[spoken] !== "zh") return text;
  const filled = (form, found) => form.replace(/\{(\d)[^}]*\}/g, (_, i) => found[i]);
  const told = texts.reduce((all, [form, chinese]) => all.replace(form, (_, ...found) => filled(chinese, found)), text);
  return told.replaceAll("; ", "；");
}

const LANGUAGES = ["en", "zh"];
const ATTRIBUTES = { word: "textContent", label: "ariaLabel" };
let spoken = 0; // the place of the page's language

// The text of a word. Its arguments may be words again: ["name", ...].
export function say(name, ...about) {
  if (name === "told") return translated(about[0]);
  const told = about.map((one) => (Array.isArray(one) ? say(...one) : one));
  return WORDS[name][spoken].replace(/\{(\d)\}/g, (_, i) => told[i]);
}

// Another word, in English and Chinese.
export function learn(name, english, chinese) {
  WORDS[name] = [english, chinese];
}

// Give `element` a word, or none (null).
export function put(element, word) {
  if (word === null) {
    delete element.dataset.word;
    element.textContent = "";
  } else {
    element.dataset.word = JSON.stringify(word);
    element.textContent = say(...word);
  }
}

// "en" or "zh": what was chosen last, else what the browser speaks.
export function wantedLanguage() {
  const chosen = browser.get(KEY);
  if (LANGUAGES.includes(chosen)) return chosen;
  return navigator.language.startsWith("zh") ? "zh" : "en";
}

export function speakLanguage(language) {
  spoken = LANGUAGES.indexOf(language);
  browser.set(KEY, language);
  document.documentElement.lang = say("language");
  document.title = say("title");
  for (const [data, property] of Object.entries(ATTRIBUTES)) {
    for (const element of document.querySelectorAll(`[data-${data}]`)) {
      const word = element.dataset[data];
      element[property] = say(...(word.startsWith("[") ? JSON.parse(word) : [word]));
    }
  }
}
