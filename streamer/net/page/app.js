// The page: the microphone and files in, jobs out, one at a time.

import { Job } from "./job.js";
import { toPcm } from "./mixer.js";
import * as view from "./view.js";
import { Problem, language, languages, say, speakLanguage, storage } from "./view.js";

const KEY = "streamer.key"; // in the tab's storage: gone with it
const HEARD_HZ = 16_000; // what the server hears
const MAX_FILE_BYTES = 200e6; // ten times as large when decoded

// Loudness is one of the attributes: nothing may level it out. Echo and noise suppression change the timbre.
const WANTED = { channelCount: 1, autoGainControl: false, echoCancellation: false, noiseSuppression: false };
const REFUSED = { NotAllowedError: "not-allowed", NotFoundError: "no-microphone", NotReadableError: "taken" };

const { page } = view;
// The coach's part (streamer/extras/coach/page), or null without this extra. Nothing else waits for it.
const coaching = import("./coach.js").catch(() => null);
let coach = null; // from the first use of the microphone on
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
    const pcm = await readRecording(file);
    describing = new Job({ file, pcm, rateHz: HEARD_HZ, seconds: pcm.length / HEARD_HZ }, server());
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
  const microphone = await openMicrophone().finally(() => (isSpeakWanted = false));
  view.show({ file: null }); // the microphone would hear it
  coach = await coaching;
  listening = new Job(microphone, server(), coach?.begin() ? coach : null);
  view.microphone(true);
  if (waiting.length) stop(); // recordings were added meanwhile
  const problem = await listening.done;
  await microphone.close();
  listening = null;
  coach?.end();
  view.microphone(false);
  view.status(say("ready"));
  if (problem) throw problem;
}

function heard(frame) {
  if (!listening) return;
  listening.link.send(frame);
  listening.coach?.take(frame, listening.sound.rateHz);
  if (listening.link.brokenAt === null) view.level(levelOf(frame));
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

// The microphone, {rateHz, close()}; rejects with a Problem. Its frames are heard from then on.
async function openMicrophone() {
  if (!window.isSecureContext || !navigator.mediaDevices) throw new Problem("insecure");
  let stream, context;
  const close = async () => {
    stream?.getTracks().forEach((track) => track.stop());
    if (context?.state !== "closed") await context?.close();
  };
  try {
    stream = await navigator.mediaDevices.getUserMedia({ audio: WANTED });
    stream.getAudioTracks()[0].onended = () => {
      view.problem(say("gone"));
      stop();
    };
    context = new AudioContext(); // a rate of our own would fail in browsers that do not resample
    await context.audioWorklet.addModule("mixer.js").catch(() => {
      throw new Problem("unreachable"); // the worklet comes from the server, as the page does
    });
    await context.resume();
    const framer = new AudioWorkletNode(context, "framer");
    framer.port.onmessage = ({ data }) => heard(data);
    context.createMediaStreamSource(stream).connect(framer);
    framer.connect(context.destination); // it plays silence; a node that leads nowhere may not be run
    return { rateHz: Math.round(context.sampleRate), close };
  } catch (error) {
    await close();
    if (error instanceof Problem) throw error;
    throw new Problem(REFUSED[error.name] ?? "no-opening", error.message || error.name);
  }
}

// Loudness of a frame of PCM16, 0 (-60 dB or less) to 1 (full scale).
function levelOf(frame) {
  const samples = new Int16Array(frame);
  const energy = samples.reduce((sum, sample) => sum + sample * sample, 0);
  const decibels = 10 * Math.log10(energy / samples.length / 32768 ** 2 + 1e-12);
  return Math.max(0, Math.min(1, 1 + decibels / 60));
}

// A file's sound at HEARD_HZ, an Int16Array; rejects with a Problem.
async function readRecording(file) {
  if (file.size > MAX_FILE_BYTES) throw new Problem("large");
  const context = new OfflineAudioContext(1, 1, HEARD_HZ); // it resamples
  const decoded = await context.decodeAudioData(await file.arrayBuffer()).catch(() => {
    throw new Problem("no-sound");
  });
  return toPcm(decoded);
}

page.language.value = language;
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
page.language.onchange = () => speakLanguage(page.language.value);
page.key.oninput = () => storage("sessionStorage").setItem(KEY, page.key.value.trim());
page["key-row"].onsubmit = (event) => {
  event.preventDefault();
  page.settings.open = false;
  page.mic.focus();
};
view.showNext();
