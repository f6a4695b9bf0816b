"""The coach of one session: samples in, events out.

It hears the sound in steps of 200 ms, so its events depend neither on how the samples were cut nor
on when `work` was called. It knows nothing of turns: a silence between two of them is a silence. It
holds 12 s of frames.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np

from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.core.measures.fillers import RecentFilledPauses
from streamer.core.measures.frames import FRAMES_PER_S, Flags, Floats, Growing, decibel
from streamer.core.measures.speech_measures import SpeechMeasures
from streamer.core.measures.track import Frames
from streamer.extras.coach.network import NUM_BANDS, STEP_FRAMES, Heard, Steps, Voice, in_bands
from streamer.extras.coach.nudges import Now, Nudger
from streamer.extras.coach.options import Baseline, Coach
from streamer.extras.coach.usual import SETTLED_FRAMES, Learner
from streamer.model.audio.ear import SoundTrack, joined
from streamer.model.audio.mel import HALF_SAMPLES
from streamer.model.audio.vad import VoiceActivity
from streamer.stages.events import CoachEvent

STEP_SAMPLES = SAMPLE_RATE_HZ // 5
AHEAD_SAMPLES = HALF_SAMPLES + 40  # a block of log-mel needs this many after its last frame
SHOWN_S = 7.0
MAX_FRAMES = 12 * FRAMES_PER_S
FORGOTTEN_FRAMES = 4 * FRAMES_PER_S
GAP_FRAMES = 25  # a pause long enough for a breath
POINT_FRAMES = 5  # the curve has a point every 50 ms
MAX_WAITING = 30 * SAMPLE_RATE_HZ  # if more samples wait, `push` hears them
MAX_EVENTS = 200  # that wait; older news are dropped first, then nudges


@dataclass(frozen=True, slots=True)
class CoachNews(CoachEvent):
    """The sound at t_s of the session, 5 times a second.

    last: measures of the last 7 s. learnt_s: seconds of speech that the baseline was learnt from so
    far. The curve has a point every 50 ms from curve_s on: pitch in Hz, None where unvoiced, and
    level in dBFS.
    """

    t_s: float
    last: SpeechMeasures
    learnt_s: float
    curve_s: float
    pitch_hz: tuple[float | None, ...]
    level_dbfs: tuple[float, ...]
    wire_type = "streamer.coach"
    may_be_lost = True


@dataclass(frozen=True, slots=True)
class BaselineKnown(CoachEvent):
    """The baseline that holds from t_s on: learnt, or given."""

    t_s: float
    baseline: Baseline
    wire_type = "streamer.baseline"


class SessionCoach:
    """`push` from one thread, `work` from any.

    baseline: the one in force, or of the speech so far; None while there is too little.
    """

    def __init__(self, coach: Coach) -> None:
        self.baseline: Baseline | None = coach.baseline
        self._coach = coach
        self._in_force = coach.baseline
        self._sound = SoundTrack()
        self._activity = VoiceActivity()
        self._bands = Growing(NUM_BANDS)  # one per frame of the track
        self._filled = RecentFilledPauses() if coach.filled_per_min else None
        self._voice = Voice()
        self._learner = Learner()
        self._nudger = Nudger(coach)
        self._first = 0  # the track's first frame, as numbered in the session
        self._judged = self._curve = 0  # frames of the session that the network, the curve have
        self._last_speech = -1 - GAP_FRAMES  # frame of the session; none yet
        self._run_from = 0  # frame of the session after the last pause
        self._num_steps = 0
        self._waiting: list[Floats] = []
        self._rest = np.zeros(0, np.float32)
        self._needed = STEP_SAMPLES + AHEAD_SAMPLES  # for the next step
        self._events: list[CoachEvent] = []
        self._working = threading.Lock()

    def push(self, samples: Floats) -> None:
        """Take samples [n] float32 at 16 kHz."""
        self._waiting.append(samples)
        if sum(map(len, self._waiting)) > MAX_WAITING:
            with self._working:
                self._hear()

    def work(self) -> list[CoachEvent]:
        """Hear the samples that wait; return the events since the last call."""
        with self._working:
            self._hear()
            events, self._events = self._events, []
            return events

    def _hear(self) -> None:
        num = len(self._waiting)  # `push` may add more meanwhile
        self._rest = joined([self._rest, *self._waiting[:num]])
        del self._waiting[:num]
        while len(self._rest) >= self._needed:
            self._events += self._step(self._rest[: self._needed])
            self._rest = self._rest[self._needed :]
            self._needed = STEP_SAMPLES
        if len(self._events) > MAX_EVENTS:
            kept = [event for event in self._events[:-1] if not event.may_be_lost]
            self._events = [*kept, self._events[-1]][-MAX_EVENTS:]

    def _step(self, samples: Floats) -> list[CoachEvent]:
        """The events of 200 ms more."""
        raw = self._sound.add(samples, self._activity.push(samples))
        self._bands.append(in_bands(raw))
        if self._filled is not None:
            self._filled.changes.add(raw)
        self._num_steps += 1
        t_s = self._num_steps * STEP_SAMPLES / SAMPLE_RATE_HZ
        self._forget()
        frames = self._sound.frames()
        heard = self._judge(frames)
        events: list[CoachEvent] = [*self._learn(heard, frames, t_s)]
        events += self._nudger.hear(self._now(heard, frames, t_s), self._in_force)
        return [*events, self._news(frames, t_s)]

    def _forget(self) -> None:
        if self._sound.num_frames > MAX_FRAMES:
            self._sound.forget(FORGOTTEN_FRAMES)
            self._bands.drop(FORGOTTEN_FRAMES)
            if self._filled is not None:
                self._filled.changes.drop(FORGOTTEN_FRAMES)
            self._first += FORGOTTEN_FRAMES

    def _judge(self, frames: Frames) -> Heard:
        """The network's outputs for the new steps."""
        begin = self._judged - self._first
        num = (self._sound.num_pitched - begin) // STEP_FRAMES
        new = slice(begin, begin + num * STEP_FRAMES)
        self._judged = self._first + new.stop
        steps = Steps.of(self._bands.values[new], frames.level_db[new], frames.f0[new])
        speech: Flags = np.all(frames.speech[new].reshape(-1, STEP_FRAMES), axis=1)
        return self._voice.push(steps, speech)

    def _learn(self, heard: Heard, frames: Frames, t_s: float) -> list[BaselineKnown]:
        if self._in_force is not None:
            return [BaselineKnown(t_s, self._in_force)] if self._num_steps == 1 else []
        learner = self._learner
        before_s = learner.speech_s
        learner.take(heard, frames, self._sound.num_pitched, self._first)
        if int(learner.speech_s) == int(before_s):
            return []
        self.baseline = learner.found()
        if learner.speech_s < self._coach.learn_s or self.baseline is None:
            return []
        self._in_force = self.baseline
        return [BaselineKnown(t_s, self.baseline)]

    def _now(self, heard: Heard, frames: Frames, t_s: float) -> Now:
        end = self._first + len(frames.speech)
        spoken = self._first + np.flatnonzero(frames.speech)
        new = spoken[spoken > self._last_speech]
        begun = new[np.diff(new, prepend=self._last_speech) > GAP_FRAMES]
        if len(begun):
            self._run_from = int(begun[-1])
        if len(new):
            self._last_speech = int(new[-1])
        silent = end - 1 - self._last_speech
        silence_s = silent / FRAMES_PER_S if self._last_speech >= 0 else None
        run_s = (end - self._run_from) / FRAMES_PER_S if silent < GAP_FRAMES else 0.0
        pitched = frames.at(slice(self._sound.num_pitched))

        def lately(seconds: float, is_pitched: bool) -> SpeechMeasures:
            return (pitched if is_pitched else frames).last(seconds).measures()

        num_filled = 0
        if self._filled is not None:
            num_settled = max(0, self._sound.num_pitched - SETTLED_FRAMES)
            num_filled = self._filled.count(frames.at(slice(num_settled)), self._first)
        return Now(t_s, silence_s, run_s, heard, lately, num_filled)

    def _news(self, frames: Frames, t_s: float) -> CoachNews:
        begin = self._curve - self._first
        num = (self._sound.num_pitched - begin) // POINT_FRAMES
        new = slice(begin, begin + num * POINT_FRAMES)
        curve_s = self._curve / FRAMES_PER_S
        self._curve = self._first + new.stop
        f0 = frames.f0[new].reshape(-1, POINT_FRAMES)
        pitch = [float(np.median(row[row > 0])) if (row > 0).any() else None for row in f0]
        levels = decibel(frames.power[new].reshape(-1, POINT_FRAMES).mean(1)).tolist()
        last = frames.last(SHOWN_S).measures()
        return CoachNews(t_s, last, self._learner.speech_s, curve_s, tuple(pitch), tuple(levels))
