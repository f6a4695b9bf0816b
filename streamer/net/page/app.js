// The page: buttons and files in, jobs out, one at a time.

import { nameAttributes } from "./attributes.js";
import { Chart } from "./chart.js";
import { describe, listen } from "./jobs.js";
import { Problem } from "./problems.js";
import { View } from "./view.js";

const READY = "Press Speak, say something, pause.";
const MAX_WAITING = 20; // recordings
const KEY = "streamer.key"; // in sessionStorage: gone with the tab

const at = (id) => document.getElementById(id);
const view = new View();
const screen = { view, chart: null, attributes: null };
let listening = null; // the job of the microphone
let isOpening = false;
const waiting = []; // recordings
let describing = null; // the promise of those that are being described

function server() {
  const url = new URL("v1/realtime", location.href);
  url.searchParams.set("intent", "transcription");
  url.protocol = url.protocol.replace("http", "ws");
  return { url: url.href, key: at("key").value.trim(), wantsLive: at("live").checked };
}

function tell(error) {
  if (!(error instanceof Problem)) throw error;
  view.problem(error.message);
  if (error.wantsKey) at("key").focus();
}

async function startListening() {
  isOpening = true;
  view.problem("");
  try {
    await describing;
    listening = await listen(screen, server(), () => {
      view.problem("The microphone is gone. Plug it in and press Speak.");
      listening?.finish();
    });
    view.microphone(true);
    listening.done.then(stopped);
  } catch (error) {
    tell(error);
  } finally {
    isOpening = false;
  }
}

function stopped(problem) {
  listening = null;
  view.microphone(false);
  view.status(READY);
  if (problem) tell(problem);
}

function toggle() {
  if (isOpening) return;
  if (!listening) return void startListening();
  view.microphone(false);
  view.status("Describing …");
  listening.finish();
}

function add(files) {
  const room = MAX_WAITING - waiting.length;
  waiting.push(...[...files].slice(0, room));
  if (files.length > room) view.note(`${files.length - room} recordings left out: at most ${MAX_WAITING} wait; give them again.`);
  describing ??= describeAll().finally(() => (describing = null));
}

async function describeAll() {
  view.problem("");
  if (listening) {
    toggle();
    await listening.done;
  }
  while (waiting.length) {
    const file = waiting.shift();
    view.status(`Reading ${file.name} …`);
    try {
      const problem = await describe(screen, server(), file);
      if (problem) throw problem;
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      const told = new Problem(`${file.name}: ${error.message}`, error.wantsKey);
      view.status(READY);
      view.note(told.message);
      tell(told);
    }
  }
}

function wire() {
  at("mic").addEventListener("click", toggle);
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
  at("settings").addEventListener("submit", (event) => event.preventDefault());
  at("key").value = sessionStorage.getItem(KEY) ?? "";
  at("key").addEventListener("input", ({ target }) => sessionStorage.setItem(KEY, target.value.trim()));
}

async function start() {
  const response = await fetch("attributes.json");
  if (!response.ok) throw new Problem("The page could not be loaded whole; load it again.");
  screen.attributes = nameAttributes(await response.json());
  screen.chart = new Chart(at("attributes"), screen.attributes);
  screen.chart.show({});
  wire();
}

start().catch(tell);
