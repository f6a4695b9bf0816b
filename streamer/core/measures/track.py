"""Frames of 10 ms, and the measures of them: each definition is applied here alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.core.measures.density import STEP_FRAMES, Density
from streamer.core.measures.frames import (
    BRIGHT_HZ,
    FRAMES_PER_S,
    HOP_SAMPLES,
    MIN_FRAMES,
    NUM_MELS,
    PAUSE_FRAMES,
    SILENT_DB,
    SPEECH_SAMPLES,
    VOICE_HZ,
    Growing,
    decibel,
    frame_powers,
    level_of_speech,
    pitch_stats,
    smoothed,
    speaking,
)
from streamer.core.measures.speech_measures import FULL_SCALE, Measures, SpeechMeasures

Floats = NDArray[np.float32]
Flags = NDArray[np.bool_]
Indices = NDArray[np.int64]
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
# The count of syllables hears this much before the first speech, as in its training: noise before
# that, loud or not, would move the means that each band is compared with.
ONSET_FRAMES = 15
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
        return self._between(max(0, num - max(0, int(seconds * FRAMES_PER_S))), num)

    def until(self, end: int) -> Frames:
        return self._between(0, end)

    def between(self, start_s: float, end_s: float) -> Frames:
        first, end = (max(0, round(t * FRAMES_PER_S)) for t in (start_s, end_s))
        return self._between(first, max(first, end))

    def _between(self, first: int, end: int) -> Frames:
        parts: Any = (values[first:end] for values in self)
        return Frames(*parts)

    def measures(self) -> SpeechMeasures:
        """The measures; in a crowd, those of the frames that stand out of it, the speaker's."""
        found = self._measures(SILENT_DB)
        if found.dip_db is None or found.level_dbfs is None or found.crowd_db == 0:
            return found
        silent_db = SILENT_DB - CROWD_STEP * found.crowd_db
        smooth_db = decibel(smoothed(self.power, CROWD_FRAMES))
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
        quietest_db = _quietest(all_db[at[0] : at[-1] + 1])
        whole, low, high = (float(p[heard].mean()) for p in self[:3])
        # in each band, without the noise: the quietest frames tell it
        noises = (NOISE_OVER_BAND * _quietest(p[at[0] : at[-1] + 1]) for p in self[1:3])
        dark, bright = (
            max(p - n, LEAST_VOICE * p) for p, n in zip((low, high), noises, strict=True)
        )
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
        found = np.zeros(len(self.speech), bool)
        found[_without_edges(np.flatnonzero(self.speech))] = True
        return found

    def syllables(self) -> Floats:
        """How many syllables each frame holds [n]; it may be a part of one."""
        return self.density * self.speech

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


def _quietest(values: Floats) -> float:
    """The value that QUIETEST percent of the frames do not reach."""
    return float(np.percentile(values, QUIETEST))


def _without_edges(spoken: Indices) -> Indices:
    """Frames of speech [n] without a first and a last stretch that are short and apart."""
    breaks = np.flatnonzero(np.diff(spoken) - 1 > APART_FRAMES)
    if len(breaks) and breaks[0] + 1 <= EDGE_FRAMES:
        spoken, breaks = spoken[breaks[0] + 1 :], breaks[1:] - breaks[0] - 1
    if len(breaks) and len(spoken) - breaks[-1] - 1 <= EDGE_FRAMES:
        spoken = spoken[: breaks[-1] + 1]
    return spoken


BANDS_HZ = ((0.0, 8000.0), VOICE_HZ, BRIGHT_HZ)
UNIT_SAMPLES = 2560  # 160 ms: whole frames of level and of voice activity
EVERY_SAMPLES = SAMPLE_RATE_HZ // 5
LAST_S = (2, 7, 20)
F0Of = Callable[[Floats, Flags], Floats]


