"""A turn in hand, cut at `max_turn_s`. In: samples. Out: items (core/audio/turn_items.py)."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Any

import numpy as np

from streamer.core.audio.chunker import Chunker
from streamer.core.audio.pcm import (
    BEHIND_SAMPLES,
    SAMPLE_RATE_HZ,
    SAMPLES_PER_MS,
    WINDOW_SAMPLES,
    Encoding,
    OffsetFilter,
    Samples,
    from_g711,
)
from streamer.core.audio.turn_items import Closed, Dropped, Heard, Item, TurnOpened
from streamer.model.audio.ear import TurnMeasurer, TurnWindows
from streamer.model.audio.mel import MelWindow
from streamer.model.audio.vad import (
    FRAME_MS,
    Frame,
    SpeechBegan,
    SpeechEnded,
    TurnDetector,
    TurnRule,
    VoiceActivity,
)

SHORT_SAMPLES = 2 * SAMPLE_RATE_HZ  # a rest after max_turn_s that is too short to be described
SOON_SAMPLES = SAMPLE_RATE_HZ // 5
NOTHING: Samples = np.zeros(0, np.float32)


def _after_window(sample: int) -> int:
    """When an update that is due at `sample` may begin: after a window that ends soon."""
    boundary = -(-sample // WINDOW_SAMPLES) * WINDOW_SAMPLES + BEHIND_SAMPLES
    return boundary if boundary - sample < SOON_SAMPLES else sample


class PartCutter:
    """The turn in hand, cut at `max_turn_s`; the first sample opens one. Numbers the turns."""

    def __init__(
        self,
        max_turn_s: float,
        live_update_s: float | None = None,
        frames: deque[Frame] | None = None,
        measures: bool = False,
        shows_measures: bool = False,
    ) -> None:
        """frames: of the session, where voice activity has judged all samples that come, or most;
        None where the parts have to do it themselves. measures: of each turn, too."""
        self.num_turns = 0
        self._frames = frames
        # where the part in hand begins, and where the last one ended, in samples of the session
        self._begin = 0
        self._next = 0
        self._limit = int(max_turn_s * SAMPLE_RATE_HZ)
        self._short = min(SHORT_SAMPLES, self._limit // 2)
        self._every = None if live_update_s is None else int(live_update_s * SAMPLE_RATE_HZ)
        self._first = _after_window(self._every or 0)
        self._ear: TurnWindows | None = None
        self._measures = measures
        self._shows_measures = shows_measures
        self.measurer: TurnMeasurer | None = None
        self._next_update = 0
        self._held = NOTHING  # near the limit: too early to say which part it belongs to

    @property
    def is_open(self) -> bool:
        return self._ear is not None

    def open(self, at_ms: int | None = None, begin: int = 0) -> list[Item]:
        """Begin a turn, where none is open, at the session's sample `begin`."""
        if self._ear is not None:
            return []
        self._begin = begin
        self._next_update = self._first
        self.num_turns = self.num_turns + 1
        self.measurer = TurnMeasurer(self.num_turns - 1) if self._measures else None
        # with turn detection the frames begin elsewhere than the turn, and have other bits
        is_shared = self._frames is None
        self._ear = TurnWindows(self.measurer.voice if self.measurer and is_shared else None)
        return [TurnOpened(self.num_turns - 1, at_ms)]

    def push(self, samples: Samples) -> list[Item]:
        """Hear samples [n], n > 0, in as many parts as it takes."""
        items = self.open()
        while len(samples):
            assert self._ear is not None
            room = self._limit - self._short - self._ear.num_samples
            if room > 0:
                items += self._hear(samples[:room])
                samples = samples[room:]
                continue
            self._held = np.concatenate([self._held, samples])
            samples = NOTHING
            if len(self._held) >= 2 * self._short:
                samples = self._held
                self._held = NOTHING
                items += [
                    *self._hear(samples[: self._short]),
                    *self._finish(goes_on=True),
                    *self.open(begin=self._next),
                ]
                samples = samples[self._short :]
        return items

    def close(self, stopped_ms: int | None = None, last_speech_ms: int | None = None) -> list[Item]:
        """End the turn; what was held back is its own, or a last part where it is too long."""
        if self._ear is None:
            return []
        return [*self.settle(), *self._finish(stopped_ms, last_speech_ms)]

    def settle(self, num_left: int = 0) -> list[Item]:
        """Hear what was held back, now that only `num_left` samples follow: as the turn's own, or
        as a part of its own where it is too long for that."""
        held = self._held
        num_open = len(held) + num_left
        self._held = NOTHING
        items: list[Item] = []
        if num_open >= 2 * self._short:  # enough for this part to end where it may, at its limit
            items += self._hear(held[: self._short])
            held = held[self._short :]
        if num_open > self._short:
            items += [*self._finish(goes_on=True), *self.open(begin=self._next)]
        return items + self._hear(held) if len(held) else items

    def drop(self) -> list[Item]:
        """Forget the turn."""
        if self._ear is None:
            return []
        self._ear = None
        if self.measurer is not None:
            self.measurer.is_over = True  # what is being measured of it is no news any more
        self.measurer = None
        self._held = NOTHING
        return [Dropped(self.num_turns - 1)]

    def _hear(self, samples: Samples) -> list[Item]:
        ear = self._ear
        assert ear is not None
        if self.measurer is not None:
            self.measurer.push(samples)
        windows, heard = ear.push(samples, self._judged(ear.num_samples + len(samples)))
        provisional = None
        if (
            self._every is not None
            and ear.voice.has_speech
            and ear.num_samples >= self._next_update
        ):
            provisional = ear.provisional()
            self._next_update = _after_window((ear.num_samples // self._every + 1) * self._every)
        return [self._heard(ear, windows, heard, provisional)]

    def _heard(
        self,
        ear: TurnWindows,
        windows: list[MelWindow],
        samples: Samples,
        provisional: MelWindow | None,
    ) -> Heard:
        is_due = provisional is not None and self.measurer is not None
        return Heard(
            self.num_turns - 1,
            tuple(windows),
            ear.maximum,
            ear.num_heard,
            provisional,
            samples,
            ear.num_samples,
            self.measurer.so_far if is_due and self.measurer else None,
        )

    def _judged(self, end: int) -> list[Frame] | None:
        """The frames up to the part's sample `end`, as the part's own; none where its measures hear
        them for it, and None if they do not hear it."""
        if self._frames is None:
            return None if self.measurer is None else []
        found: list[Frame] = []
        while self._frames and self._frames[0].end_sample <= self._begin + end:
            frame = self._frames.popleft()
            if frame.end_sample > self._begin:
                found.append(Frame(frame.start_sample - self._begin, frame.probability))
        return found

    def _finish(
        self,
        stopped_ms: int | None = None,
        last_speech_ms: int | None = None,
        goes_on: bool = False,
    ) -> list[Item]:
        ear = self._ear
        self._ear = None
        measurer = self.measurer
        self.measurer = None
        if measurer is not None:
            measurer.is_over = True
        assert ear is not None
        self._next = self._begin + ear.num_samples
        rest, heard = ear.finish()
        last = [self._heard(ear, [], heard, None)] if len(heard) else []
        return [
            *last,
            Closed(
                self.num_turns - 1,
                tuple(rest),
                ear.maximum,
                ear.num_samples,
                ear.voice.has_speech,
                ear.voice.last_speech_sample,
                stopped_ms,
                last_speech_ms,
                goes_on,
                partial(measurer.finish, ear.voice.has_speech) if measurer else None,
                self._shows_measures,
                measurer.curves if measurer and self._shows_measures else None,
            ),
        ]


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
        # the most of the samples before a turn that may become its padding
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
    def measurer(self) -> TurnMeasurer | None:
        """The measures of the turn in hand, if it is measured."""
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
        # voice activity may still end the turn after the judged part, never before it
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
