"""What was said lately. In: frames of 10 ms. Out: rate, level and movement of the last seconds of
speech, silences and pauses.

Seconds here are seconds of speech: pauses are stepped over, so that they make nobody slow.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamer.core.measures.frames import FRAMES_PER_S, PAUSE_FRAMES, active_level
from streamer.core.measures.nuclei import MISSED
from streamer.core.measures.pitch import in_range, pitch_stats
from streamer.core.measures.turn_track import Flags, Floats, Frames

MIN_VOICED = 0.4  # share of the frames: movement of pitch is not judged of less


@dataclass(frozen=True)
class Spoken:
    """All [n]: power, F0 in Hz or 0, speech; `filled`: speech with the gaps that are no pause.
    peaks: frames of syllables. known: so many frames have their F0, and so their syllables."""

    power: Floats
    f0: Floats
    speech: Flags
    filled: Flags
    peaks: NDArray[np.int64]
    known: int

    @classmethod
    def of(cls, frames: Frames, known: int) -> Spoken:
        """known: of how many of the frames F0 is there."""
        is_long = known > 2 * PAUSE_FRAMES
        peaks = frames.until(known).nuclei()
        return cls(
            frames.power[:, 0],
            frames.f0,
            frames.speech,
            without_gaps(frames.speech),
            peaks if is_long else np.zeros(0, np.int64),
            known,
        )

    def rate(self, seconds: float) -> float | None:
        """Syllables/s in the last `seconds` of speech; None where there are fewer."""
        at = np.flatnonzero(self.filled[: self.known])
        num = int(seconds * FRAMES_PER_S)
        if len(at) < num:
            return None
        return MISSED * int((self.peaks >= at[-num]).sum()) * FRAMES_PER_S / num

    def level_dbfs(self, seconds: float) -> float | None:
        """The active level of the last `seconds` of speech; None where there are fewer."""
        power = self.power[self.speech][-int(seconds * FRAMES_PER_S) :]
        if len(power) < int(seconds * FRAMES_PER_S):
            return None
        return float(active_level(power, np.ones(len(power), bool))[0])

    def pitch_sd_semitones(self, seconds: float) -> float | None:
        """How far F0 moves in the last `seconds` of speech; None where too little is voiced."""
        at = np.flatnonzero(self.filled[: self.known])[-int(seconds * FRAMES_PER_S) :]
        f0 = self.f0[at]
        voiced = in_range(f0[f0 > 0])
        if len(at) < int(seconds * FRAMES_PER_S) or len(voiced) < MIN_VOICED * len(at):
            return None
        return pitch_stats(voiced).sd_semitones


def without_gaps(speech: Flags) -> Flags:
    """Speech with the gaps in it that are too short for a pause."""
    edges = np.flatnonzero(np.diff(speech.astype(np.int8), prepend=0, append=0))
    found = speech.copy()
    for end, begin in zip(edges[1::2], edges[2::2], strict=False):
        if begin - end < PAUSE_FRAMES:
            found[end:begin] = True
    return found


def last_gap(speech: Flags, least: int) -> int | None:
    """Where speech begins again behind the last gap of `least` frames; the frames' end where one
    goes on; None where there is none."""
    if not speech.any():
        return len(speech)
    if len(speech) - int(np.flatnonzero(speech)[-1]) - 1 >= least:
        return len(speech)
    edges = np.flatnonzero(np.diff(speech.astype(np.int8), prepend=0, append=0))
    long = [b for a, b in zip(edges[1::2], edges[2::2], strict=False) if b - a >= least]
    return int(long[-1]) if long else None
