// The page's texts (words.json) in English or Chinese. A change of the language loads the page anew.

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
const read = async (name) => (await fetch(name)).json();
const [WORDS, SERVER] = await Promise.all(["words.json", "server.json"].map(read));
export const { languages, levels } = SERVER;
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
