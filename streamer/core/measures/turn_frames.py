"""What is measured of frames of 10 ms: the one place where a measure's definition is applied."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamer.core.measures.frames import (
    FRAMES_PER_S,
    HOP_SAMPLES,
    MIN_FRAMES,
    PAUSE_FRAMES,
    SILENT_DB,
    level_of_speech,
    mean,
    median,
    percentiles,
)
from streamer.core.measures.pitch import PitchStats, pitch_stats
from streamer.core.measures.speech_measures import SpeechMeasures

Floats = NDArray[np.float32]
Flags = NDArray[np.bool_]
Indices = NDArray[np.int64]
GUARD_FRAMES = 5  # beside speech, where its ends still sound, nothing is noise
MIN_NOISE_FRAMES = 10
LEAST_SNR = 0.01  # 20 dB under the noise: there is no telling less


@dataclass(frozen=True)
class Frames:
    """Frames of 10 ms: power in each of BANDS_HZ, its level in dBFS, F0 in Hz or 0, speech, how
    many samples are at full scale, and how many syllables would be in it if somebody spoke."""

    power: Floats
    low_power: Floats
    high_power: Floats
    level_db: Floats
    f0: Floats
    speech: Flags
    clipped: Floats
    density: Floats

    def last(self, seconds: float) -> Frames:
        """The last so many seconds of them."""
        num = len(self.f0)
        return self._between(max(0, num - int(seconds * FRAMES_PER_S)), num)

    def until(self, end: int) -> Frames:
        """The first `end` of them."""
        return self._between(0, end)

    def _between(self, first: int, end: int) -> Frames:
        return Frames(
            self.power[first:end],
            self.low_power[first:end],
            self.high_power[first:end],
            self.level_db[first:end],
            self.f0[first:end],
            self.speech[first:end],
            self.clipped[first:end],
            self.density[first:end],
        )

    def measures(self) -> SpeechMeasures:
        """What can be said of them."""
        num = len(self.power)
        audio_s = num / FRAMES_PER_S
        clipped = float(self.clipped.sum()) / max(1, num * HOP_SAMPLES)
        at = np.flatnonzero(self.speech)
        if len(at) < MIN_FRAMES:
            return SpeechMeasures(audio_s=audio_s, clipped_share=clipped)
        span = int(at[-1] - at[0]) + 1
        gaps = np.diff(at) - 1
        pauses = gaps[gaps >= PAUSE_FRAMES]
        paused = int(pauses.sum())
        spoken_s = (span - paused) / FRAMES_PER_S
        level_db = self.level_db[at]
        ordered_db = np.sort(level_db)
        active_db = level_of_speech(self.power[at], level_db, ordered_db)
        heard = at[level_db > active_db - SILENT_DB]
        level_low, level_high = percentiles(ordered_db[-len(heard) :], 5, 95)
        tilt = mean(self.high_power[heard]) / mean(self.low_power[heard])
        found = self._pitch(heard)
        return SpeechMeasures(
            rate_syllables_per_s=float(self.density[at].sum()) / spoken_s,
            pitch_median_hz=found.median_hz if found else None,
            pitch_sd_semitones=found.sd_semitones if found else None,
            pitch_range_semitones=found.range_semitones if found else None,
            pitch_mean_hz=found.mean_hz if found else None,
            pitch_sd_hz=found.sd_hz if found else None,
            level_dbfs=float(active_db),
            level_range_db=level_high - level_low,
            pause_share=paused / span,
            pause_count=len(pauses),
            longest_pause_s=int(pauses.max(initial=0)) / FRAMES_PER_S,
            timbre_db=10 * math.log10(tilt),
            speech_s=spoken_s,
            audio_s=audio_s,
            snr_db=self._snr_db(at, gaps, float(mean(self.power[heard]))),
            clipped_share=clipped,
        )

    def syllables(self) -> Floats:
        """How many syllables each frame holds [n]; it may be a part of one."""
        return self.density * self.speech

    def _pitch(self, heard: Indices) -> PitchStats | None:
        """Of the frames that are heard and voiced; None where these are too few."""
        f0 = self.f0[heard]
        voiced = f0[f0 > 0]
        return pitch_stats(voiced) if len(voiced) >= MIN_FRAMES else None

    def _snr_db(self, spoken: Indices, gaps: Indices, heard_power: float) -> float | None:
        """Speech over what sounds where nobody speaks; None where there is too little of that.
        gaps: frames between one of speech and the next."""
        long = np.flatnonzero(gaps > 2 * GUARD_FRAMES)
        begins = np.concatenate([spoken[long], spoken[-1:]]) + 1 + GUARD_FRAMES
        ends = np.concatenate([spoken[:1], spoken[long + 1]]) - GUARD_FRAMES
        spans = zip([0, *begins.tolist()], [*ends.clip(0).tolist(), None], strict=True)
        noise = np.concatenate([self.power[begin:end] for begin, end in spans])
        if len(noise) < MIN_NOISE_FRAMES:
            return None
        noise_power = median(np.sort(noise)) + 1e-12
        least = LEAST_SNR * noise_power  # what is no louder than the noise would be -100 dB or less
        return 10 * math.log10(max(heard_power - noise_power, least) / noise_power)
