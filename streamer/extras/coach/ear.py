"""A session's samples come in; what its coach says comes out. Beside the turns, on own threads.

The samples are heard in steps of 200 ms, so what is said does not depend on how they were cut, or
on when somebody worked.
"""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.extras.coach.baseline import Baseline
from streamer.extras.coach.coaching import STEP_SAMPLES, Coaching, CoachNews
from streamer.extras.coach.options import Coach
from streamer.model.audio.mel import HALF_SAMPLES, MelFrames
from streamer.model.audio.pitch import PitchTrack, turn_track
from streamer.model.audio.vad import VoiceActivity, taken
from streamer.stages.events import CoachEvent

Floats = NDArray[np.float32]
MAX_WAITING = 30 * SAMPLE_RATE_HZ  # then whoever pushes works
MAX_EVENTS = 200  # that wait; then older news is dropped, and nudges after it
AHEAD_SAMPLES = HALF_SAMPLES + 40  # so much a block of log-mel needs behind its last frame


class CoachEar:
    """`push` from one thread, `work` from any. baseline: how the speaker usually speaks, as known
    when somebody worked last; None while too little was said."""

    def __init__(self, coach: Coach) -> None:
        self.baseline: Baseline | None = coach.baseline
        self._coaching = Coaching(coach, turn_track())
        self._mel = MelFrames()
        self._voice = VoiceActivity()
        self._pitch = PitchTrack()
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
        """Hear what waits; the events since the last time."""
        with self._working:
            self._hear()
            self.baseline = self._coaching.so_far
            events = self._events
            self._events = []
            return events

    def _hear(self) -> None:
        self._rest = np.concatenate([self._rest, taken(self._waiting)])
        while len(self._rest) >= self._needed:
            self._step(self._rest[: self._needed])
            self._rest = self._rest[self._needed :]
            self._needed = STEP_SAMPLES
        if len(self._events) > MAX_EVENTS:
            told = [event for event in self._events[:-1] if not isinstance(event, CoachNews)]
            self._events = [*told, self._events[-1]][-MAX_EVENTS:]

    def _step(self, samples: Floats) -> None:
        track = self._coaching.track
        track.add_samples(samples)
        self._coaching.add_mel(self._mel.push(samples))
        frames = self._voice.push(samples)
        track.add_speech(np.array([frame.probability for frame in frames], np.float32))
        track.add_pitch(self._pitch.push(samples))
        self._events += self._coaching.step()
