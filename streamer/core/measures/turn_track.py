"""One turn's frames as they come, and the measures of them, of all or of the last seconds.

In: log-mel, voice activity, F0 and samples, cut anywhere. Out: SpeechMeasures. State: about 32
bytes per frame of 10 ms, so 190 kB for a turn of 60 s.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from streamer.core.measures.density import Density
from streamer.core.measures.frames import (
    BRIGHT_HZ,
    HOP_SAMPLES,
    SPEECH_SAMPLES,
    VOICE_HZ,
    decibel,
    frame_powers,
    speaking,
)
from streamer.core.measures.growing import Growing
from streamer.core.measures.speech_measures import FULL_SCALE, SpeechMeasures
from streamer.core.measures.turn_frames import Flags, Floats, Frames

BANDS_HZ = ((0.0, 8000.0), VOICE_HZ, BRIGHT_HZ)
UNIT_SAMPLES = 2560  # 160 ms: whole frames of level, of voice activity, and of F0 at 16 ms


class TurnTrack:
    """Append what is known; ask `measures`. F0 is on a grid of its own: `pitch_hop` samples.

    What each frame says is worked out once, when it comes. Asking then costs a few numpy calls.
    """

    def __init__(self, pitch_hop: int) -> None:
        self._pitch_hop = pitch_hop
        self._powers = tuple(Growing() for _ in BANDS_HZ)
        self._level_db = Growing()
        self._density = Density()
        self._f0 = Growing()  # per `pitch_hop`
        self._frame_f0 = Growing()
        self._speech = Growing(dtype=bool)  # per 512 samples
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
        self._level_db.append(decibel(powers[0]))
        self._density.add(raw)

    def add_speech(self, probability: Floats) -> Flags:
        """[n], per 512 samples. Returns where somebody speaks, [n]."""
        is_on = bool(len(self._speech) and self._speech.values[-1])
        speech = speaking(probability, is_on)
        self._speech.append(speech)
        num = len(self._speech) * SPEECH_SAMPLES // HOP_SAMPLES
        new = np.arange(len(self._frame_speech), num) * HOP_SAMPLES // SPEECH_SAMPLES
        self._frame_speech.append(self._speech.values[new])
        return speech

    def add_pitch(self, f0_hz: Floats) -> None:
        """[n], per `pitch_hop` samples; 0 where unvoiced."""
        self._f0.append(f0_hz)
        new = np.arange(len(self._frame_f0), self._num_frames_of(len(self._f0)))
        self._frame_f0.append(self._f0_at(new * HOP_SAMPLES / self._pitch_hop))

    @property
    def num_heard(self) -> int:
        """Frames of 10 ms whose mel is known."""
        return len(self._level_db)

    @property
    def num_frames(self) -> int:
        """Frames of 10 ms of which level and speech are known."""
        return min(len(self._level_db), len(self._frame_speech))

    def is_pitched(self, num_f0: int) -> bool:
        """Whether the first `num_f0` frames of F0 are known."""
        return len(self._frame_f0) >= self._num_frames_of(num_f0)

    @property
    def num_pitched(self) -> int:
        """Frames of 10 ms of which F0 is known, too."""
        return min(self.num_frames, len(self._frame_f0))

    def forget(self, num_units: int) -> None:
        """The oldest `num_units` of UNIT_SAMPLES, of which everything must be known, with 0.6 s
        behind them: frames are counted from there."""
        frames = num_units * UNIT_SAMPLES // HOP_SAMPLES
        by_frame = (self._level_db, self._clipped, self._frame_speech, self._frame_f0)
        for held in (*self._powers, *by_frame):
            held.drop(frames)
        self._density.drop(frames)
        self._speech.drop(num_units * UNIT_SAMPLES // SPEECH_SAMPLES)
        self._f0.drop(num_units * UNIT_SAMPLES // self._pitch_hop)

    def frames(self) -> Frames:
        """To the last of which level and speech are known."""
        end = self.num_frames
        f0 = self._frame_f0.values[:end]
        f0 = np.concatenate([f0, np.zeros(end - len(f0), np.float32)])
        power, low, high = (held.values[:end] for held in self._powers)
        return Frames(
            power,
            low,
            high,
            self._level_db.values[:end],
            f0,
            self._frame_speech.values[:end],
            self._clipped.values[:end],
            self._density.so_far()[:end],
        )

    def measures(self) -> SpeechMeasures:
        """Of all frames that are known."""
        return self.frames().measures()

    def until_f0(self, num_f0: int) -> SpeechMeasures:
        """Of all frames that are known, as if F0 ended with its first `num_f0` frames."""
        frames = self.frames()
        pitched = min(len(frames.f0), self._num_frames_of(num_f0))
        f0 = np.concatenate([frames.f0[:pitched], np.zeros(len(frames.f0) - pitched, np.float32)])
        return replace(frames, f0=f0).measures()

    def _f0_at(self, places: NDArray[np.float64]) -> Floats:
        """F0 at places between two of its frames [n]: voiced where the nearer one is. On the way
        from one to the next it moves evenly in semitones."""
        before = places.astype(np.int64)
        behind = np.ceil(places).astype(np.int64)
        way = places - before
        near = self._f0.values[np.where(way < 0.5, before, behind)]
        a, b = self._f0.values[before], self._f0.values[behind]
        between = a * (b / np.where(a > 0, a, 1)) ** way
        return np.where((a > 0) & (b > 0), between, near).astype(np.float32)

    def _num_frames_of(self, num_f0: int) -> int:
        """Frames of 10 ms that lie between the first `num_f0` of F0."""
        return (num_f0 - 1) * self._pitch_hop // HOP_SAMPLES + 1 if num_f0 > 0 else 0
