"""Frames of 10 ms, and the measures of them: each definition is applied here alone.

A frame's power is read back from its log-mel: Slaney's filters have unit area; divided by their
peak they are a partition of unity, so Parseval holds.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from streamer.core.measures.speech_measures import SpeechMeasures

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
    """Whether somebody speaks in each frame of voice activity [n]: on at .5, off under .35. state:
    of the frame before the first."""
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
    """[n, *shape] of one dtype. It grows by pieces, which are joined when the values are read."""

    def __init__(self, *shape: int, dtype: DTypeLike = np.float32) -> None:
        self._pieces: list[NDArray[Any]] = [np.zeros((0, *shape), dtype)]

    def __len__(self) -> int:
        return sum(map(len, self._pieces))

    def append(self, values: NDArray[Any]) -> None:
        self._pieces.append(np.array(values, self._pieces[0].dtype))

    def drop(self, num: int) -> None:
        """Forget the first `num`, which must exist."""
        self._pieces = [self.values[num:].copy()]

    @property
    def values(self) -> NDArray[Any]:
        """All values so far. Later appends do not change this array."""
        if len(self._pieces) > 1:
            self._pieces = [np.concatenate(self._pieces)]
        return self._pieces[0]


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


BANDS_HZ = ((0.0, 8000.0), VOICE_HZ, BRIGHT_HZ)
GUARD_FRAMES = 5  # beside speech, where its ends still sound, nothing is noise
MIN_NOISE_FRAMES = 10
DIGITAL_POWER = 10**-9.5  # -95 dBFS: no microphone is as quiet
# Noise under the speech is no louder than this times the quietest twentieth of its frames: what was
# there before it or after it may be. Over 10 dB of SNR a steady noise shows the same by both.
NOISE_OVER_QUIETEST = 2.0
QUIETEST = 5  # percent of the frames from the first speech to the last
LEAST_OUTSIDE = 1e-6
NOISE_OVER_BAND = 1.15  # the mean of a noise in one band over its quietest twentieth
LEAST_VOICE = 0.1  # of the power in a band is the voice's, at least
LEAST_SNR = 0.01  # 20 dB under the noise: there is no telling less
# Voice activity takes the first tenth of a second of a noise for speech. So the first or last
# stretch of speech does not count if it is no longer than this, and the rest further away.
EDGE_FRAMES = 13
APART_FRAMES = 10
# A voice is whispered where its voiced stretches are shorter than this on average, and fewer of its
# frames than this are voiced: what looks like F0 is chance then. So are 0 of 150 held-out
# recordings of people, 2 with pink noise at 3 dB, and 77 of 77 with noise for a voice (2026-11).
WHISPER_FRAMES = 7
WHISPER_SHARE = 0.5
# In a crowd the frames of the one who speaks are those that stand out: for each dB of `crowd_db` a
# frame is silent this much sooner, but not within these shares of `dip_db` under the speech. The
# shares are of a level smoothed over CROWD_FRAMES to each side, and of a frame's own. Chosen on 314
# recordings of people in babble: errors of pitch and pauses fall by a third, on 329 others too.
# The rate gains nothing, and stays that of all frames.
CROWD_STEP = 4.0
CROWD_SPOKEN = 0.5
CROWD_HEARD = 0.35
CROWD_LEAST_DB = 1.0  # frames that are all alike lie a rounding under their own level
CROWD_FRAMES = 15


class Frames(NamedTuple):
    """Frames of 10 ms: power in each of BANDS_HZ, F0 in Hz or 0, speech, the number of samples at
    full scale, and the number of syllables in the frame if it is speech."""

    power: Floats
    low_power: Floats
    high_power: Floats
    f0: Floats
    speech: Flags
    clipped: Floats
    density: Floats

    @property
    def level_db(self) -> Floats:
        """In dBFS."""
        return decibel(self.power)

    def last(self, seconds: float) -> Frames:
        num = len(self.f0)
        return self.at(slice(max(0, num - max(0, int(seconds * FRAMES_PER_S))), num))

    def at(self, which: slice | Flags) -> Frames:
        parts: Any = (values[which] for values in self)
        return Frames(*parts)

    def measures(self) -> SpeechMeasures:
        """The measures; in a crowd, those of the frames that stand out of it, the speaker's."""
        found = self._measures(SILENT_DB)
        if found.dip_db is None or found.level_dbfs is None or found.crowd_db == 0:
            return found
        silent_db = SILENT_DB - CROWD_STEP * found.crowd_db
        width = 2 * CROWD_FRAMES + 1  # silence lies around the frames
        smooth = np.convolve(self.power, np.full(width, 1 / width))[CROWD_FRAMES:-CROWD_FRAMES]
        smooth_db = decibel(smooth.astype(np.float32))
        is_near = smooth_db > found.level_dbfs - max(CROWD_SPOKEN * found.dip_db, silent_db)
        near = self._replace(speech=self.speech & is_near)
        again = near._measures(max(CROWD_HEARD * found.dip_db, silent_db, CROWD_LEAST_DB))
        if again.level_dbfs is None:
            return found
        kept = ("rate_syllables_per_s", "dip_db", "snr_db", "outside_db")
        return replace(again, **{name: getattr(found, name) for name in kept})

    def _measures(self, silent_db: float) -> SpeechMeasures:
        """silent_db: as far under the level of the speech a frame is silent."""
        audio_s = len(self.power) / FRAMES_PER_S
        sounding = np.flatnonzero(self.power > DIGITAL_POWER)  # silence around it dilutes nothing
        num_sounding = int(sounding[-1] - sounding[0]) + 1 if len(sounding) else 1
        clipped = float(self.clipped.sum()) / (num_sounding * HOP_SAMPLES)
        is_counted = self.counted()
        at = np.flatnonzero(is_counted)
        if len(at) < MIN_FRAMES:
            return SpeechMeasures(audio_s=audio_s, clipped_share=clipped)
        span = int(at[-1] - at[0]) + 1
        gaps = np.diff(at) - 1
        pauses = gaps[gaps >= PAUSE_FRAMES]
        paused = int(pauses.sum())
        spoken_s = (span - paused) / FRAMES_PER_S
        all_db = self.level_db
        level_db = all_db[at]
        active_db = level_of_speech(self.power[at], level_db)
        is_heard = level_db > active_db - silent_db
        heard = at[is_heard]
        level_low, level_high = np.percentile(level_db[is_heard], (5, 95))
        span_of = slice(at[0], at[-1] + 1)
        quietest_db = float(np.percentile(all_db[span_of], QUIETEST))
        whole, low, high = (float(p[heard].mean()) for p in self[:3])
        # in each band, without the noise: the quietest frames tell it
        noises = [NOISE_OVER_BAND * float(np.percentile(p[span_of], QUIETEST)) for p in self[1:3]]
        dark = max(low - noises[0], LEAST_VOICE * low)
        bright = max(high - noises[1], LEAST_VOICE * high)
        outside = max(whole - low - high, LEAST_OUTSIDE * whole) / whole
        return SpeechMeasures(
            rate_syllables_per_s=float(self.density[at].sum()) / spoken_s,
            level_dbfs=active_db,
            level_range_db=float(level_high - level_low),
            dip_db=active_db - quietest_db,
            outside_db=10 * math.log10(outside),
            pause_share=paused / span,
            pause_count=len(pauses),
            longest_pause_s=int(pauses.max(initial=0)) / FRAMES_PER_S,
            timbre_db=10 * math.log10(bright / dark),
            speech_s=spoken_s,
            audio_s=audio_s,
            snr_db=self._snr_db(is_counted, whole),
            clipped_share=clipped,
            **self._pitch(heard),
        )

    def counted(self) -> Flags:
        """The frames of speech that count [n]: no first or last stretch that is short and apart."""
        found = self.speech.copy()
        stretches = runs(without_gaps(self.speech, APART_FRAMES + 1))
        for which in (0, -1):
            if len(stretches) > 1 and self.speech[slice(*stretches[which])].sum() <= EDGE_FRAMES:
                found[slice(*stretches.pop(which))] = False
        return found

    def _pitch(self, heard: NDArray[np.int64]) -> dict[str, float]:
        """Measures of frames that are heard and voiced; none for too few, and for a whisper."""
        f0 = self.f0[heard]
        is_voiced = f0 > 0
        num = int(is_voiced.sum())
        is_short = num < WHISPER_FRAMES * len(runs(is_voiced))  # its stretches are
        if num < MIN_FRAMES or (is_short and num < WHISPER_SHARE * len(heard)):
            return {}
        return pitch_stats(f0[is_voiced])

    def _snr_db(self, spoken: Flags, heard_power: float) -> float | None:
        """Speech over the sound without speech; None for too little of that."""
        noise = self.power[np.convolve(spoken, np.ones(2 * GUARD_FRAMES + 1), "same") <= 0]
        sounding = noise[noise > DIGITAL_POWER]  # silence that was added tells nothing of the room
        noise = sounding if len(sounding) >= MIN_NOISE_FRAMES else noise
        if len(noise) < MIN_NOISE_FRAMES:
            return None
        quietest = NOISE_OVER_QUIETEST * float(np.percentile(self.power[spoken], 5))
        noise_power = min(float(np.median(noise)), quietest) + 1e-12
        least = LEAST_SNR * noise_power  # frames no louder than the noise would be -100 dB or less
        return 10 * math.log10(max(heard_power - noise_power, least) / noise_power)
