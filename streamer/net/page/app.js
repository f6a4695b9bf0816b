// The page: buttons and files in, jobs out, one at a time.

import { CoachView, dropOlder } from "./coach.js";
import { describe, listen } from "./jobs.js";
import { Problem } from "./link.js";
import { List } from "./list.js";
import { View } from "./view.js";
import { browser, learnTexts, speakLanguage, tab, wantedLanguage } from "./words.js";

const MAX_WAITING = 20; // recordings
const KEY = "streamer.key"; // gone with the tab
const COACHING = "streamer.coaching"; // in the browser's storage: remembered

const at = (id) => document.getElementById(id);
const view = new View();
const screen = { view, list: null, coach: null };
let spoken = []; // languages of the server's sentences
let listening = null; // the job of the microphone
let isOpening = false;
let isEnding = false; // the last sentence is being written
let speaksAgain = false; // Speak was pressed meanwhile
const waiting = []; // recordings
let describing = null; // the promise of those that are being described
let cancelling = null; // AbortController of those

function server() {
  const url = new URL("v1/realtime", location.href);
  url.searchParams.set("intent", "transcription");
  url.protocol = url.protocol.replace("http", "ws");
  const language = spoken.find((one) => one === at("language").value);
  return { url: url.href, key: at("key").value.trim(), wantsLive: at("live").checked, language };
}

function tell(error) {
  if (!(error instanceof Problem)) throw error;
  view.problem(...error.word);
  if (error.wantsKey) view.askKey();
}

async function startListening(isPressed = true) {
  isOpening = true;
  if (isPressed) view.noProblem();
  try {
    await describing;
    if (at("coaching").checked && dropOlder()) view.problem("usual-older");
    const coach = screen.coach.wanted;
    listening = await listen(screen, { ...server(), coach }, () => {
      view.problem("gone");
      listening?.finish();
    });
    view.microphone(true);
    screen.coach.begin(coach !== null);
    listening.done.then(stopped);
  } catch (error) {
    tell(error);
  } finally {
    isOpening = false;
  }
}

function stopped(problem) {
  listening = null;
  isEnding = false;
  screen.coach.end();
  view.microphone(false);
  view.status("ready");
  if (problem) tell(problem);
  else if (speaksAgain) startListening(false);
  speaksAgain = false;
}

function toggle() {
  if (isOpening) return;
  if (!listening) return void startListening();
  if (isEnding) return speakAgain(!speaksAgain);
  isEnding = true;
  view.microphone(false);
  if (!listening.isBroken()) view.status("describing");
  listening.finish();
}

// After the last sentence.
function speakAgain(isWanted) {
  speaksAgain = isWanted;
  view.status(isWanted ? "again" : "describing");
}

function add(files) {
  const room = MAX_WAITING - waiting.length;
  waiting.push(...[...files].slice(0, room));
  if (files.length > room) view.addProblem("left-out", files.length - room, MAX_WAITING);
  describing ??= describeAll().finally(() => (describing = null));
}

async function describeAll() {
  view.noProblem();
  if (listening) {
    if (!isEnding) toggle();
    await listening.done;
  }
  cancelling = new AbortController();
  let word = ["ready"];
  while (waiting.length) word = await describeOne(waiting.shift(), cancelling.signal);
  cancelling = null;
  view.progress(null);
  view.status(...word);
}

// The status at its end.
async function describeOne(file, signal) {
  view.status("reading", file.name);
  view.progress(0);
  try {
    const { problem, isSilent } = await describe(screen, server(), file, signal);
    if (problem) throw problem;
    if (isSilent && !signal.aborted) {
      view.addProblem("silent", file.name);
      return ["ready"];
    }
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    view.addProblem("of-file", file.name, error.word);
    if (error.wantsKey) view.askKey();
    return ["ready"];
  }
  return signal.aborted ? ["cancelled", file.name] : ["done"];
}

async function trySample() {
  const response = await fetch("sample.wav").catch(() => null);
  if (!response?.ok) return void view.problem("unreachable");
  add([new File([await response.blob()], "sample.wav")]);
}

// The current recording, and those that wait.
function cancel() {
  waiting.length = 0;
  cancelling?.abort();
}

function wire() {
  at("mic").addEventListener("click", toggle);
  at("cancel").addEventListener("click", cancel);
  at("sample").addEventListener("click", trySample);
  at("dismiss").addEventListener("click", () => view.noProblem());
  document.addEventListener("keydown", ({ key }) => {
    if (key !== "Escape") return;
    cancel();
    view.noProblem();
    at("settings").open = false;
  });
  at("file").addEventListener("change", ({ target }) => {
    add(target.files);
    target.value = ""; // the same file may be chosen again
  });
  for (const name of ["dragover", "dragleave", "drop"]) {
    document.addEventListener(name, (event) => {
      event.preventDefault();
      document.body.classList.toggle("dropping", name === "dragover");
    });
  }
  document.addEventListener("drop", ({ dataTransfer }) => add(dataTransfer.files));
  at("coaching").checked = browser.get(COACHING) === "on";
  at("coaching").addEventListener("change", ({ target }) => browser.set(COACHING, target.checked ? "on" : "off"));
  at("key-row").addEventListener("submit", (event) => {
    event.preventDefault();
    at("settings").open = false;
    at("mic").focus();
  });
  at("key").value = tab.get(KEY) ?? "";
  at("key-row").hidden = !at("key").value;
  at("key").addEventListener("input", ({ target }) => tab.set(KEY, target.value.trim()));
}

function chooseLanguage() {
  at("language").value = wantedLanguage();
  speakLanguage(at("language").value);
  at("language").addEventListener("change", ({ target }) => speakLanguage(target.value));
}

async function read(name) {
  const response = await fetch(name).catch(() => {
    throw new Problem("unreachable");
  });
  if (!response.ok) throw new Problem("incomplete");
  return response.json();
}

async function start() {
  chooseLanguage();
  const files = ["attributes.json", "languages.json", "chinese.json"];
  const [attributes, languages, chinese] = await Promise.all(files.map(read));
  spoken = languages;
  learnTexts(chinese);
  screen.list = new List(at("attributes"), attributes);
  screen.coach = new CoachView(screen.list);
  wire();
}

start().catch(tell);
