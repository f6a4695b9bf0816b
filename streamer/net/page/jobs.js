// Sessions of the page: listen to the microphone, or describe a recording.

import { Microphone, levelOf, readRecording } from "./audio.js";
import { Link, Problem } from "./link.js";
import { ENDING, Turns } from "./turns.js";

const LIVE_UPDATE_S = 3;
const FRAME_S = 0.04; // of a recording
const ANSWER_S = 30; // for the last sentence

// A session with the server. `done` resolves with null or a Problem.
class Job {
  // screen: {view, list, coach}. server: {url, key, wantsLive, language, coach: of session.streamer; or none}.
  // sound: {name, file, idle, rateHz, detection, seconds}.
  constructor(screen, server, sound) {
    this.done = new Promise((resolve) => (this.resolve = resolve));
    this.isRecording = sound.detection === null;
    this.wasReplaced = false; // by a new session: a recording is sent again from its beginning
    this.isFinished = false; // all sound is sent
    this.isAway = false; // the link is broken, and the user knows
    const turns = new Turns(screen, sound, {
      settled: () => this.link.close(),
      described: (seconds) => this.link.described(2 * Math.floor(seconds * sound.rateHz)),
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
      anew: (byte) => this.#replaced(screen, sound, server, byte / 2 / sound.rateHz),
      over: (problem) => {
        turns.leave();
        this.resolve(problem);
      },
    });
  }

  // No more sound; the job is done when all speech is answered.
  finish() {
    this.isFinished = true;
    ENDING.forEach((message) => this.link.send(message));
    const isAway = () => this.link.isBroken && !this.isRecording;
    const late = () => this.link.close(new Problem(isAway() ? "away" : "late", ANSWER_S));
    clearTimeout(this.timer);
    this.timer = setTimeout(late, 1_000 * ANSWER_S);
    this.done.then(() => clearTimeout(this.timer));
  }

  #replaced({ view, coach }, sound, server, fromS) {
    this.turns.anew();
    if (this.isRecording) clearTimeout(this.timer);
    else {
      view.problem("anew");
      this.link.greet(sessionOf(sound, { ...server, coach: coach.anew(server.coach, fromS) }));
      // After the messages that are sent again: the last session may have taken these without an answer.
      if (this.isFinished) queueMicrotask(() => ENDING.forEach((message) => this.link.send(message)));
    }
    this.wasReplaced = true;
    return !this.isRecording;
  }
}

// Rejects with a Problem when there is no microphone. `finish` of the job ends it.
export async function listen(screen, server, onLost) {
  let job = null;
  const hear = (frame) => {
    job?.link.send(frame);
    screen.coach.sound(frame, microphone.rateHz);
    if (!job?.link.isBroken) screen.view.level(levelOf(frame));
  };
  const microphone = await Microphone.open(hear, onLost);
  const detection = { type: "server_vad" };
  const { rateHz } = microphone;
  const sound = { name: null, file: null, idle: ["listening"], rateHz, detection, seconds: null };
  screen.view.playback(null);
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
  const sound = { name: file.name, file, idle: ["sending", file.name], rateHz, detection: null, seconds: pcm.length / rateHz };
  const job = new Job(screen, server, sound);
  signal.addEventListener("abort", () => job.link.close());
  let isDone = false;
  job.done.then(() => (isDone = true));
  while (!isDone) {
    job.wasReplaced = false;
    sound.idle = ["sending", file.name];
    await send(job, pcm, Math.round(rateHz * FRAME_S), (share) => screen.view.progress(share));
    if (!isDone && !job.wasReplaced) {
      sound.idle = ["describing-file", file.name];
      screen.view.status(...sound.idle);
    }
    while (!isDone && !job.wasReplaced) await new Promise((again) => setTimeout(again, 20));
  }
  return { problem: await job.done, isSilent: !job.turns.hasText };
}

async function send(job, pcm, numSamples, tell) {
  for (let at = 0; at < pcm.length && !job.wasReplaced; at += numSamples) {
    if (!(await job.link.room())) return;
    if (job.wasReplaced) return;
    job.link.send(pcm.slice(at, at + numSamples).buffer);
    tell(Math.min(1, (at + numSamples) / pcm.length));
  }
  if (!job.wasReplaced) job.finish();
}

// A transcription session answers every turn by itself, the parts of a long recording too.
function sessionOf({ rateHz, detection }, { wantsLive, coach, language }) {
  const input = { format: { type: "audio/pcm", rate: rateHz }, turn_detection: detection };
  const streamer = { events: true, binary: true, acks: true, measures: true, live_update_s: wantsLive ? LIVE_UPDATE_S : null };
  if (coach) streamer.coach = coach;
  if (language) streamer.language = language;
  return { type: "transcription", audio: { input }, streamer };
}
