// The page: buttons and files in, jobs out, one at a time.

import { levelOf, openMicrophone, readRecording } from "./audio.js";
import { coach } from "./coach.js";
import { Job } from "./job.js";
import { Problem } from "./link.js";
import { buildList } from "./list.js";
import * as view from "./view.js";
import { keep, kept, learnTexts, speakLanguage, wantedLanguage } from "./words.js";

const KEY = "streamer.key"; // in the tab's storage: gone with it
const COACHING = "streamer.coaching"; // in the browser's storage: remembered

const { page } = view;
let spoken = []; // languages of the server's sentences
let waiting = []; // recordings
let isSpeakWanted = false; // the microphone, after them
let isWorking = false;
let listening = null; // the job of the microphone
let numHeard = 0; // frames
let describing = null; // AbortController of the recording that is being described

function server() {
  const url = new URL("v1/realtime", location.href);
  url.searchParams.set("intent", "transcription");
  url.protocol = url.protocol.replace("http", "ws");
  const language = spoken.find((one) => one === page.language.value);
  return { url: url.href, key: page.key.value.trim(), live: page.live.checked, language };
}

function tell(error, file = null) {
  if (!(error instanceof Problem)) throw error;
  if (file) view.addProblem("of-file", file.name, error.word);
  else view.problem(...error.word);
  if (!["no-key", "wrong-key"].includes(error.word[0])) return;
  page["key-row"].hidden = false;
  page.settings.open = true;
  page.key.focus();
}

// Recordings come first, then the microphone.
async function work() {
  if (isWorking) return;
  isWorking = true;
  while (waiting.length || isSpeakWanted) {
    await (waiting.length ? describeFile(waiting.shift()) : listen().catch(tell));
  }
  isWorking = false;
}

async function describeFile(file) {
  describing = new AbortController();
  const { signal } = describing;
  let status = ["done"];
  view.status("reading", file.name);
  view.progress(0);
  view.showNext();
  try {
    const { rateHz, pcm } = await readRecording(file);
    const job = new Job({ file, rateHz, pcm, seconds: pcm.length / rateHz }, server());
    signal.onabort = () => job.link.close();
    if (signal.aborted) job.link.close();
    await job.send();
    const problem = await job.done;
    if (problem) throw problem;
    if (signal.aborted) status = ["cancelled", file.name];
    else if (!job.hasText) view.addProblem("silent", file.name);
  } catch (error) {
    status = ["ready"];
    tell(error, file);
  }
  describing = null;
  view.progress(null);
  view.status(...status);
}

async function listen() {
  const microphone = await openMicrophone(heard, lost).finally(() => (isSpeakWanted = false));
  view.show({ file: null }); // the microphone would hear it
  coach.begin();
  listening = new Job(microphone, server());
  view.microphone(true);
  if (waiting.length) stop(); // recordings were added meanwhile
  const problem = await listening.done;
  await microphone.close();
  listening = null;
  coach.end();
  view.microphone(false);
  view.status("ready");
  if (problem) throw problem;
}

function heard(frame) {
  if (!listening) return;
  listening.link.send(frame);
  coach.sound(frame, listening.sound.rateHz);
  if (++numHeard % 3 === 0 && !listening.link.isBroken) view.level(levelOf(frame)); // every 60 ms
}

function lost() {
  view.problem("gone");
  stop();
}

function stop() {
  if (!listening) return;
  view.microphone(false);
  listening.finish();
}

function press() {
  if (listening && !listening.isFinished) return stop();
  if (isSpeakWanted) return;
  view.noProblem();
  isSpeakWanted = true;
  work();
}

function add(files) {
  if (!files.length) return;
  if (!describing) view.noProblem();
  waiting.push(...files);
  stop();
  work();
}

async function trySample() {
  const response = await fetch("sample.wav").catch(() => null);
  if (!response?.ok) return view.problem("unreachable");
  add([new File([await response.blob()], "sample.wav")]);
}

// The current recording, and those that wait.
function cancel() {
  waiting = [];
  describing?.abort();
}

function escape({ key }) {
  if (key !== "Escape") return;
  cancel();
  view.noProblem();
  page.settings.open = false;
}

function choose({ target }) {
  add([...target.files]);
  target.value = ""; // the same file may be chosen again
}

function drag(event) {
  event.preventDefault();
  document.body.classList.toggle("dropping", event.type === "dragover");
  if (event.type === "drop") add([...event.dataTransfer.files]);
}

function enterKey(event) {
  event.preventDefault();
  page.settings.open = false;
  page.mic.focus();
}

const EVENTS = [
  [page.mic, "click", press],
  [page.cancel, "click", cancel],
  [page.sample, "click", trySample],
  [page.dismiss, "click", view.noProblem],
  [document, "keydown", escape],
  [page.file, "change", choose],
  [document, "dragover", drag],
  [document, "dragleave", drag],
  [document, "drop", drag],
  [page.coaching, "change", () => keep("localStorage", COACHING, page.coaching.checked ? "on" : "off")],
  [page.language, "change", () => speakLanguage(page.language.value)],
  [page.key, "input", () => keep("sessionStorage", KEY, page.key.value.trim())],
  [page["key-row"], "submit", enterKey],
];

async function read(name) {
  const response = await fetch(name).catch(() => null);
  if (!response?.ok) throw new Problem("unreachable");
  return response.json();
}

async function start() {
  page.language.value = wantedLanguage();
  speakLanguage(page.language.value);
  page.coaching.checked = kept("localStorage", COACHING) === "on";
  page.key.value = kept("sessionStorage", KEY) ?? "";
  page["key-row"].hidden = !page.key.value;
  const files = ["attributes.json", "languages.json", "chinese.json"];
  const [attributes, languages, chinese] = await Promise.all(files.map(read));
  spoken = languages;
  learnTexts(chinese);
  buildList(page.attributes, attributes);
  view.showNext();
  for (const [target, event, act] of EVENTS) target.addEventListener(event, act);
}

start().catch(tell);
