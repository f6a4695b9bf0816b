"""F0 and the other measures of a turn, as it is heard."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.core.measures.frames import (
    BANDS_HZ,
    FRAMES_PER_S,
    HOP_SAMPLES,
    MIN_FRAMES,
    NUM_MELS,
    Flags,
    Floats,
    Frames,
    Growing,
    frame_powers,
    speaking,
)
from streamer.core.measures.speech_measures import FULL_SCALE, Measures, SpeechMeasures
from streamer.core.timeline import Curves
from streamer.model.audio.density import STEP_FRAMES, Density
from streamer.model.audio.mel import MelFrames
from streamer.model.audio.vad import FRAME_SAMPLES, Frame
from streamer.model.kernels.library import LEAD, NUM_CANDIDATES, PANEL, kernel

MIN_HZ = 60.0
MAX_HZ = 500.0
# Each for voices that go no lower. With a fourth window 0.97 of the medians of 498 recordings of
# training's people agree with Praat's, too, and of the SDs (2026-11).
FLOORS_HZ = (60.0, 84.0, 150.0)
PERIODS = 3  # of the floor, in a window
FIRST_LAG = int(SAMPLE_RATE_HZ / MAX_HZ)
PEAK_COLUMN = 2 * NUM_CANDIDATES * len(FLOORS_HZ)
NUM_COLUMNS = PEAK_COLUMN + 1  # of a row: F0 and strength of each window, and how loud it is
SILENT_PEAK = 1e-9


class Window(NamedTuple):
    """The window for one floor. scale [lags]: over the window's own autocorrelation. columns: where
    its F0 begin in a row, and their strengths."""

    floor_hz: float
    bell: Floats
    scale: Floats
    columns: tuple[int, int]


@functools.cache
def windows() -> tuple[Window, ...]:
    """One for each of FLOORS_HZ."""
    found: list[Window] = []
    for floor_hz in FLOORS_HZ:
        half = int(PERIODS / floor_hz * SAMPLE_RATE_HZ / 2) - 1
        hanning = np.hanning(2 * half + 2)[1:-1]
        num_lags = 2 * half // PERIODS + 4
        own = np.correlate(hanning, hanning, "full")[2 * half - 1 :]
        scale = (own[0] / own[:num_lags]).astype(np.float32)
        at = 2 * NUM_CANDIDATES * len(found)
        columns = at, at + NUM_CANDIDATES
        found.append(Window(floor_hz, hanning.astype(np.float32), scale, columns))
    return tuple(found)


class PitchTrack:
    """F0 candidates of one turn, a row per frame, the same for every way of cutting. Holds under
    0.1 s of samples.

    The method is Praat's (Boersma, 1993), and so are its numbers, but for what a stream forbids.
    Praat looks twice where labels are measured (pipelines/embedded/synthesis.py): over all voices,
    then in windows of three periods of the lowest F0 of this one. Here all frames are looked at
    once, in windows for three sorts of voices, and a row holds the candidates of each. `f0_of`
    decides which window counts. Its figures beside Praat: docs/measures.md.
    """

    def __init__(self) -> None:
        self._ahead = len(windows()[0].bell) // 2  # after a frame's middle, to know it
        # from `ahead` before the next frame's middle on; silence is before the first sample
        self._held = np.zeros(self._ahead, np.float32)

    def push(self, samples: Floats, speech: Flags, is_last: bool = False) -> Floats:
        """Take samples [n]. Returns the rows that are complete [m, NUM_COLUMNS], zeros
        without speech. speech: flags, from the next row on. is_last: silence follows."""
        silence = np.zeros(self._ahead if is_last else 0, np.float32)
        self._held = np.concatenate([self._held, samples, silence], dtype=np.float32)
        room = len(self._held) - 2 * self._ahead  # from the next frame's middle on
        num = -(-room // HOP_SAMPLES) if is_last else max(0, room // HOP_SAMPLES + 1)
        spoken = np.flatnonzero(speech[:num])
        rows = np.zeros((min(num, len(speech)), NUM_COLUMNS), np.float32)
        found = np.zeros((len(spoken), NUM_COLUMNS), np.float32)
        for window in reversed(windows()):  # the widest one says how loud it is
            self._look(self._ahead + spoken * HOP_SAMPLES, window, found)
        rows[spoken] = found
        self._held = self._held[len(rows) * HOP_SAMPLES :].copy()
        return rows

    def _look(self, middles: NDArray[np.int64], window: Window, rows: Floats) -> None:
        """Fill the window's columns of the rows, around the held samples `middles`."""
        period = int(SAMPLE_RATE_HZ / window.floor_hz)
        sizes = np.array([FIRST_LAG, period, period // 2 + 1, *window.columns, PEAK_COLUMN])
        limits = np.array([SAMPLE_RATE_HZ, window.floor_hz, MAX_HZ], np.float32)
        frame = np.zeros(LEAD + len(window.bell) + PANEL, np.float32)
        curve = np.empty(-(-(len(window.scale) - FIRST_LAG) // PANEL) * PANEL, np.float32)
        memory = frame, curve, np.empty(NUM_CANDIDATES, np.float32)
        given = self._held, middles, window.bell, window.scale, sizes, limits
        kernel("find candidates")(*given, *memory, rows)


def f0_of(rows: Floats, speech: Flags) -> Floats:
    """F0 in Hz of frames [n], 0 where unvoiced or without speech. rows [n, NUM_COLUMNS]. The
    voice's own range is that of a first look, and limits the second one."""
    f0 = np.zeros(len(rows), np.float32)
    if not speech.any():
        return f0
    loudest = max(float(rows[speech, PEAK_COLUMN].max()), SILENT_PEAK)
    shape = (len(rows), NUM_CANDIDATES + 1)

    def look(window: Window, low: float, high: float) -> None:
        """Fill in F0 as the window's candidates between two frequencies tell it."""
        room = (np.empty(shape, np.float32), np.empty(shape, np.float32), np.zeros(shape, np.int8))
        limits = np.array([loudest, low, high], np.float32)
        kernel("find path")(rows, np.array([*window.columns, PEAK_COLUMN]), limits, *room, f0)

    look(windows()[0], MIN_HZ, MAX_HZ)
    voiced = f0[speech & (f0 > 0)]
    if len(voiced) >= MIN_FRAMES:
        # beyond this range lie mostly errors of an octave (De Looze & Hirst, 2008)
        low, high = (float(hz) for hz in np.percentile(voiced, (15, 85)))
        low, high = max(MIN_HZ, 0.75 * low), min(MAX_HZ, 1.6 * high)
        look([window for window in windows() if window.floor_hz <= low][-1], low, high)
    f0[~speech] = 0
    return f0


EVERY_SAMPLES = SAMPLE_RATE_HZ // 5  # between two measurements of an open turn
LAST_S = (2, 7, 20)
READ_SAMPLES = SAMPLE_RATE_HZ  # heard at once, at least: 0.1 s cost half as much again
AT_ONCE = 10 * SAMPLE_RATE_HZ  # a backlog of a minute in one piece would take 100 MB
# The count of syllables hears this much before the first speech, as in its training: noise before
# that, loud or not, would move the means that each band is compared with.
ONSET_FRAMES = 15


class SoundTrack:
    """Samples to frames of 10 ms. Each is worked out once, but for F0: which of a frame's
    candidates it is depends on the other frames."""

    def __init__(self) -> None:
        self._mel, self._pitch, self._density = MelFrames(), PitchTrack(), Density()
        self._powers = Growing(len(BANDS_HZ))
        self._candidates = Growing(NUM_COLUMNS)  # of F0
        self._clipped = Growing()  # samples at full scale
        self._speech = Growing(dtype=bool)
        self._is_on = False  # whether somebody speaks in the last frame of voice activity
        self._rest = np.zeros(0, np.float32)  # whether samples of no whole frame are at full scale
        self._early: Floats | None = np.zeros((0, NUM_MELS), np.float32)  # of no speech yet
        self.num_dropped = 0
        self.num_samples = 0

    def add(self, samples: Floats, frames: Sequence[Frame], is_last: bool = False) -> Floats:
        """Take samples [n] float32, full scale 1.0, and the next frames of voice activity. Returns
        the frames of log10 mel power that are new [k, 128]. is_last: the sound ends here. Frames
        that voice activity has not judged by then are as the last one."""
        self.num_samples += len(samples)
        self._add_speech(frames)
        held = np.concatenate([self._rest, np.abs(samples) >= FULL_SCALE], dtype=np.float32)
        whole = len(held) // HOP_SAMPLES * HOP_SAMPLES
        self._clipped.append(held[:whole].reshape(-1, HOP_SAMPLES).sum(1))
        self._rest = held[whole:]
        raw = self._mel.hear(samples, is_last)
        if is_last:
            raw = raw[: _num_frames(self.num_samples) - self.num_dropped - len(self._powers)]
            missing = len(self._powers) + len(raw) - len(self._speech)
            self._speech.append(np.full(max(0, missing), self._is_on))
        speech = self._speech.values[len(self._candidates) :]
        self._candidates.append(self._pitch.push(samples, speech, is_last))
        self._powers.append(np.stack(frame_powers(raw, *BANDS_HZ), axis=1))
        self._count(raw)
        return raw

    @property
    def num_frames(self) -> int:
        """Frames of which level and speech are known."""
        return min(len(self._powers), len(self._speech))

    @property
    def num_pitched(self) -> int:
        """Frames of which F0 is known, too."""
        return min(self.num_frames, len(self._candidates))

    def drop(self, num: int) -> None:
        """Forget the oldest `num` frames, of which everything is known, with 0.75 s after them:
        frames are counted from there."""
        for held in (self._powers, self._candidates, self._clipped, self._speech, self._density):
            held.drop(num)
        self.num_dropped += num

    def frames(self) -> Frames:
        """All up to the last one of which level and speech are known."""
        end, pitched = self.num_frames, self.num_pitched
        speech = self._speech.values[:end]
        f0, density = np.zeros((2, end), np.float32)
        f0[:pitched] = f0_of(self._candidates.values[:pitched], speech[:pitched])
        counted = self._density.so_far()[:end]
        density[: len(counted)] = counted
        power, low, high = np.ascontiguousarray(self._powers.values[:end].T)
        return Frames(power, low, high, f0, speech, self._clipped.values[:end], density)

    def _add_speech(self, frames: Sequence[Frame]) -> None:
        """Frames of 10 ms are as voice activity's where they begin; before the first, silence."""
        if not frames:
            return
        chances = np.array([frame.probability for frame in frames], np.float32)
        flags = np.append(self._is_on, speaking(chances, self._is_on))
        first = self.num_dropped + len(self._speech)
        begins = np.arange(first, frames[-1].end_sample // HOP_SAMPLES) * HOP_SAMPLES
        since = begins - (frames[0].end_sample - 2 * FRAME_SAMPLES)
        self._speech.append(flags[np.maximum(since // FRAME_SAMPLES, 0)])
        self._is_on = bool(flags[-1])

    def _count(self, raw: Floats) -> None:
        """Count syllables from ONSET_FRAMES before the first speech on, in whole steps."""
        if self._early is None:
            self._density.add(raw)
            return
        early = np.concatenate([self._early, raw])
        first = int(np.append(self._speech.values, True).argmax())
        begin = (self.num_dropped + first - ONSET_FRAMES) // STEP_FRAMES * STEP_FRAMES
        skipped = begin - self.num_dropped - len(self._density)
        skipped = min(max(0, skipped), len(early))
        self._density.append(np.zeros(skipped, np.float32))
        self._early = early = early[skipped:]
        if first < len(self._speech) and len(early):
            self._density.add(early)
            self._early = None


class TurnMeasurer:
    """Measures of one turn, so far and whole.

    `push` only takes, from one thread. The others compute, on any thread. Their results
    depend on the samples alone, not on their cut or on when `work` was called. At most the whole
    turn waits to be heard.
    """

    def __init__(self, turn: int = 0) -> None:
        self.is_over = False  # the turn's last sample is pushed
        self._turn = turn
        self._placed = (0, 0)  # the turn's sample where the pushed ones begin, and its length
        self._num_told = 0
        self._sound = SoundTrack()
        self._waiting: list[tuple[Floats, Sequence[Frame]]] = []
        self._hearing = threading.Lock()
        self._is_heard = False  # to its last sample

    def push(
        self, samples: Floats, frames: Sequence[Frame], begin: int = 0, num_taken: int = 0
    ) -> None:
        """Take samples [n] float32 at 16 kHz, and the frames that voice activity made of the turn
        since the last push. They may end before the samples do. The turn has `num_taken` samples so
        far; the first pushed one is its sample `begin`."""
        self._placed = begin, num_taken
        self._waiting.append((samples, frames))

    def work(self, tells: bool = False) -> Measures | None:
        """Hear the samples that wait, if they are enough. tells: return the measures so far if
        200 ms have come since the last time. The turn's other samples count as no speech."""
        with self._hearing:
            begin, num_taken = self._placed
            is_news = tells and num_taken // EVERY_SAMPLES > self._num_told
            is_much = sum(len(piece) for piece, _ in self._waiting) >= READ_SAMPLES
            if self.is_over or not (is_news or is_much):
                return None
            self._hear()
            if not is_news:
                return None
            self._num_told = num_taken // EVERY_SAMPLES
            frames = self._sound.frames()
            after = max(0, num_taken - begin - self._sound.num_samples) // HOP_SAMPLES
        heard_s = (_num_frames(begin) + len(frames.f0) + after) / FRAMES_PER_S
        so_far = replace(frames.measures(), audio_s=heard_s)
        last = dict.fromkeys(LAST_S, so_far)
        for s in LAST_S:
            if s < heard_s:
                found = frames.last(s - after / FRAMES_PER_S).measures()
                last[s] = replace(found, audio_s=float(s))
        return Measures(self._turn, heard_s, so_far, last)

    def measures(self, has_speech: bool = True, is_last: bool = True) -> SpeechMeasures:
        """The measures of all samples that were pushed. is_last: they are the whole turn.
        has_speech: the judgement of voice activity. If it is false, only the sound is measured."""
        found = self.frames(is_last).measures()
        if not has_speech:
            found = SpeechMeasures(clipped_share=found.clipped_share)
        return replace(found, audio_s=_num_frames(self._placed[1]) / FRAMES_PER_S)

    def frames(self, is_last: bool = True) -> Frames:
        """All frames. is_last: all samples were pushed."""
        with self._hearing:
            self._hear(is_last)
            return self._sound.frames()

    def curves(self) -> Curves:
        """The curves of the whole turn, when all its samples were pushed."""
        return Curves.of(self.frames(), *map(_num_frames, self._placed))

    def _hear(self, is_last: bool = False) -> None:
        if self._is_heard:
            return
        self._is_heard = is_last
        num = len(self._waiting)  # `push` may add more meanwhile
        waiting = self._waiting[:num]
        del self._waiting[:num]
        samples = joined(piece for piece, _ in waiting)
        frames = [frame for _, piece in waiting for frame in piece]
        for at in range(0, max(1, len(samples)), AT_ONCE):
            is_end = at + AT_ONCE >= len(samples)
            self._sound.add(samples[at : at + AT_ONCE], frames, is_last and is_end)
            frames = []


def _num_frames(samples: int) -> int:
    """The number of frames of 10 ms that begin within `samples` samples."""
    return -(-samples // HOP_SAMPLES)


def joined(pieces: Iterable[Floats]) -> Floats:
    """The samples of some pieces [n]."""
    return np.concatenate([np.zeros(0, np.float32), *pieces])
