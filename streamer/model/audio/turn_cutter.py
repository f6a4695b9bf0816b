"""Cuts a session's audio into turns. In: PCM16, commits. Out: items (core/audio/turn_items.py).

What a turn holds does not depend on how the bytes were cut. Without turn detection a turn begins
with its first sample and ends with `commit`; with it, where voice activity says. A turn that
reaches `max_turn_s` goes on as another one. Synchronous, one caller at a time; memory: one window,
one second, and what is held back near `max_turn_s`.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from streamer.core.audio.chunker import Chunker
from streamer.core.audio.g711 import Encoding, from_g711
from streamer.core.audio.offset import OffsetFilter
from streamer.core.audio.pcm import SAMPLE_RATE_HZ, SAMPLES_PER_MS, Samples
from streamer.core.audio.turn_items import Item
from streamer.model.audio.measurer import TurnMeasurer
from streamer.model.audio.part_cutter import NOTHING, PartCutter
from streamer.model.audio.vad import (
    FRAME_MS,
    Frame,
    SpeechBegan,
    SpeechEnded,
    TurnDetector,
    TurnRule,
    VoiceActivity,
)


class TurnCutter:
    """Each of `push`, `commit`, `clear` returns items. Raises ValueError for a bad rate."""

    def __init__(
        self,
        sample_rate_hz: int,
        max_turn_s: float,
        rule: TurnRule | None = None,
        live_update_s: float | None = None,
        is_recording: bool = False,
        measures: bool = False,
        shows_measures: bool = False,
        encoding: Encoding = "pcm16",
        coach: Any = None,
    ) -> None:
        # takes all samples of the session, of no turn, too; see stages/events.py's LiveCoach
        self.coach = coach
        self._chunker = Chunker(sample_rate_hz)
        self._offset = OffsetFilter()
        self._is_float = is_recording
        self._encoding = encoding
        self._voice = VoiceActivity() if rule else None
        self._detector = TurnDetector(rule) if rule else None
        # with detection: what it said of the samples that no turn has taken yet
        self._frames: deque[Frame] | None = deque() if rule else None
        self._part = PartCutter(max_turn_s, live_update_s, self._frames, measures, shows_measures)
        # of what is before a turn, so much may become its padding
        padding_ms = rule.prefix_padding_ms + rule.min_start_ms + FRAME_MS if rule else 0
        self._num_kept = max(SAMPLE_RATE_HZ, SAMPLES_PER_MS * padding_ms)
        self._past = NOTHING  # with detection: what no turn has taken yet
        self._num_past = 0  # samples of the session before `_past`
        self._judged = 0  # samples of the session whose frame was judged

    @property
    def num_turns(self) -> int:
        """Turns opened so far."""
        return self._part.num_turns

    @property
    def is_ending(self) -> bool:
        """Whether voice activity is likely to end the turn in hand with what comes next."""
        return self._detector is not None and self._detector.is_ending

    @property
    def measurer(self) -> TurnMeasurer | None:
        """Of the turn in hand, where it is measured."""
        return self._part.measurer

    def push(self, pcm: bytes) -> list[Item]:
        """Hear mono PCM16 (little-endian) or G.711, cut at any byte; or whole float32 samples."""
        if self._is_float:
            return self._take(self._chunker.push(np.frombuffer(pcm, "<f4")))
        if self._encoding != "pcm16":
            return self._take(self._chunker.push(from_g711(pcm, self._encoding)))
        return self._take(self._chunker.push_pcm16(pcm))

    def commit(self) -> list[Item]:
        """End the turn in hand here; nothing when there is none."""
        items = self._take(self._chunker.finish())
        self._offset = OffsetFilter()
        if self._detector is not None:
            items += self._give(self._num_past + len(self._past))
            self._detector.restart(self._num_past // SAMPLES_PER_MS)
        return items + self._part.close()

    def settle(self, num_left: int) -> list[Item]:
        """Only `num_left` samples come before the commit: what was held back need not wait."""
        return self._part.settle(num_left)

    def clear(self) -> list[Item]:
        """Forget the turn in hand and all audio before it."""
        self._chunker.finish()
        self._offset = OffsetFilter()
        self._num_past = self._num_past + len(self._past)
        self._past = NOTHING
        if self._detector is not None:
            self._detector.restart(self._num_past // SAMPLES_PER_MS)
        return self._part.drop()

    def _take(self, chunk: Samples) -> list[Item]:
        samples = self._offset.push(chunk)
        if self.coach is not None:
            self.coach.push(samples)
        if self._detector is None or self._voice is None or self._frames is None:
            return self._part.push(samples) if len(samples) else []
        self._past = np.concatenate([self._past, samples])
        items: list[Item] = []
        for frame in self._voice.push(samples):
            self._judged = frame.end_sample
            self._frames.append(frame)
            match self._detector.push(frame):
                case SpeechBegan(at_ms):
                    self._forget(at_ms * SAMPLES_PER_MS)
                    items += self._part.open(at_ms, self._num_past)
                case SpeechEnded(at_ms, last_speech_ms):
                    items += self._give(at_ms * SAMPLES_PER_MS)
                    items += self._part.close(at_ms, last_speech_ms)
        # voice activity may still end the turn behind what is judged, never before it
        if self._part.is_open:
            return items + self._give(self._judged)
        self._forget(self._judged - self._num_kept)
        return items

    def _give(self, end: int) -> list[Item]:
        """Hand the turn in hand all samples before the session's sample `end`."""
        n = max(0, end - self._num_past)
        samples = self._past[:n]
        self._past = self._past[n:]
        self._num_past += len(samples)
        return self._part.push(samples) if self._part.is_open and len(samples) else []

    def _forget(self, end: int) -> None:
        n = min(len(self._past), max(0, end - self._num_past))
        self._past = self._past[n:]
        self._num_past = self._num_past + n
        while self._frames and self._frames[0].end_sample <= self._num_past:
            self._frames.popleft()
