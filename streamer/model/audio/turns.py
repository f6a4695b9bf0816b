"""Cut a session's audio into turns: bytes and commits in, items (core/audio/turn.py) out.

The content of a turn does not depend on how the bytes were cut. Without turn detection a turn
begins with its first sample and ends with `commit`; with it, voice activity decides. A turn that
reaches `max_turn_s` goes on as another one. Synchronous, one caller at a time. Memory: one window,
some seconds before the first speech, and the samples that are held back near `max_turn_s`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from streamer.core.audio import pcm
from streamer.core.audio.pcm import SAMPLE_RATE_HZ, SAMPLES_PER_MS, Chunker, OffsetFilter, Samples
from streamer.core.audio.turn import NOTHING, Closed, Dropped, Heard, Item, Recent, Trim, TurnOpened
from streamer.core.measures.speech_measures import SpeechMeasures
from streamer.model.audio.ear import TurnMeasurer
from streamer.model.audio.mel import StreamingLogMel
from streamer.model.audio.vad import LATE_MS, Frame, TurnDetector, TurnVoice, VoiceActivity

SHORT_SAMPLES = 2 * SAMPLE_RATE_HZ  # a rest after max_turn_s that is too short to be described
SOON_SAMPLES = SAMPLE_RATE_HZ // 5
LOUD_SAMPLES = 100  # some clicks have fewer


@dataclass(eq=False)
class Part:
    """A turn in hand, or a part of one. begin: the session's sample where it begins. frames: the
    session's that no turn has taken yet; None: the part judges its samples itself. every: samples
    between live updates; 0: none."""

    turn: int = 0
    begin: int = 0
    frames: deque[Frame] | None = None
    measurer: TurnMeasurer | None = None
    every: int = 0
    num_samples: int = 0
    _updated: int = 0  # samples at the last update
    _has_sound: bool = False
    _num_loud: int = 0  # samples over QUIET_DBFS
    _voice: TurnVoice = field(default_factory=TurnVoice)
    _trim: Trim = field(default_factory=Trim)
    _mel: StreamingLogMel = field(default_factory=StreamingLogMel)  # from first to last sound

    @property
    def end(self) -> int:
        """The session's sample after its last."""
        return self.begin + self.num_samples

    def hear(self, samples: Samples) -> Heard:
        """Take samples [n]; return the windows that are complete, and the samples heard now."""
        self.num_samples += len(samples)
        self._has_sound |= bool(samples.any())
        self._num_loud += int((np.abs(samples) > 10 ** (pcm.QUIET_DBFS / 20)).sum())
        heard, spoken = self._trim.push(samples)
        self._judge(spoken)
        windows = tuple(self._mel.push(heard))
        maximum, num_taken = self._mel.maximum, self.num_samples
        found = Heard(self.turn, windows, maximum, samples=heard, num_taken=num_taken)
        if not self.every or not self._voice.has_speech:
            return found
        due = (self._updated // self.every + 1) * self.every
        # an update begins after a window that ends soon after it is due
        boundary = -(-due // pcm.WINDOW_SAMPLES) * pcm.WINDOW_SAMPLES + pcm.BEHIND_SAMPLES
        if num_taken < (boundary if boundary - due < SOON_SAMPLES else due):
            return found
        self._updated = num_taken
        so_far = partial(self.measurer.measures, is_last=False) if self.measurer else None
        return replace(found, provisional=self._mel.provisional(), measures=so_far)

    def finish(self, shows_measures: bool = False, **ended: Any) -> list[Item]:
        """End it: Heard for samples held back, then Closed. ended: its fields that tell how."""
        measurer, voice = self.measurer, self._voice
        samples, spoken = self._trim.push(NOTHING, is_last=True)
        rest = (*self._mel.push(samples), *self._mel.finish())
        self._judge(spoken, is_last=True)
        if measurer is not None:
            measurer.is_over = True
        last_speech = voice.last_speech_sample
        if last_speech is not None and self.frames is None:
            last_speech += self._trim.span_begin or 0
        maximum, num_taken = self._mel.maximum, self.num_samples
        heard = Heard(self.turn, (), maximum, samples=samples, num_taken=num_taken)
        closed = Closed(
            self.turn,
            rest,
            maximum,
            num_samples=num_taken,
            has_speech=voice.has_speech,
            last_speech=last_speech,
            measures=partial(measurer.measures, voice.has_speech) if measurer else None,
            curves=measurer.curves if measurer and shows_measures else None,
            is_quiet=self._has_sound and self._num_loud < LOUD_SAMPLES,
            **ended,
        )
        return [heard, closed] if len(samples) else [closed]

    def _judge(self, spoken: Samples, is_last: bool = False) -> None:
        """Hear samples [n] of the span; take the session's frames once its begin is known."""
        frames: list[Frame] = []
        span_begin = self._trim.span_begin
        if self.frames is None:
            spoken, frames = self._voice.hear(spoken, is_last)
        elif span_begin is not None:
            for frame in _taken(self.frames, self.end):
                self._voice.count(frame.later(-self.begin))
                frames.append(frame.later(-self.begin - span_begin))
            frames = [frame for frame in frames if frame.end_sample > 0]
        if self.measurer is not None:
            begin = (span_begin or 0) + self._voice.begin
            self.measurer.push(spoken, frames, begin, self.num_samples)


def _taken(frames: deque[Frame], end: int) -> list[Frame]:
    """Take the session's frames up to its sample `end`."""
    found = []
    while frames and frames[0].end_sample <= end:
        found.append(frames.popleft())
    return found


@dataclass(eq=False)
class TurnCutter:
    """Each of `push`, `commit`, `settle`, `clear` returns items. Raises ValueError for a bad rate.
    rule: stages/events.py's TurnDetection. shows_measures: items have curves, too. coach: takes all
    samples of the session, also between turns; the entry point `coach.live` makes it."""

    sample_rate_hz: int
    max_turn_s: float
    rule: Any = None
    live_update_s: float | None = None
    is_recording: bool = False
    measures: bool = False
    shows_measures: bool = False
    encoding: pcm.Encoding = "pcm16"
    coach: Any = None
    num_turns: int = 0  # opened in this session

    def __post_init__(self) -> None:
        self._chunker = Chunker(self.sample_rate_hz)
        self._offset = OffsetFilter()
        self._half = b""  # of a sample; at the end of a turn it is dropped
        self._voice = VoiceActivity()
        self._detector = TurnDetector(self.rule) if self.rule else None
        # With detection: frames and samples that no turn has taken, and how many were judged.
        self._frames: deque[Frame] = deque()
        self._past = Recent()
        self._judged = 0
        # samples before a turn that may become its padding
        padding_ms = self.rule.prefix_padding_ms + LATE_MS if self.rule else 0
        self._num_kept = max(SAMPLE_RATE_HZ, SAMPLES_PER_MS * padding_ms)
        self._part: Part | None = None
        self._limit = int(self.max_turn_s * SAMPLE_RATE_HZ)
        self._short = min(SHORT_SAMPLES, self._limit // 2)
        self._held = NOTHING  # near the limit: too early to say which part it belongs to

    @property
    def measurer(self) -> TurnMeasurer | None:
        """Of the turn in hand, if it is measured."""
        return self._part.measurer if self._part else None

    def push(self, data: bytes) -> list[Item]:
        """Hear mono PCM16 (little-endian) or G.711, cut at any byte; or whole float32 samples."""
        if self.is_recording:
            samples = np.frombuffer(data, "<f4")
        elif self.encoding == "pcm16":
            data = self._half + data
            whole = len(data) // 2 * 2
            samples, self._half = pcm.from_pcm16(data[:whole]), data[whole:]
        else:
            samples = pcm.from_g711(data, self.encoding)
        return self._take(self._chunker.push(samples))

    def news(self) -> list[Any]:
        """Measure new samples: Measures where they are shown live, and the coach's events."""
        measurer, shows = self.measurer, self.shows_measures and not self.is_recording
        found = None if measurer is None else measurer.work(shows)
        told = [found] if found is not None and found.heard_s > 0 else []
        return told + (self.coach.work() if self.coach is not None else [])

    def commit(self) -> list[Item]:
        """End the turn in hand here; nothing if there is none."""
        items = self._take(self._chunker.finish())
        items += self._give(self._past.end)
        self._restart()
        return items + self._close()

    def settle(self, num_left: int = 0) -> list[Item]:
        """Hear the samples that are held, now that only `num_left` samples come before the commit:
        as the turn's own, or as a part of their own if the turn is too long for that."""
        return self._push(NOTHING, num_left)

    def clear(self) -> list[Item]:
        """Forget the turn in hand and all audio before it."""
        self._chunker.finish()
        self._past.forget(self._past.end)
        self._restart()
        part, self._part, self._held = self._part, None, NOTHING
        if part is None:
            return []
        if part.measurer is not None:
            part.measurer.is_over = True  # its measures are no news any more
        return [Dropped(self.num_turns - 1)]

    def _restart(self) -> None:
        self._offset, self._half = OffsetFilter(), b""
        if self._detector is not None:
            self._detector.restart(self._past.begin // SAMPLES_PER_MS)

    def _take(self, chunk: Samples) -> list[Item]:
        samples = self._offset.push(chunk)
        if self.coach is not None:
            self.coach.push(samples)
        if self._detector is None:
            return [*self._open(), *self._push(samples)] if len(samples) else []
        self._past.append(samples)
        items: list[Item] = []
        for frame in self._voice.push(samples):
            self._judged = frame.end_sample
            self._frames.append(frame)
            match self._detector.push(frame):
                case int(at_ms), None:
                    self._forget(at_ms * SAMPLES_PER_MS)
                    items += self._open(at_ms, self._past.begin)
                case int(at_ms), last_speech_ms:
                    items += self._give(at_ms * SAMPLES_PER_MS)
                    items += self._close(stopped_ms=at_ms, last_speech_ms=last_speech_ms)
        # voice activity may still end the turn after the last judged sample, never before it
        if self._part:
            return items + self._give(self._judged)
        self._forget(self._judged - self._num_kept)
        return items

    def _give(self, end: int) -> list[Item]:
        """Give the turn in hand all samples before the session's sample `end`."""
        samples = self._past.take(end)
        return self._push(samples) if self._part else []

    def _forget(self, end: int) -> None:
        self._past.forget(end)
        _taken(self._frames, self._past.begin)

    def _push(self, samples: Samples, num_left: int | None = None) -> list[Item]:
        """Hear samples [n] of the turn in hand, in as many parts as it takes. num_left: the turn's
        samples after them; None: unknown, so those that may be a last part's are held back."""
        items: list[Item] = []
        held = np.concatenate([self._held, samples])
        while len(held) and self._part is not None:
            room = self._limit - self._part.num_samples
            num, num_open = room, len(held) + (num_left or 0)
            is_over = num_open >= room + self._short  # the part: there is enough for another
            if not is_over and num_left is not None and num_open <= room:
                num = len(held)
            elif not is_over:
                num, is_over = max(0, room - self._short), num_left is not None
            if len(held[:num]):
                items.append(self._part.hear(held[:num]))
            held = held[num:]
            if not is_over:
                break
            items += self._go_on()
        self._held = held
        return items

    def _open(self, at_ms: int | None = None, begin: int = 0) -> list[Item]:
        """Begin a turn, if none is open, at the session's sample `begin`."""
        if self._part is not None:
            return []
        frames = None if self._detector is None else self._frames
        measurer = TurnMeasurer(self.num_turns) if self.measures else None
        every = int((self.live_update_s or 0) * SAMPLE_RATE_HZ)
        self._part = Part(self.num_turns, begin, frames, measurer, every)
        self.num_turns += 1
        return [TurnOpened(self.num_turns - 1, at_ms)]

    def _go_on(self) -> list[Item]:
        """End this part; the turn goes on as another."""
        part, self._part = self._part, None
        assert part is not None
        return [*part.finish(self.shows_measures, goes_on=True), *self._open(begin=part.end)]

    def _close(self, **ended: int) -> list[Item]:
        """End the turn. Held samples belong to it, or are a last part if it is too long."""
        if self._part is None:
            return []
        items = self.settle()
        part, self._part = self._part, None
        return items + part.finish(self.shows_measures, **ended)


def measure(samples: Samples) -> SpeechMeasures:
    """The measures of a whole turn [n] float32 at 16 kHz."""
    measurer = TurnMeasurer()
    turn = Part(measurer=measurer)
    turn.hear(samples)
    turn.finish()
    return measurer.measures(turn._voice.has_speech)
