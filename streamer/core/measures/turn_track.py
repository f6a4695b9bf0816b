"""One turn's frames as they come, and the measures of them, of all or of the last seconds.

In: log-mel, voice activity, F0 and samples, cut anywhere. Out: SpeechMeasures. State: about 30
bytes per frame of 10 ms, so 180 kB for a turn of 60 s.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamer.core.measures.frames import (
    BRIGHT_HZ,
    FRAMES_PER_S,
    HOP_SAMPLES,
    MIN_FRAMES,
    SPEECH_SAMPLES,
    VOICE_HZ,
    active_level,
    decibel,
    frame_power,
    on_mel_frames,
    pause_frames,
    span_of,
    speaking,
    vowel_loudness,
)
from streamer.core.measures.nuclei import count_syllables
from streamer.core.measures.pitch import PitchStats, in_range, pitch_stats
from streamer.core.measures.speech_measures import FULL_SCALE, SpeechMeasures

Floats = NDArray[np.float32]
Flags = NDArray[np.bool_]
GUARD_FRAMES = 5  # beside speech, where its ends still sound, nothing is noise
MIN_NOISE_FRAMES = 10
BANDS_HZ = ((0.0, 8000.0), VOICE_HZ, BRIGHT_HZ)
UNIT_SAMPLES = 2560  # 160 ms: whole frames of level, of voice activity, and of F0 at 16 ms


class Growing:
    """A float32 array [n, ...] that grows; appending costs constant time on average."""

    def __init__(self, *shape: int) -> None:
        self._held = np.zeros((256, *shape), np.float32)
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def append(self, values: Floats) -> None:
        end = self._size + len(values)
        if end > len(self._held):
            room = np.zeros((max(end, 2 * len(self._held)), *self._held.shape[1:]), np.float32)
            room[: self._size] = self._held[: self._size]
            self._held = room
        self._held[self._size : end] = values
        self._size = end

    def drop(self, num: int) -> None:
        """Forget the first `num`."""
        self._held = self._held[num : max(self._size, num + 1)].copy()
        self._size -= num

    @property
    def values(self) -> Floats:
        return self._held[: self._size]


class TurnTrack:
    """Append what is known; ask `measures`. F0 is on a grid of its own: `pitch_hop` samples."""

    def __init__(self, pitch_hop: int) -> None:
        self._pitch_hop = pitch_hop
        self._bands = Growing(len(BANDS_HZ) + 1)
        self._f0 = Growing()
        self._speech = Growing()  # probability per 512 samples
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
        powers = [frame_power(raw, *band) for band in BANDS_HZ]
        self._bands.append(np.stack([*powers, vowel_loudness(raw)], 1))

    def add_speech(self, probability: Floats) -> None:
        """[n], per 512 samples."""
        self._speech.append(probability)

    def add_pitch(self, f0_hz: Floats) -> None:
        """[n], per `pitch_hop` samples; 0 where unvoiced."""
        self._f0.append(f0_hz)

    @property
    def num_heard(self) -> int:
        """Frames of 10 ms whose mel is known."""
        return len(self._bands)

    @property
    def num_frames(self) -> int:
        """Frames of 10 ms of which level and speech are known."""
        judged = len(self._speech) * SPEECH_SAMPLES // HOP_SAMPLES
        return min(len(self._bands), judged)

    @property
    def num_pitched(self) -> int:
        """Frames of 10 ms of which F0 is known, too."""
        return min(self.num_frames, len(self._f0) * self._pitch_hop // HOP_SAMPLES)

    def forget(self, num_units: int) -> None:
        """The oldest `num_units` of UNIT_SAMPLES, of which everything must be known: frames are
        counted from behind them."""
        frames = num_units * UNIT_SAMPLES // HOP_SAMPLES
        self._bands.drop(frames)
        self._clipped.drop(frames)
        self._speech.drop(num_units * UNIT_SAMPLES // SPEECH_SAMPLES)
        self._f0.drop(num_units * UNIT_SAMPLES // self._pitch_hop)

    def frames(self) -> Frames:
        """To the last of which level and speech are known."""
        end = self.num_frames
        at = np.arange(end) * HOP_SAMPLES
        flags = speaking(self._speech.values)
        nearest = (at + self._pitch_hop // 2) // self._pitch_hop
        f0 = np.pad(self._f0.values, (0, max(0, end - len(self._f0))))[nearest]
        return Frames(
            self._bands.values[:end], f0, on_mel_frames(flags, end), self._clipped.values[:end]
        )

    def measures(self) -> SpeechMeasures:
        """Of all frames that are known."""
        return self.frames().measures()


@dataclass(frozen=True)
class Frames:
    """Frames of 10 ms: power in BANDS_HZ and loudness [n, 4], F0 in Hz or 0, speech, and how many
    samples are at full scale."""

    bands: Floats
    f0: Floats
    speech: Flags
    clipped: Floats

    def last(self, seconds: float) -> Frames:
        """The last so many seconds of them."""
        kept = slice(max(0, len(self.f0) - int(seconds * FRAMES_PER_S)), None)
        return Frames(self.bands[kept], self.f0[kept], self.speech[kept], self.clipped[kept])

    def measures(self) -> SpeechMeasures:
        """What can be said of them."""
        power, low, high, loudness = self.bands.T
        num = len(power)
        audio_s = num / FRAMES_PER_S
        clipped = float(self.clipped.sum()) / max(1, num * HOP_SAMPLES)
        if self.speech.sum() < MIN_FRAMES:
            return SpeechMeasures(audio_s=audio_s, clipped_share=clipped)
        first, end = span_of(self.speech)
        pauses = pause_frames(~self.speech[first:end])
        spoken = end - first - int(pauses.sum())
        active_db, heard = active_level(power, self.speech)
        level_low, level_high = np.percentile(decibel(power[heard]), [5, 95])
        found = self.pitch(heard)
        syllables = count_syllables(loudness, self.f0 > 0, self.speech)
        return SpeechMeasures(
            rate_syllables_per_s=FRAMES_PER_S * syllables / spoken,
            pitch_median_hz=found.median_hz if found else None,
            pitch_sd_semitones=found.sd_semitones if found else None,
            pitch_range_semitones=found.range_semitones if found else None,
            pitch_mean_hz=found.mean_hz if found else None,
            pitch_sd_hz=found.sd_hz if found else None,
            level_dbfs=float(active_db),
            level_range_db=float(level_high - level_low),
            pause_share=float(pauses.sum()) / (end - first),
            pause_count=len(pauses),
            longest_pause_s=float(pauses.max(initial=0)) / FRAMES_PER_S,
            timbre_db=float(10 * np.log10(high[heard].mean() / low[heard].mean())),
            speech_s=spoken / FRAMES_PER_S,
            audio_s=audio_s,
            snr_db=self.snr_db(heard),
            clipped_share=clipped,
        )

    def pitch(self, heard: Flags) -> PitchStats | None:
        """Of the frames that are heard and voiced; None where these are too few."""
        voiced = in_range(self.f0[heard & (self.f0 > 0)])
        return pitch_stats(voiced) if len(voiced) >= MIN_FRAMES else None

    def snr_db(self, heard: Flags) -> float | None:
        """Speech over what sounds where nobody speaks; None where there is too little of that."""
        near = np.convolve(self.speech, np.ones(2 * GUARD_FRAMES + 1), mode="same") > 0
        noise = self.bands[~near, 0]
        if len(noise) < MIN_NOISE_FRAMES:
            return None
        noise_power = float(np.median(noise)) + 1e-12
        speech_power = max(float(self.bands[heard, 0].mean()) - noise_power, 1e-12)
        return float(10 * np.log10(speech_power / noise_power))
