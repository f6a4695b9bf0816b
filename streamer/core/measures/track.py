"""Frames of 10 ms, and the measures of them: each definition is applied here alone."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.core.measures.frames import (
    BRIGHT_HZ,
    FRAMES_PER_S,
    HOP_SAMPLES,
    MIN_FRAMES,
    PAUSE_FRAMES,
    SILENT_DB,
    VOICE_HZ,
    Flags,
    Floats,
    decibel,
    level_of_speech,
    pitch_stats,
)
from streamer.core.measures.speech_measures import SpeechMeasures

Indices = NDArray[np.int64]
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
# recordings of people, 2 with pink noise 3 dB under them, and 77 of 77 with noise in place of
# the voice (2026-11).
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
        num = len(self.power)
        audio_s = num / FRAMES_PER_S
        sounding = np.flatnonzero(self.power > DIGITAL_POWER)  # silence around it dilutes nothing
        num_sounding = int(sounding[-1] - sounding[0]) + 1 if len(sounding) else 1
        clipped = float(self.clipped.sum()) / (num_sounding * HOP_SAMPLES)
        at = np.flatnonzero(self.counted())
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
            snr_db=self._snr_db(at, gaps, whole),
            clipped_share=clipped,
            **self._pitch(heard),
        )

    def counted(self) -> Flags:
        """The frames of speech that count [n]."""
        spoken = np.flatnonzero(self.speech)
        # without a first and a last stretch that are short and apart
        breaks = np.flatnonzero(np.diff(spoken) - 1 > APART_FRAMES)
        if len(breaks) and breaks[0] + 1 <= EDGE_FRAMES:
            spoken, breaks = spoken[breaks[0] + 1 :], breaks[1:] - breaks[0] - 1
        if len(breaks) and len(spoken) - breaks[-1] - 1 <= EDGE_FRAMES:
            spoken = spoken[: breaks[-1] + 1]
        found = np.zeros(len(self.speech), bool)
        found[spoken] = True
        return found

    def _pitch(self, heard: Indices) -> dict[str, float]:
        """Measures of frames that are heard and voiced; none for too few, and for a whisper."""
        f0 = self.f0[heard]
        is_voiced = f0 > 0
        num = int(is_voiced.sum())
        num_stretches = int(is_voiced[0]) + int((is_voiced[1:] & ~is_voiced[:-1]).sum())
        is_whisper = num < WHISPER_FRAMES * num_stretches and num < WHISPER_SHARE * len(heard)
        if num < MIN_FRAMES or is_whisper:
            return {}
        return pitch_stats(f0[is_voiced])

    def _snr_db(self, spoken: Indices, gaps: Indices, heard_power: float) -> float | None:
        """Speech over the sound without speech; None for too little of that.
        gaps: frames between one of speech and the next."""
        long = np.flatnonzero(gaps > 2 * GUARD_FRAMES)
        begins = np.concatenate([spoken[long], spoken[-1:]]) + 1 + GUARD_FRAMES
        ends = np.concatenate([spoken[:1], spoken[long + 1]]) - GUARD_FRAMES
        spans = zip([0, *begins.tolist()], [*ends.clip(0).tolist(), None], strict=True)
        noise = np.concatenate([self.power[begin:end] for begin, end in spans])
        sounding = noise[noise > DIGITAL_POWER]  # silence that was added tells nothing of the room
        noise = sounding if len(sounding) >= MIN_NOISE_FRAMES else noise
        if len(noise) < MIN_NOISE_FRAMES:
            return None
        quietest = NOISE_OVER_QUIETEST * float(np.percentile(self.power[spoken], 5))
        noise_power = min(float(np.median(noise)), quietest) + 1e-12
        least = LEAST_SNR * noise_power  # what is no louder than the noise would be -100 dB or less
        return 10 * math.log10(max(heard_power - noise_power, least) / noise_power)
