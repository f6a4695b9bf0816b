// Sessions of the page: listen to the microphone, or describe a recording.

import { Microphone, levelOf, readRecording } from "./audio.js";
import { Link, Problem } from "./link.js";
import { ENDING, Turns } from "./turns.js";

const LIVE_UPDATE_S = 3;
const FRAME_S = 0.04; // of a recording
const ANSWER_S = 30; // for the last sentence

// A session with the server. `done` resolves with null or a Problem.
class Job {
  // screen: {view, list, coach}. server: {url, key, wantsLive, language, coach: whether it is wanted}.
  // sound: {name, idle, rateHz, detection, seconds}.
  constructor(screen, server, sound) {
    this.done = new Promise((resolve) => (this.resolve = resolve));
    this.isRecording = sound.detection === null;
    this.isAway = false; // the link is broken, and the user knows
    const turns = new Turns(screen, sound, {
      settled: () => this.link.close(),
      failed: (message) => this.link.close(new Problem("told", message)),
    });
    this.turns = turns;
    this.link = new Link(server.url, server.key, sessionOf(sound, server), {
      event: (event) => turns.hear(event),
      open: () => {
        if (this.isAway) screen.view.noProblem();
        this.isAway = false;
        screen.view.status(...sound.idle);
      },
      broken: () => {
        this.isAway = true;
        screen.view.level(0, true);
        screen.view.status("waiting");
        screen.view.problem("broke");
      },
      lost: () => screen.view.problem("lost"),
      over: (problem) => {
        turns.leave();
        this.resolve(problem);
      },
    });
  }

  // No more sound; the job is done when all speech is answered.
  finish() {
    ENDING.forEach((message) => this.link.send(message));
    const isAway = () => this.link.isBroken && !this.isRecording;
    const late = () => this.link.close(new Problem(isAway() ? "away" : "late", ANSWER_S));
    const timer = setTimeout(late, 1_000 * ANSWER_S);
    this.done.then(() => clearTimeout(timer));
  }
}

// Rejects with a Problem when there is no microphone. `finish` of the job ends it.
export async function listen(screen, server, onLost) {
  let job = null;
  const hear = (frame) => {
    job?.link.send(frame);
    if (!job?.link.isBroken) screen.view.level(levelOf(frame));
  };
  const microphone = await Microphone.open(hear, onLost);
  const detection = { type: "server_vad" };
  const { rateHz } = microphone;
  const sound = { name: null, idle: ["listening"], rateHz, detection, seconds: null };
  job = new Job(screen, server, sound);
  job.done.then(() => microphone.close());
  const finish = () => {
    sound.idle = ["describing"];
    return microphone.close().then(() => job.finish());
  };
  return { done: job.done, isBroken: () => job.link.isBroken, finish };
}

// A recording as fast as the server takes it; resolves with {problem: as a job's `done`, isSilent}, rejects with a Problem
// about the file. An abort of `signal` ends it.
export async function describe(screen, server, file, signal) {
  const { rateHz, pcm } = await readRecording(file);
  if (signal.aborted) return { problem: null, isSilent: false };
  const sound = { name: file.name, idle: ["sending", file.name], rateHz, detection: null, seconds: pcm.length / rateHz };
  const job = new Job(screen, server, sound);
  signal.addEventListener("abort", () => job.link.close());
  await send(job, pcm, Math.round(rateHz * FRAME_S), (share) => screen.view.progress(share));
  sound.idle = ["describing-file", file.name];
  screen.view.status(...sound.idle);
  return { problem: await job.done, isSilent: !job.turns.hasText };
}

async function send(job, pcm, numSamples, tell) {
  for (let at = 0; at < pcm.length; at += numSamples) {
    if (!(await job.link.room())) return;
    job.link.send(pcm.slice(at, at + numSamples).buffer);
    tell(Math.min(1, (at + numSamples) / pcm.length));
  }
  job.finish();
}

// A transcription session answers every turn by itself, the parts of a long recording too.
function sessionOf({ rateHz, detection }, { wantsLive, coach, language }) {
  const input = { format: { type: "audio/pcm", rate: rateHz }, turn_detection: detection };
  const streamer = { events: true, binary: true, acks: true, measures: true, live_update_s: wantsLive ? LIVE_UPDATE_S : null };
  if (coach) streamer.coach = true;
  if (language) streamer.language = language;
  return { type: "transcription", audio: { input }, streamer };
}
