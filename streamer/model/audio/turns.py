"""Cut a session's audio into turns: bytes and commits in, items (core/audio/turn_items.py) out.

The content of a turn does not depend on how the bytes were cut. Without turn detection a turn
begins with its first sample and ends with `commit`; with it, voice activity decides. A turn that
reaches `max_turn_s` goes on as another one. Synchronous, one caller at a time. Memory: one window,
some seconds before the first speech, and the samples that are held back near `max_turn_s`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
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
    Volume,
    from_g711,
)
from streamer.core.audio.trim import Span, Trim
from streamer.core.audio.turn_items import Closed, Dropped, Heard, Item, TurnOpened
from streamer.model.audio.ear import TurnMeasurer
from streamer.model.audio.mel import MelWindow, StreamingLogMel
from streamer.model.audio.vad import (
    FRAME_MS,
    Frame,
    SpeechBegan,
    SpeechEnded,
    TurnDetector,
    TurnRule,
    TurnVoice,
    VoiceActivity,
    led,
)

SHORT_SAMPLES = 2 * SAMPLE_RATE_HZ  # a rest after max_turn_s that is too short to be described
SOON_SAMPLES = SAMPLE_RATE_HZ // 5
NOTHING: Samples = np.zeros(0, np.float32)


class Part:
    """A turn in hand, or a part of one."""

    def __init__(self, turn: int, begin: int, has_frames: bool, measures: bool) -> None:
        """begin: the session's sample where it begins. has_frames: `hear` is given the session's
        frames; else the part judges its samples itself."""
        self.turn = turn
        self.begin = begin
        self.num_samples = 0
        self._volume = Volume()
        self.voice = TurnVoice()
        self.mel = StreamingLogMel()  # of the part between its first and last sound
        self._trim = Trim()
        self.span = Span(self._trim)
        self.measurer = TurnMeasurer(turn) if measures else None
        self._has_frames = has_frames
        self._waiting: list[Frame] = []  # until it is known where the span begins
        self._is_placed = False

    def hear(self, samples: Samples, frames: list[Frame]) -> tuple[list[MelWindow], Samples]:
        """Take samples [n]; return the windows that are complete, and the samples heard now."""
        self.num_samples += len(samples)
        self._volume.add(samples)
        heard = self._trim.push(samples)
        self._judge(self.span.push(samples), frames)
        return self.mel.push(heard), heard

    def _judge(self, spoken: Samples, frames: Sequence[Frame], is_last: bool = False) -> None:
        """Hear samples [n] of the span. frames: the session's that came meanwhile."""
        if self._has_frames:
            frames = [Frame(frame.start_sample - self.begin, frame.probability) for frame in frames]
            for frame in frames:
                self.voice.count(frame)
            frames = self._in_span(frames) if self.measurer else []
        else:
            spoken, frames = self.voice.hear(spoken, is_last)
        if self.measurer is not None:
            self.measurer.place(self.span.begin + self.voice.begin, self.num_samples)
            self.measurer.push(spoken, frames)

    def _in_span(self, frames: Sequence[Frame]) -> list[Frame]:
        """The turn's frames as frames of the span, from its begin on, once that is known. There is
        no speech in a lead that the turn does not have."""
        self._waiting += frames
        if not self.span.is_open:
            return []
        begin = self.span.begin
        found = [Frame(f.start_sample - begin, f.probability) for f in self._waiting]
        found = [frame for frame in found if frame.end_sample > 0]
        self._waiting.clear()
        if found and not self._is_placed:
            self._is_placed = True
            return led(found)
        return found

    def heard(
        self, windows: list[MelWindow], samples: Samples, provisional: MelWindow | None = None
    ) -> Heard:
        """The item for these windows and samples."""
        mel = self.mel
        return Heard(
            self.turn,
            tuple(windows),
            mel.maximum,
            mel.num_samples,
            provisional,
            samples,
            self.num_samples,
            self.measurer.so_far if provisional is not None and self.measurer else None,
        )

    def finish(
        self,
        stopped_ms: int | None,
        last_speech_ms: int | None,
        goes_on: bool,
        shows_measures: bool,
    ) -> list[Item]:
        """End it: Heard for samples that were held back, then Closed."""
        measurer = self.measurer
        samples = self._trim.finish()
        rest = [*self.mel.push(samples), *self.mel.finish()]
        self._judge(self.span.finish(), [], is_last=True)
        if measurer is not None:
            measurer.is_over = True
        has_speech, last_speech = self.voice.has_speech, self.voice.last_speech_sample
        if last_speech is not None and not self._has_frames:
            last_speech += self.span.begin
        closed = Closed(
            self.turn,
            tuple(rest),
            self.mel.maximum,
            self.num_samples,
            has_speech,
            last_speech,
            stopped_ms,
            last_speech_ms,
            goes_on,
            partial(measurer.finish, has_speech) if measurer else None,
            shows_measures,
            measurer.curves if measurer and shows_measures else None,
            self._volume.is_quiet,
        )
        return [*([self.heard([], samples)] if len(samples) else []), closed]


