"""The coach of one session: samples in, events out.

It hears the sound in steps of 200 ms, so its events depend neither on how the samples were cut nor
on when `work` was called. It knows nothing of turns: a silence between two of them is a silence. It
holds 12 s of frames, and until the baseline is known those of the speech, without long silences.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np

from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.core.measures.frames import (
    FRAMES_PER_S,
    PAUSE_FRAMES,
    Floats,
    Frames,
    Growing,
    decibel,
    runs,
    without_gaps,
)
from streamer.core.measures.speech_measures import SpeechMeasures
from streamer.extras.coach.nudges import (
    NUM_BANDS,
    STEP_FRAMES,
    STEPS_PER_S,
    Heard,
    Now,
    Nudger,
    Voice,
    in_bands,
    steps_of,
)
from streamer.extras.coach.options import Baseline, BaselineError, Coach
from streamer.model.audio import density
from streamer.model.audio.ear import SoundTrack
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
SETTLED_FRAMES = 60  # earlier frames than these newest ones no longer change
LONG_PAUSE_FRAMES = 150  # a longer one is no pause within speech
MIN_SPEECH_S = 5.0
MEASURED = [each.name for each in fields(Baseline)][:5]  # those that are of SpeechMeasures
PRIOR_S = 40  # seconds that the SD of people counts beside a speaker's own
# SDs of a second's mean of loudness, tempo and melody: about those of 45 readers that the network
# did not learn from, 1.3, 0.18 and 0.19 (2026-11). The limits of nudges.py were chosen with them.
SPREADS = (1.3, 0.19, 0.2)
T = TypeVar("T", Heard, Frames)


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


def usual_of(values: Floats, weights: Floats, spread: float) -> tuple[float, float] | None:
    """The mean of steps [n] with weights [n], and the SD of their mean over a second; None before
    two seconds. The SD is drawn towards `spread`, that of people, as if PRIOR_S more seconds had
    been heard."""
    whole = len(values) // STEPS_PER_S * STEPS_PER_S
    rows = np.array([weights, weights.astype(float) * values])[:, :whole]
    count, total = rows.reshape(2, -1, STEPS_PER_S).mean(2)
    if len(count) < 2:
        return None
    # added one after the other, so that a longer past changes no bit of its sum
    weight, first, second = np.cumsum([count, total, total**2 / count], 1)[:, -1].tolist()
    own = max(0.0, second - first * first / weight)
    variance = (own + PRIOR_S * spread**2) / (len(count) - 1 + PRIOR_S)
    return first / weight, variance**0.5


class Learner:
    """Learns a baseline: call `take` for each step, then read `found`. speech_s: seconds of speech
    taken, short gaps included."""

    def __init__(self) -> None:
        self.speech_s = 0.0
        self._heard = Heard(*np.zeros((4, 0), np.float32))
        self._frames: Frames | None = None
        self._end = 0  # frames of the session that were taken

    def take(self, heard: Heard, frames: Frames, num_pitched: int, first: int) -> bool:
        """Add new steps; whether another second of speech is whole with them. frames: all until
        now; F0 is known in the first `num_pitched` of them. first: number of the first frame in the
        session."""
        before_s = self.speech_s
        self._heard = _joined(self._heard, heard)
        begin = max(0, self._end - first)
        end = max(begin, num_pitched - SETTLED_FRAMES)
        self._end = first + end
        if end == begin:
            return False
        spoken = without_gaps(frames.speech, PAUSE_FRAMES)[begin:end]
        self.speech_s += float(spoken.sum()) / FRAMES_PER_S
        new = frames.at(slice(begin, end))
        new = _joined(self._frames, new) if self._frames else new
        self._frames = without_long_pauses(new).last(600)  # bounded, where noise passes for speech
        return int(self.speech_s) > int(before_s)

    def found(self) -> Baseline | None:
        """None while there is too little speech, or where the sound is no voice."""
        *values, trust = self._heard
        weights = trust, np.ones_like(values[1]), np.ones_like(values[2])
        usual = list(map(usual_of, values, weights, SPREADS))
        if self._frames is None or self.speech_s < MIN_SPEECH_S or None in usual:
            return None
        measures = self._frames.measures()
        numbers = [getattr(measures, name) for name in MEASURED]
        if None in numbers:
            return None
        numbers += [self.speech_s, *(number for pair in usual if pair for number in pair)]
        with suppress(BaselineError):
            return Baseline(*map(float, numbers))
        return None


def _joined(before: T, after: T) -> T:
    """Two tuples of arrays as one, field by field."""
    parts: Any = map(np.concatenate, zip(before, after, strict=True))
    return type(before)(*parts)


def without_long_pauses(frames: Frames) -> Frames:
    """`frames` without silences that are too long for a pause. A silence at the end, which may go
    on, keeps enough frames to be found again."""
    kept = np.ones(len(frames.speech), bool)
    for begin, end in runs(~frames.speech):
        if end - begin > LONG_PAUSE_FRAMES:
            last = LONG_PAUSE_FRAMES + 1 if end == len(kept) else 0
            kept[begin : end - last] = False
    return frames.at(kept)


class RecentFilledPauses:
    """Those of the last minute of a session, each counted once its frames no longer change."""

    def __init__(self) -> None:
        self._ends: list[int] = []  # frames of the session
        self._searched = 0  # frames of the session

    def count(self, frames: Frames, changes: Floats, first: int) -> int:
        """How many. frames: the latest ones, of which none changes any more; first: number of the
        first one in the session."""
        until = first + len(frames.f0) - density.MAX_EDGE - 1  # both sides of one must be known
        counted = self._ends[-1] if self._ends else 0
        for begin, end in density.filled_pauses(frames, changes):
            if self._searched < first + end <= until and counted <= first + begin:
                counted = first + end
                self._ends.append(counted)
        self._searched = max(self._searched, until)
        self._ends = [end for end in self._ends if end > until - 60 * FRAMES_PER_S]
        return len(self._ends)


class SessionCoach:
    """`push` only takes samples; `work` hears them and returns the events.

    baseline: the one in force, or of the speech so far; None while there is too little.
    """

    def __init__(self, coach: Coach) -> None:
        self.baseline: Baseline | None = coach.baseline
        self._coach = coach
        self._in_force: Baseline | None = None
        self._sound = SoundTrack()
        self._activity = VoiceActivity()
        self._bands = Growing(NUM_BANDS)  # one per frame of the track
        self._changes = density.Changes()
        self._filled = RecentFilledPauses()
        self._voice = Voice()
        self._learner = Learner()
        self._nudger = Nudger(coach)
        self._judged = self._curve = 0  # frames of the session that the network, the curve have
        self._last_speech = -1 - GAP_FRAMES  # frame of the session; none yet
        self._run_from = 0  # frame of the session after the last pause
        self._waiting = np.zeros(0, np.float32)

    def push(self, samples: Floats) -> None:
        """Take samples [n] float32 at 16 kHz."""
        self._waiting = np.concatenate([self._waiting, samples])

    def work(self) -> list[CoachEvent]:
        """Hear the samples that wait. Returns their events."""
        events: list[CoachEvent] = []
        while True:
            # the first step also waits for the samples that each step looks ahead
            needed = STEP_SAMPLES + (0 if self._sound.num_samples else AHEAD_SAMPLES)
            if len(self._waiting) < needed:
                return events
            events += self._step(self._waiting[:needed])
            self._waiting = self._waiting[needed:]

    def _step(self, samples: Floats) -> list[CoachEvent]:
        """The events of 200 ms more."""
        sound = self._sound
        raw = sound.add(samples, self._activity.push(samples))
        self._bands.append(in_bands(raw))
        self._changes.add(raw)
        t_s = (sound.num_samples - AHEAD_SAMPLES) / SAMPLE_RATE_HZ
        if sound.num_frames > MAX_FRAMES:
            for held in (self._bands, self._changes, sound):
                held.drop(FORGOTTEN_FRAMES)
        frames = sound.frames()
        new = self._unseen(self._judged, STEP_FRAMES)
        self._judged = sound.num_dropped + new.stop
        steps = steps_of(self._bands.values[new], frames.level_db[new], frames.f0[new])
        speech = np.all(frames.speech[new].reshape(-1, STEP_FRAMES), axis=1)
        heard = self._voice.push(steps, speech)
        events: list[CoachEvent] = [*self._learn(heard, frames, t_s)]
        events += self._nudger.hear(self._now(heard, frames, t_s), self._in_force)
        return [*events, self._news(frames, t_s)]

    def _unseen(self, seen: int, size: int) -> slice:
        """The track's frames in whole steps of `size`, from the session's frame `seen` on."""
        begin = seen - self._sound.num_dropped
        return slice(begin, begin + (self._sound.num_pitched - begin) // size * size)

    def _learn(self, heard: Heard, frames: Frames, t_s: float) -> list[BaselineKnown]:
        if self._in_force is not None:
            return []
        usual = self._coach.baseline
        if usual is None:
            learner, sound = self._learner, self._sound
            if not learner.take(heard, frames, sound.num_pitched, sound.num_dropped):
                return []
            self.baseline = usual = learner.found()
            if learner.speech_s < self._coach.learn_s or usual is None:
                return []
        self._in_force = usual
        return [BaselineKnown(t_s, usual)]

    def _now(self, heard: Heard, frames: Frames, t_s: float) -> Now:
        end = self._sound.num_dropped + len(frames.speech)
        spoken = self._sound.num_dropped + np.flatnonzero(frames.speech)
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
        if self._coach.filled_per_min:
            settled = frames.at(slice(max(0, self._sound.num_pitched - SETTLED_FRAMES)))
            num_filled = self._filled.count(settled, self._changes.values, self._sound.num_dropped)
        return Now(t_s, silence_s, run_s, heard, lately, num_filled)

    def _news(self, frames: Frames, t_s: float) -> CoachNews:
        new = self._unseen(self._curve, POINT_FRAMES)
        curve_s = self._curve / FRAMES_PER_S
        self._curve = self._sound.num_dropped + new.stop
        f0 = frames.f0[new].reshape(-1, POINT_FRAMES)
        pitch = [float(np.median(row[row > 0])) if (row > 0).any() else None for row in f0]
        levels = decibel(frames.power[new].reshape(-1, POINT_FRAMES).mean(1)).tolist()
        last = frames.last(SHOWN_S).measures()
        return CoachNews(t_s, last, self._learner.speech_s, curve_s, tuple(pitch), tuple(levels))
