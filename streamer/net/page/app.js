// The page: buttons and files in, jobs out, one at a time.

import { levelOf, openMicrophone, readRecording } from "./audio.js";
import * as coach from "./coach.js";
import { Job } from "./job.js";
import * as view from "./view.js";
import { Problem, language, languages, say, speakLanguage, storage } from "./view.js";

const KEY = "streamer.key"; // in the tab's storage: gone with it
const COACHING = "streamer.coaching"; // in the browser's storage: remembered

const { page } = view;
let waiting = []; // recordings
let isSpeakWanted = false; // the microphone, after them
let isWorking = false;
let listening = null; // the job of the microphone
let describing = null; // the job of a recording
let isCancelled = false; // that recording

function server() {
  const url = new URL("v1/realtime?intent=transcription", location.href);
  url.protocol = url.protocol.replace("http", "ws");
  const spoken = languages.find((one) => one === language);
  return { url: url.href, key: page.key.value.trim(), live: page.live.checked, language: spoken };
}

function tell(error, file = null) {
  if (!(error instanceof Problem)) throw error;
  if (file) view.addProblem(say("of-file", file.name, error.message));
  else view.problem(error.message);
  if (!["no-key", "wrong-key"].includes(error.word)) return;
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
  let status = say("done");
  isCancelled = false;
  view.status(say("reading", file.name));
  view.progress(0);
  view.showNext();
  try {
    const { rateHz, pcm } = await readRecording(file);
    describing = new Job({ file, rateHz, pcm, seconds: pcm.length / rateHz }, server());
    if (isCancelled) describing.link.close();
    await describing.send();
    const problem = await describing.done;
    if (problem) throw problem;
    if (isCancelled) status = say("cancelled", file.name);
    else if (!describing.hasText) view.addProblem(say("silent", file.name));
  } catch (error) {
    status = say("ready");
    tell(error, file);
  }
  describing = null;
  view.progress(null);
  view.status(status);
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
  view.status(say("ready"));
  if (problem) throw problem;
}

function heard(frame) {
  if (!listening) return;
  listening.link.send(frame);
  coach.sound?.add(frame, listening.sound.rateHz);
  if (listening.link.brokenAt === null) view.level(levelOf(frame));
}

function lost() {
  view.problem(say("gone"));
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
  if (!response?.ok) return view.problem(say("unreachable"));
  add([new File([await response.blob()], "sample.wav")]);
}

// The current recording, and those that wait.
function cancel() {
  waiting = [];
  isCancelled = true;
  describing?.link.close();
}

function drag(event) {
  event.preventDefault();
  document.body.classList.toggle("dropping", event.type === "dragover");
  if (event.type === "drop") add([...event.dataTransfer.files]);
}

page.language.value = language;
page.coaching.checked = storage("localStorage").getItem(COACHING) === "on";
page.key.value = storage("sessionStorage").getItem(KEY) ?? "";
page["key-row"].hidden = !page.key.value;
page.mic.onclick = press;
page.cancel.onclick = cancel;
page.sample.onclick = trySample;
page.dismiss.onclick = view.noProblem;
document.ondragover = document.ondragleave = document.ondrop = drag;
document.onkeydown = ({ key }) => {
  if (key !== "Escape") return;
  cancel();
  view.noProblem();
  page.settings.open = false;
};
page.file.onchange = () => {
  add([...page.file.files]);
  page.file.value = ""; // the same file may be chosen again
};
page.coaching.onchange = () => storage("localStorage").setItem(COACHING, page.coaching.checked ? "on" : "off");
page.language.onchange = () => speakLanguage(page.language.value);
page.key.oninput = () => storage("sessionStorage").setItem(KEY, page.key.value.trim());
page["key-row"].onsubmit = (event) => {
  event.preventDefault();
  page.settings.open = false;
  page.mic.focus();
};
view.showNext();
