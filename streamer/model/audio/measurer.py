"""One turn's samples come in; its measures come out, so far or of the whole turn.

`push` only takes samples, so that nobody waits for it. `work` and `finish` compute, on a thread of
their own. What comes out depends on the samples alone: not on how they were cut, and not on when
somebody worked. What it costs: docs/measures.md.
"""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.core.measures.curves import Curves
from streamer.core.measures.frames import HOP_SAMPLES as FRAME_SAMPLES
from streamer.core.measures.live_measures import EVERY_SAMPLES, Measures, measure_so_far
from streamer.core.measures.speech_measures import SpeechMeasures
from streamer.model.audio.mel_frames import MelFrames
from streamer.model.audio.pitch_track import PitchTrack, turn_track
from streamer.model.audio.turn_voice import TurnVoice, taken

Floats = NDArray[np.float32]
READ_SAMPLES = SAMPLE_RATE_HZ // 10  # what came so long before a turn's end is heard by then
AT_ONCE = 10 * SAMPLE_RATE_HZ  # a recording's backlog of a minute at once would take 100 MB


class TurnMeasurer:
    """Of one turn; `push` from one thread, the rest from any. What waits is the turn at most."""

    def __init__(self, turn: int = 0) -> None:
        self.is_over = False  # the turn's last sample is pushed
        self.num_pushed = 0
        self._turn = turn
        self._num_told = 0
        self._mel = MelFrames()
        self.voice = TurnVoice(is_read=True)  # for the turn's ear, too, where it hears the same
        self._pitch = PitchTrack()
        self._track = turn_track()
        self._waiting: list[Floats] = []
        self._hearing = threading.Lock()
        self._found: SpeechMeasures | None = None

    def push(self, samples: Floats) -> None:
        """Take samples [n] float32 at 16 kHz."""
        self.voice.hold(samples)  # before the others, so that it is never behind them
        self._waiting.append(samples)
        self.num_pushed += len(samples)

    def is_due(self, is_told: bool) -> bool:
        """Whether `work` would do anything. Of a live turn little is left to hear when it ends;
        to hear less than 100 ms at once would cost more."""
        is_much = self.num_pushed - self._track.num_samples >= READ_SAMPLES
        return (is_much or self._is_news or not is_told) and not self.is_over

    def work(self, is_told: bool = False) -> Measures | None:
        """Hear what waits, if it is due. is_told: return what is known, where 200 ms have come
        since the last time."""
        if not self.is_due(is_told):
            return None
        num = self.num_pushed // EVERY_SAMPLES
        is_news = is_told and self._is_news
        with self._hearing:
            self._hear()
            if not is_news or self.is_over:
                return None
            self._num_told = num
            return measure_so_far(self._turn, self._track)

    @property
    def _is_news(self) -> bool:
        return self.num_pushed // EVERY_SAMPLES > self._num_told

    def finish(self) -> SpeechMeasures:
        """Of the whole turn, when all its samples were pushed."""
        with self._hearing:
            if self._found is None:
                self._add(taken(self._waiting), self.voice.finish(), is_last=True)
                self._found = self._track.measures()
            return self._found

    def curves(self) -> Curves:
        """How F0, level and speech go along the whole turn, when all its samples were pushed."""
        self.finish()
        return Curves.of(self._track.frames())

    def _hear(self) -> None:
        if self._waiting:
            self._add(taken(self._waiting), self.voice.read())

    def _add(self, samples: Floats, probability: Floats, is_last: bool = False) -> None:
        """probability: of speech, at least as far as the samples go."""
        self._track.add_speech(probability)
        for at in range(0, max(1, len(samples)), AT_ONCE):
            piece = samples[at : at + AT_ONCE]
            self._track.add_samples(piece)
            is_end = is_last and at + AT_ONCE >= len(samples)
            rows = self._pitch.finish(piece) if is_end else self._pitch.push(piece)
            self._track.add_pitch(rows)
            raw = self._mel.finish(piece) if is_end else self._mel.push(piece)
            num_own = -(-self._track.num_samples // FRAME_SAMPLES)
            if len(raw):
                self._track.add_mel(raw[: num_own - self._track.num_heard])
