"""In: log-mel frames of 10 ms. Out: power in bands, and which frames are speech, loud or a pause.

A frame's power is read back from its log-mel: Slaney's filters have unit area; divided by their
peak they are a partition of unity, so Parseval holds.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

Floats = NDArray[np.float32]
Flags = NDArray[np.bool_]

FRAMES_PER_S = 100
SILENT_DB = 25.0  # this far under the active level a frame is silent
PAUSE_FRAMES = 18  # 180 ms: shorter gaps are stop consonants
MIN_FRAMES = 20  # of speech, and of voice: under 200 ms nothing is measured
VOICE_HZ = (80.0, 1000.0)
BRIGHT_HZ = (1000.0, 5000.0)
# Voice activity (silero-vad, frames of 512 samples): where speech begins, and where it ends.
SPEECH_ON = 0.5
SPEECH_OFF = 0.35
HOP_SAMPLES = 160
NUM_MELS = 128
_FFT_SAMPLES = 400
_HANN_POWER = 150  # sum of the window's squares


# Edges of Slaney's mel bands [130]: 200/3 Hz per mel below 1 kHz, then 27 per factor of 6.4.
_STEP = np.log(6.4) / 27.0
_MELS = np.linspace(0.0, 15.0 + np.log(8000.0 / 1000.0) / _STEP, NUM_MELS + 2)
MEL_EDGES_HZ = np.where(_MELS < 15.0, 200.0 * _MELS / 3.0, 1000.0 * np.exp(_STEP * (_MELS - 15.0)))
BAND_HZ = MEL_EDGES_HZ[1:-1].astype(np.float32)  # the centre of each mel band [128]
# the height of each triangle [128]: 2 / its width in Hz
BAND_PEAK = (2.0 / (MEL_EDGES_HZ[2:] - MEL_EDGES_HZ[:-2])).astype(np.float32)


def frame_powers(raw: Floats, *bands_hz: tuple[float, float]) -> list[Floats]:
    """Mean squares of the signal in bands, [n_frames] each, of `raw` [n_frames, 128] log10 mel
    power. A frame's bits depend on that frame alone."""
    if len(raw) == 1:  # numpy adds up a lone row in another order
        return [both[:1] for both in frame_powers(np.repeat(raw, 2, 0), *bands_hz)]
    mels = 10.0 ** raw.astype(np.float32) / BAND_PEAK
    scale = _FFT_SAMPLES * _HANN_POWER
    inside = [(low <= BAND_HZ) & (high > BAND_HZ) for low, high in bands_hz]
    return [2.0 * mels[:, bands].sum(1) / scale for bands in inside]


def decibel(power: Floats) -> Floats:
    """10 log10 of a mean square; silence is -120."""
    return 10 * np.log10(power + 1e-12)


def level_of_speech(power: Floats, level_db: Floats) -> float:
    """The level in dBFS of frames of speech [n], n > 0. Those within 25 dB of the 95th percentile
    count; the rest is silence or noise."""
    loud = level_db > np.percentile(level_db, 95) - SILENT_DB
    return float(10 * np.log10(power[loud].mean() + 1e-12))


def speaking(probability: Floats, state: bool = False) -> Flags:
    """Whether somebody speaks in each frame of voice activity [n]: on at .5, off under .35.

    state: of the frame before the first.
    """
    states = []
    for p in probability.tolist():
        state = p >= (SPEECH_OFF if state else SPEECH_ON)
        states.append(state)
    return np.array(states, bool)


def runs(flags: Flags) -> list[tuple[int, int]]:
    """(first, end) of each run of True."""
    edges = np.flatnonzero(np.diff(flags.astype(np.int8), prepend=0, append=0)).tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))


def without_gaps(flags: Flags, least: float) -> Flags:
    """`flags` with gaps shorter than `least` filled."""
    filled = flags.copy()
    for (_, end), (begin, _) in itertools.pairwise(runs(flags)):
        if begin - end < least:
            filled[end:begin] = True
    return filled


class Growing:
    """[n, *shape] of one dtype; appending costs constant time per value on average."""

    def __init__(self, *shape: int, dtype: DTypeLike = np.float32) -> None:
        self._held = np.zeros((256, *shape), dtype)
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def append(self, values: NDArray[Any]) -> None:
        end = self._size + len(values)
        if end > len(self._held):
            num = max(end, 2 * len(self._held))
            room = np.zeros((num, *self._held.shape[1:]), self._held.dtype)
            room[: self._size] = self._held[: self._size]
            self._held = room
        self._held[self._size : end] = values
        self._size = end

    def drop(self, num: int) -> None:
        """Forget the first `num`, which must exist."""
        self._held = self._held[num : max(self._size, num + 1)].copy()
        self._size -= num

    @property
    def values(self) -> NDArray[Any]:
        """A view: what is appended later does not change it."""
        return self._held[: self._size]


OCTAVE = 12.0  # semitones: further from the median a frame is a tracker's error
MIN_SEMITONES = 0.1


def pitch_stats(voiced_hz: NDArray[np.float32]) -> dict[str, float]:
    """The fields of SpeechMeasures that are of pitch. `voiced_hz` [n], n > 0, all above 0. Frames
    an octave off the median count for the median alone."""
    middle_hz = np.median(voiced_hz)
    semitones = 12 * np.log2(voiced_hz / middle_hz)
    is_near = np.abs(semitones) < OCTAVE
    near, hz = semitones[is_near], voiced_hz[is_near]
    low, high = np.percentile(near, (5, 95))
    return {
        "pitch_median_hz": float(middle_hz),
        "pitch_sd_semitones": max(MIN_SEMITONES, float(near.std())),
        "pitch_range_semitones": float(high - low),
        "pitch_mean_hz": float(hz.mean()),
        "pitch_sd_hz": float(hz.std()),
    }
