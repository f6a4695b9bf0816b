"""Find filled pauses ("um", "嗯") by their sound: a steady, low voice between two silences.

No words are recognised, so it misses some and takes some long vowels for one; docs/measures.md
states how many.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from streamer.core.measures.density import NUM_BANDS, in_bands
from streamer.core.measures.frames import (
    FRAMES_PER_S,
    Flags,
    Floats,
    Frames,
    Growing,
    runs,
    without_gaps,
)

# Chosen on read speech of 60 people in English and Mandarin, with filled pauses inserted; the fall
# of the pitch after a look at the recall of bench/fillers.py, whose other languages were not used
# for false alarms (2026-11).
LAG = 4  # frames between two that are compared
MOST_CHANGE = 0.3  # log10 power of a band, mean over the bands
MOST_SLOPE = 0.5  # semitones within LAG
MOST_RANGE = 1.0  # semitones, 5th to 95th percentile, around a line: the pitch of "um" falls
MOST_FALL = 3.0  # semitones, of that line
MOST_RISE = 1.0
MOST_ABOVE = 1.0  # semitones over the speaker's median
MIN_FRAMES = 26
MAX_GAP = 10  # frames between two steady parts, such as "u" and "m"
MIN_STEADY = 0.6  # share of its frames
MAX_EDGE = 12  # frames of other sound between it and silence
MAX_SYLLABLES = 1.8
SILENT_DB = 22.0  # under the loud speech
VOICED_DB = 20.0
DEPTH = 3.0  # log10 power under a frame's loudest band, below which bands are alike
RECENT_FRAMES = 60 * FRAMES_PER_S


class Changes(Growing):
    """How far the shape of each frame's spectrum is from that of LAG frames before: log10 power,
    mean over the bands [n]."""

    def __init__(self) -> None:
        super().__init__()
        self._shapes = np.full((LAG, NUM_BANDS), 99.0, np.float32)

    def add(self, raw: Floats) -> None:
        """[n, 128] log10 mel power."""
        bands = in_bands(raw)
        bands = np.maximum(bands, bands.max(1, keepdims=True, initial=-99) - DEPTH)
        both = np.concatenate([self._shapes, bands - bands.mean(1, keepdims=True)])
        self.append(np.abs(both[LAG:] - both[:-LAG]).mean(1))
        self._shapes = both[-LAG:]


class RecentFilledPauses:
    """Those of the last minute of a session, each counted once its frames no longer change."""

    def __init__(self) -> None:
        self.changes = Changes()
        self._ends: deque[int] = deque()  # frames of the session
        self._searched = 0  # frames of the session

    def count(self, frames: Frames, first: int) -> int:
        """How many. frames: the latest ones, of which none changes any more; first: number of the
        first one in the session."""
        until = first + len(frames.f0) - MAX_EDGE - 1  # both sides of one must be known
        counted = self._ends[-1] if self._ends else 0
        for begin, end in find(frames, self.changes.values[: len(frames.f0)]):
            if self._searched < first + end <= until and counted <= first + begin:
                counted = first + end
                self._ends.append(counted)
        self._searched = max(self._searched, until)
        while self._ends and self._ends[0] <= until - RECENT_FRAMES:
            self._ends.popleft()
        return len(self._ends)


def find(frames: Frames, change: Floats) -> list[tuple[int, int]]:
    """(first frame, end) of each. change: of `Changes`, for the same frames."""
    is_voiced = frames.f0 > 0
    if not (is_voiced.any() and frames.speech.any()):
        return []
    semitones = 12 * np.log2(np.maximum(frames.f0, 1))
    usual = float(np.median(semitones[is_voiced]))
    loud_db = float(np.percentile(frames.level_db[frames.speech], 90))
    is_silent = (frames.level_db < loud_db - SILENT_DB) | ~frames.speech
    is_loud = frames.level_db > loud_db - VOICED_DB
    likely = is_voiced & frames.speech & is_loud & (change < MOST_CHANGE)
    steady = _steady(likely, is_voiced, semitones)
    found = []
    for first, end in runs(without_gaps(steady, MAX_GAP + 1)):
        begin = first - LAG
        if end - begin < MIN_FRAMES or steady[first:end].mean() < MIN_STEADY:
            continue
        at = np.flatnonzero(is_voiced[begin:end])
        pitch = semitones[begin + at]
        is_low = np.median(pitch) <= usual + MOST_ABOVE
        num = frames.density[max(0, begin - 6) : end + 6].sum()
        is_short = num <= MAX_SYLLABLES
        if is_low and is_short and _is_apart(is_silent, begin, end) and _is_even(at, pitch):
            found.append((begin, end))
    return found


def _steady(likely: Flags, is_voiced: Flags, semitones: Floats) -> Flags:
    """Those of the likely frames whose pitch is near that of LAG frames before."""
    steady = likely.copy()
    steady[:LAG] = False
    is_near = np.abs(semitones[LAG:] - semitones[:-LAG]) < MOST_SLOPE
    steady[LAG:] &= is_near & is_voiced[:-LAG]
    return steady


def _is_apart(is_silent: Flags, begin: int, end: int) -> bool:
    """Whether silence, or the recording's edge, lies near on both sides."""
    before = is_silent[max(0, begin - MAX_EDGE - 1) : begin]
    after = is_silent[end : end + MAX_EDGE + 1]
    is_begun = begin <= MAX_EDGE or bool(before.any())
    return is_begun and (len(after) <= MAX_EDGE or bool(after.any()))


def _is_even(at: NDArray[np.int64], pitch: Floats) -> bool:
    """Whether the pitch moves along a line that falls gently. at: frames; pitch: in semitones."""
    slope, start = np.polyfit(at, pitch, 1)
    low, high = np.percentile(pitch - (start + slope * at), (5, 95))
    change = slope * (at[-1] - at[0])
    return bool(high - low <= MOST_RANGE and -MOST_FALL <= change <= MOST_RISE)
