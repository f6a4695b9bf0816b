// The page: buttons and files in, jobs out, one at a time.

import { nameAttributes } from "./attributes.js";
import { Chart } from "./chart.js";
import { CoachView, dropOlder } from "./coach.js";
import { describe, listen } from "./jobs.js";
import { Problem } from "./problems.js";
import { browser, tab } from "./storage.js";
import { View } from "./view.js";
import { speakLanguage, wantedLanguage } from "./words.js";

const MAX_WAITING = 20; // recordings
const KEY = "streamer.key"; // gone with the tab
const COACHING = "streamer.coaching"; // in the browser's storage: remembered

const at = (id) => document.getElementById(id);
const view = new View();
const screen = { view, chart: null, coach: null, attributes: null };
let listening = null; // the job of the microphone
let isOpening = false;
let isEnding = false; // what was said last is being answered
let speaksAgain = false; // pressed meanwhile
const waiting = []; // recordings
let describing = null; // the promise of those that are being described
let cancelling = null; // AbortController of those

function server() {
  const url = new URL("v1/realtime", location.href);
  url.searchParams.set("intent", "transcription");
  url.protocol = url.protocol.replace("http", "ws");
  return { url: url.href, key: at("key").value.trim(), wantsLive: at("live").checked };
}

function tell(error) {
  if (!(error instanceof Problem)) throw error;
  view.problem(...error.word);
  if (error.wantsKey) at("key").focus();
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

// When the last sentence is there.
function speakAgain(isWanted) {
  speaksAgain = isWanted;
  view.status(isWanted ? "again" : "describing");
}

function add(files) {
  const room = MAX_WAITING - waiting.length;
  waiting.push(...[...files].slice(0, room));
  if (files.length > room) view.note("left-out", files.length - room, MAX_WAITING);
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

// The word for how it ended.
async function describeOne(file, signal) {
  view.status("reading", file.name);
  view.progress(0);
  try {
    const { problem, isSilent } = await describe(screen, server(), file, signal);
    if (problem) throw problem;
    if (isSilent && !signal.aborted) return ["silent", file.name];
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    view.note("of-file", file.name, error.word);
    view.problem("of-file", file.name, error.word);
    if (error.wantsKey) at("key").focus();
    return ["ready"];
  }
  if (!signal.aborted) return ["done"];
  view.note("cancelled", file.name);
  return ["ready"];
}

// The recording in hand, and those that wait.
function cancel() {
  waiting.length = 0;
  cancelling?.abort();
}

function wire() {
  at("mic").addEventListener("click", toggle);
  at("cancel").addEventListener("click", cancel);
  at("dismiss").addEventListener("click", () => view.noProblem());
  document.addEventListener("keydown", ({ key }) => {
    if (key !== "Escape") return;
    cancel();
    view.noProblem();
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
  at("settings").addEventListener("submit", (event) => event.preventDefault());
  at("key").value = tab.get(KEY) ?? "";
  at("key").addEventListener("input", ({ target }) => tab.set(KEY, target.value.trim()));
}

function chooseLanguage() {
  at("language").value = wantedLanguage();
  speakLanguage(at("language").value);
  at("language").addEventListener("change", ({ target }) => speakLanguage(target.value));
}

async function start() {
  chooseLanguage();
  const response = await fetch("attributes.json").catch(() => {
    throw new Problem("unreachable");
  });
  if (!response.ok) throw new Problem("incomplete");
  screen.attributes = nameAttributes(await response.json());
  screen.chart = new Chart(at("attributes"), screen.attributes);
  screen.chart.show({});
  screen.coach = new CoachView();
  wire();
}

start().catch(tell);