class TurnTrack:
    """Append what is known; ask `measures`.

    Each frame is worked out once, when it comes. Asking then costs a few numpy calls, and F0:
    which of a frame's candidates it is depends on the others.
    """

    def __init__(self, num_columns: int, f0_of: F0Of) -> None:
        """f0_of: rows of `num_columns`, and where somebody speaks, to F0 in Hz, 0 where none."""
        self._f0_of = f0_of
        self._pitch = Growing(num_columns)
        self._powers = tuple(Growing() for _ in BANDS_HZ)
        self._density = Density()
        self._early: Floats | None = np.zeros((0, NUM_MELS), np.float32)  # of no speech yet
        self._num_early = 0  # frames before those
        self._num_forgotten = 0  # frames before the track
        self._speech = Growing(dtype=bool)  # per 512 samples
        self._lead = 0  # samples of the first of them that lie before the track
        self._frame_speech = Growing(dtype=bool)
        self._clipped = Growing()  # samples at full scale, per frame of 10 ms
        self._rest = np.zeros(0, np.float32)
        self.num_samples = 0

    def add_samples(self, samples: Floats) -> None:
        """[n] float32, full scale 1.0."""
        self.num_samples += len(samples)
        held = np.concatenate([self._rest, np.abs(samples) >= FULL_SCALE], dtype=np.float32)
        whole = len(held) // HOP_SAMPLES * HOP_SAMPLES
        self._clipped.append(held[:whole].reshape(-1, HOP_SAMPLES).sum(1))
        self._rest = held[whole:]

    def add_mel(self, raw: Floats) -> None:
        """[n_frames, 128] log10 mel power, of whole frames of 10 ms."""
        powers = frame_powers(raw, *BANDS_HZ)
        for held, power in zip(self._powers, powers, strict=True):
            held.append(power)
        self._count(raw)

    def add_speech(self, probability: Floats, first_sample: int = 0) -> None:
        """The probability of speech [n], one per 512 samples. first_sample: where the first one
        begins, at most at the track's own first sample."""
        if not len(self._speech):
            self._lead = -first_sample
        is_on = bool(len(self._speech) and self._speech.values[-1])
        self._speech.append(speaking(probability, is_on))
        num = (len(self._speech) * SPEECH_SAMPLES - self._lead) // HOP_SAMPLES
        new = np.arange(len(self._frame_speech), num) * HOP_SAMPLES + self._lead
        self._frame_speech.append(self._speech.values[new // SPEECH_SAMPLES])
        self._count(np.zeros((0, NUM_MELS), np.float32))

    def finish(self) -> None:
        """No more frames of voice activity come: those that are left are as the last one."""
        missing = max(0, self.num_heard - len(self._frame_speech))
        is_on = bool(len(self._speech) and self._speech.values[-1])
        self._frame_speech.append(np.full(missing, is_on))

    def add_pitch(self, rows: Floats) -> None:
        """Candidates of F0 of frames of 10 ms [n, num_columns]."""
        self._pitch.append(rows)

    def _count(self, raw: Floats) -> None:
        """Count syllables from ONSET_FRAMES before the first speech on, in whole steps."""
        if self._early is None:
            self._density.add(raw)
            return
        self._early = np.concatenate([self._early, raw])
        spoken = np.flatnonzero(self.speech)
        first = int(spoken[0]) if len(spoken) else len(self.speech)
        begin = self._num_forgotten + first - ONSET_FRAMES
        skipped = begin // STEP_FRAMES * STEP_FRAMES - self._num_early
        skipped = min(max(0, skipped), len(self._early))
        self._density.skip(skipped)
        self._num_early += skipped
        self._early = self._early[skipped:]
        if len(spoken) and len(self._early):
            self._density.add(self._early)
            self._early = None

    @property
    def num_heard(self) -> int:
        """Frames of 10 ms whose mel is known."""
        return len(self._powers[0])

    @property
    def num_frames(self) -> int:
        """Frames of 10 ms of which level and speech are known."""
        return min(self.num_heard, len(self._frame_speech))

    @property
    def num_pitched(self) -> int:
        """Frames of 10 ms of which F0 is known, too."""
        return min(self.num_frames, len(self._pitch))

    @property
    def speech(self) -> Flags:
        """In which frames of 10 ms somebody speaks."""
        found: Flags = self._frame_speech.values
        return found

    def forget(self, num_units: int) -> None:
        """The oldest `num_units` of UNIT_SAMPLES, of which everything must be known, with 0.75 s
        after them: frames are counted from there."""
        frames = num_units * UNIT_SAMPLES // HOP_SAMPLES
        by_frame = (self._clipped, self._frame_speech, self._pitch)
        for held in (*self._powers, *by_frame):
            held.drop(frames)
        self._density.drop(frames)
        self._num_forgotten += frames
        self._speech.drop(num_units * UNIT_SAMPLES // SPEECH_SAMPLES)

    def frames(self) -> Frames:
        """To the last of which level and speech are known."""
        end, pitched = self.num_frames, self.num_pitched
        f0 = np.zeros(end, np.float32)
        f0[:pitched] = self._f0_of(self._pitch.values[:pitched], self.speech[:pitched])
        density = np.zeros(end, np.float32)
        counted = self._density.so_far()[:end]
        density[: len(counted)] = counted
        power, low, high = (held.values[:end] for held in self._powers)
        clipped = self._clipped.values[:end]
        return Frames(power, low, high, f0, self.speech[:end], clipped, density)

    def measures(self) -> SpeechMeasures:
        return self.frames().measures()


def measure_so_far(turn: int, frames: Frames, before: int, after: int) -> Measures:
    """The measures of a turn so far. before, after: its frames of 10 ms around `frames`, in which
    there is no speech."""
    heard_s = (before + len(frames.f0) + after) / FRAMES_PER_S
    so_far = replace(frames.measures(), audio_s=heard_s)
    last = {
        s: replace(frames.last(s - after / FRAMES_PER_S).measures(), audio_s=float(s))
        for s in LAST_S
        if s < heard_s
    }
    return Measures(turn, heard_s, so_far, {s: last.get(s, so_far) for s in LAST_S})
