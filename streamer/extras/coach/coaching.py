"""One session's coach. In: the frames of the session's sound, in steps of 200 ms. Out: what it
hears, the baseline, and Nudges.

It knows nothing of turns: a silence between two of them is a silence. It holds 12 s of frames.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.core.measures.frames import FRAMES_PER_S, HOP_SAMPLES, Growing, decibel
from streamer.core.measures.speech_measures import SpeechMeasures
from streamer.core.measures.track import UNIT_SAMPLES, Flags, Floats, Frames, TurnTrack
from streamer.extras.coach.baseline import Baseline
from streamer.extras.coach.learner import Learner
from streamer.extras.coach.nudger import Now, Nudger
from streamer.extras.coach.options import Coach
from streamer.extras.coach.voice import NUM_BANDS, STEP_FRAMES, Heard, Steps, Voice, in_bands
from streamer.stages.events import CoachEvent

STEP_SAMPLES = SAMPLE_RATE_HZ // 5
SHOWN_S = 7.0
MAX_FRAMES = 12 * FRAMES_PER_S
FORGOTTEN_UNITS = 25  # 4 s
GAP_FRAMES = 25  # a pause that lets one breathe
POINT_FRAMES = 5  # of the curve: one for 50 ms


@dataclass(frozen=True, slots=True)
class CoachNews(CoachEvent):
    """What the coach hears at t_s of the session, 5 a second. last: of its last 7 s. learnt_s:
    seconds of speech that a baseline was learnt from so far. The curve: one point for each 50 ms
    from curve_s on; pitch in Hz or None where unvoiced, level in dBFS."""

    t_s: float
    last: SpeechMeasures
    learnt_s: float
    curve_s: float
    pitch_hz: tuple[float | None, ...]
    level_dbfs: tuple[float, ...]
    wire_type = "streamer.coach"
    may_be_lost = True

    def as_json(self) -> dict[str, Any]:
        """Plain types, rounded."""
        return {
            "t_s": round(self.t_s, 3),
            "last": self.last.as_json(),
            "learnt_s": round(self.learnt_s, 2),
            "curve_s": round(self.curve_s, 3),
            "pitch_hz": [None if hz is None else round(hz, 1) for hz in self.pitch_hz],
            "level_dbfs": [round(level, 1) for level in self.level_dbfs],
        }


@dataclass(frozen=True, slots=True)
class BaselineKnown(CoachEvent):
    """What the coach measures against from t_s on: learnt, or given."""

    t_s: float
    baseline: Baseline
    wire_type = "streamer.baseline"

    def as_json(self) -> dict[str, Any]:
        """Plain types, rounded."""
        return {"t_s": round(self.t_s, 3), "baseline": self.baseline.as_json()}


class Coaching:
    """Fill a step's frames in: `add_mel`, and `track` for the rest. Then `step`."""

    def __init__(self, coach: Coach, track: TurnTrack) -> None:
        self.track = track
        self.baseline = coach.baseline
        self._so_far: Baseline | None = None
        self._coach = coach
        self._voice = Voice()
        self._bands = Growing(NUM_BANDS)  # of the track's frames
        self._learner = Learner()
        self._nudger = Nudger(coach)
        self._first = 0  # number of the track's first frame in the session
        # frames of the session that were heard, and whose points were told
        self._heard = self._curve = 0
        self._last_speech: int | None = None  # frame of the session
        self._run_from = 0  # frame of the session, behind the last pause
        self._num_steps = 0

    def add_mel(self, raw: Floats) -> None:
        """[n_frames, 128] log10 mel power, of whole frames of 10 ms."""
        self.track.add_mel(raw)
        self._bands.append(in_bands(raw))

    def step(self) -> list[CoachEvent]:
        """What 200 ms more bring."""
        self._num_steps += 1
        t_s = self._num_steps * STEP_SAMPLES / SAMPLE_RATE_HZ
        self._forget()
        frames = self.track.frames()
        heard = self._hear(frames)
        events: list[CoachEvent] = [*self._learn(heard, frames, t_s)]
        events += self._nudger.hear(self._now(heard, frames, t_s), self.baseline)
        return [*events, self._news(frames, t_s)]

    @property
    def so_far(self) -> Baseline | None:
        """The baseline that is in force, or of what was said up to a second ago."""
        return self.baseline or self._so_far

    def _hear(self, frames: Frames) -> Heard:
        """What the steps say that are new."""
        begin = self._heard - self._first
        num = (self.track.num_pitched - begin) // STEP_FRAMES
        new = slice(begin, begin + num * STEP_FRAMES)
        self._heard = self._first + new.stop
        steps = Steps.of(self._bands.values[new], frames.level_db[new], frames.f0[new])
        speech: Flags = np.all(frames.speech[new].reshape(-1, STEP_FRAMES), axis=1)
        return self._voice.push(steps, speech)

    def _learn(self, heard: Heard, frames: Frames, t_s: float) -> list[BaselineKnown]:
        if self.baseline is not None:
            known = self._num_steps == 1
            return [BaselineKnown(t_s, self.baseline)] if known else []
        self._learner.hear(heard)
        before_s = self._learner.speech_s
        self._learner.take(frames, self.track.num_pitched, self._first)
        if int(self._learner.speech_s) == int(before_s):
            return []
        self._so_far = self._learner.found()
        if self._learner.speech_s < self._coach.learn_s:
            return []
        self.baseline = self._so_far
        return [BaselineKnown(t_s, self.baseline)] if self.baseline else []

    def _now(self, heard: Heard, frames: Frames, t_s: float) -> Now:
        end = self._first + len(frames.speech)
        at = np.flatnonzero(frames.speech)
        if len(at):
            self._last_speech = self._first + int(at[-1])
        gap = last_gap(frames.speech, GAP_FRAMES)
        if gap is not None:
            self._run_from = self._first + gap
        last = self._last_speech
        silence_s = None if last is None else (end - 1 - last) / FRAMES_PER_S
        run_s = (end - self._run_from) / FRAMES_PER_S
        known = self.track.num_pitched

        def lately(seconds: float, is_pitched: bool) -> SpeechMeasures:
            return (frames.until(known) if is_pitched else frames).last(seconds).measures()

        return Now(t_s, silence_s, run_s, heard, lately)

    def _news(self, frames: Frames, t_s: float) -> CoachNews:
        begin = self._curve - self._first
        end = begin + (self.track.num_pitched - begin) // POINT_FRAMES * POINT_FRAMES
        curve_s = self._curve / FRAMES_PER_S
        self._curve = self._first + end
        f0 = frames.f0[begin:end].reshape(-1, POINT_FRAMES)
        power = frames.power[begin:end].reshape(-1, POINT_FRAMES)
        pitch = [float(np.median(row[row > 0])) if (row > 0).any() else None for row in f0]
        levels = decibel(power.mean(1)).tolist() if len(power) else []
        last = frames.last(SHOWN_S).measures()
        return CoachNews(t_s, last, self._learner.speech_s, curve_s, tuple(pitch), tuple(levels))

    def _forget(self) -> None:
        if self.track.num_frames > MAX_FRAMES:
            frames = FORGOTTEN_UNITS * UNIT_SAMPLES // HOP_SAMPLES
            self.track.forget(FORGOTTEN_UNITS)
            self._bands.drop(frames)
            self._first += frames


def last_gap(speech: Flags, least: int) -> int | None:
    """Where speech begins again behind the last gap of `least` frames; the frames' end where one
    goes on; None where there is none."""
    at = np.flatnonzero(speech)
    if not len(at) or len(speech) - int(at[-1]) - 1 >= least:
        return len(speech)
    long = at[1:][np.diff(at) > least]
    return int(long[-1]) if len(long) else None