class PartCutter:
    """The turn in hand, cut at `max_turn_s`; its first sample opens one. Numbers the turns."""

    def __init__(
        self,
        max_turn_s: float,
        live_update_s: float | None = None,
        frames: deque[Frame] | None = None,
        measures: bool = False,
        shows_measures: bool = False,
    ) -> None:
        """frames: the session's, if voice activity judges its samples anyway."""
        self.num_turns = 0
        self._part: Part | None = None
        self._frames = frames
        self._next = 0  # the session's sample where the last part ended
        self._limit = int(max_turn_s * SAMPLE_RATE_HZ)
        self._short = min(SHORT_SAMPLES, self._limit // 2)
        self._every = None if live_update_s is None else int(live_update_s * SAMPLE_RATE_HZ)
        self._next_update = 0
        self._measures = measures
        self._shows_measures = shows_measures
        self._held = NOTHING  # near the limit: too early to say which part it belongs to

    @property
    def is_open(self) -> bool:
        return self._part is not None

    @property
    def measurer(self) -> TurnMeasurer | None:
        """Of the turn in hand, if it is measured."""
        return self._part.measurer if self._part else None

    def open(self, at_ms: int | None = None, begin: int = 0) -> list[Item]:
        """Begin a turn, if none is open, at the session's sample `begin`."""
        if self._part is not None:
            return []
        self._part = Part(self.num_turns, begin, self._frames is not None, self._measures)
        self._next_update = _after_window(self._every or 0)
        self.num_turns += 1
        return [TurnOpened(self.num_turns - 1, at_ms)]

    def push(self, samples: Samples) -> list[Item]:
        """Hear samples [n], n > 0, in as many parts as it takes."""
        items = self.open()
        while len(samples):
            assert self._part is not None
            room = self._limit - self._short - self._part.num_samples
            if room > 0:
                items += self._hear(samples[:room])
                samples = samples[room:]
                continue
            self._held, samples = np.concatenate([self._held, samples]), NOTHING
            if len(self._held) >= 2 * self._short:
                samples, self._held = self._held, NOTHING
                items += self._hear(samples[: self._short]) + self._go_on()
                samples = samples[self._short :]
        return items

    def close(self, stopped_ms: int | None = None, last_speech_ms: int | None = None) -> list[Item]:
        """End the turn. Held samples belong to it, or are a last part if it is too long."""
        if self._part is None:
            return []
        return [*self.settle(), *self._finish(stopped_ms, last_speech_ms, goes_on=False)]

    def settle(self, num_left: int = 0) -> list[Item]:
        """Hear the samples that are held, now that only `num_left` samples follow: as the turn's
        own, or as a part of their own if the turn is too long for that."""
        held, self._held = self._held, NOTHING
        num_open = len(held) + num_left
        items: list[Item] = []
        if num_open >= 2 * self._short:  # enough for this part to end at its limit
            items += self._hear(held[: self._short])
            held = held[self._short :]
        if num_open > self._short:
            items += self._go_on()
        return items + self._hear(held) if len(held) else items

    def drop(self) -> list[Item]:
        """Forget the turn."""
        if self._part is None:
            return []
        if self._part.measurer is not None:
            self._part.measurer.is_over = True  # its measures are no news any more
        self._part = None
        self._held = NOTHING
        return [Dropped(self.num_turns - 1)]

    def _hear(self, samples: Samples) -> list[Item]:
        part = self._part
        assert part is not None
        frames = _judged(self._frames, part.begin + part.num_samples + len(samples))
        windows, heard = part.hear(samples, frames)
        provisional = None
        if (
            self._every is not None
            and part.voice.has_speech
            and part.num_samples >= self._next_update
        ):
            provisional = part.mel.provisional()
            self._next_update = _after_window((part.num_samples // self._every + 1) * self._every)
        return [part.heard(windows, heard, provisional)]

    def _go_on(self) -> list[Item]:
        """End this part; the turn goes on as another."""
        return [*self._finish(None, None, goes_on=True), *self.open(begin=self._next)]

    def _finish(
        self, stopped_ms: int | None, last_speech_ms: int | None, goes_on: bool
    ) -> list[Item]:
        part, self._part = self._part, None
        assert part is not None
        self._next = part.begin + part.num_samples
        return part.finish(stopped_ms, last_speech_ms, goes_on, self._shows_measures)


def _judged(frames: deque[Frame] | None, end: int) -> list[Frame]:
    """Take the session's frames up to its sample `end`."""
    found = []
    while frames and frames[0].end_sample <= end:
        found.append(frames.popleft())
    return found


def _after_window(sample: int) -> int:
    """When an update that is due at `sample` may begin: after a window that ends soon after it."""
    boundary = -(-sample // WINDOW_SAMPLES) * WINDOW_SAMPLES + BEHIND_SAMPLES
    return boundary if boundary - sample < SOON_SAMPLES else sample


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
        """coach: takes all samples of the session, also between turns; see stages/events.py's
        LiveCoach."""
        self.coach = coach
        self._chunker = Chunker(sample_rate_hz)
        self._offset = OffsetFilter()
        self._is_float = is_recording
        self._encoding = encoding
        self._voice = VoiceActivity() if rule else None
        self._detector = TurnDetector(rule) if rule else None
        # with detection: the frames of samples that no turn has taken yet
        self._frames: deque[Frame] | None = deque() if rule else None
        self._part = PartCutter(max_turn_s, live_update_s, self._frames, measures, shows_measures)
        # samples before a turn that may become its padding
        padding_ms = rule.prefix_padding_ms + rule.min_start_ms + FRAME_MS if rule else 0
        self._num_kept = max(SAMPLE_RATE_HZ, SAMPLES_PER_MS * padding_ms)
        self._past = NOTHING  # with detection: samples that no turn has taken yet
        self._num_past = 0  # samples of the session before `_past`
        self._judged = 0  # samples of the session whose frame was judged

    @property
    def num_turns(self) -> int:
        """Turns opened so far."""
        return self._part.num_turns

    @property
    def measurer(self) -> TurnMeasurer | None:
        """Of the turn in hand, if it is measured."""
        return self._part.measurer

    def push(self, pcm: bytes) -> list[Item]:
        """Hear mono PCM16 (little-endian) or G.711, cut at any byte; or whole float32 samples."""
        if self._is_float:
            return self._take(self._chunker.push(np.frombuffer(pcm, "<f4")))
        if self._encoding != "pcm16":
            return self._take(self._chunker.push(from_g711(pcm, self._encoding)))
        return self._take(self._chunker.push_pcm16(pcm))

    def commit(self) -> list[Item]:
        """End the turn in hand here; nothing if there is none."""
        items = self._take(self._chunker.finish())
        self._offset = OffsetFilter()
        if self._detector is not None:
            items += self._give(self._num_past + len(self._past))
            self._detector.restart(self._num_past // SAMPLES_PER_MS)
        return items + self._part.close()

    def settle(self, num_left: int) -> list[Item]:
        """Only `num_left` samples come before the commit: held samples need not wait."""
        return self._part.settle(num_left)

    def clear(self) -> list[Item]:
        """Forget the turn in hand and all audio before it."""
        self._chunker.finish()
        self._offset = OffsetFilter()
        self._before(self._num_past + len(self._past))
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
        # voice activity may still end the turn after the last judged sample, never before it
        if self._part.is_open:
            return items + self._give(self._judged)
        self._forget(self._judged - self._num_kept)
        return items

    def _give(self, end: int) -> list[Item]:
        """Give the turn in hand all samples before the session's sample `end`."""
        samples = self._before(end)
        return self._part.push(samples) if self._part.is_open and len(samples) else []

    def _before(self, end: int) -> Samples:
        """Take the samples before the session's sample `end`."""
        num = max(0, end - self._num_past)
        samples, self._past = self._past[:num], self._past[num:]
        self._num_past += len(samples)
        return samples

    def _forget(self, end: int) -> None:
        self._before(end)
        _judged(self._frames, self._num_past)
