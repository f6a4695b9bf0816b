"""One turn's frames as they come, and the measures of them, of all or of the last seconds.

In: log-mel, voice activity, candidates of F0 and samples, cut anywhere. Out: SpeechMeasures. State:
about 130 bytes per frame of 10 ms, so 0.8 MB for a turn of 60 s.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

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
UNIT_SAMPLES = 2560  # 160 ms: whole frames of level and of voice activity
F0Of = Callable[[Floats, Flags], Floats]


class TurnTrack:
    """Append what is known; ask `measures`.

    What each frame says is worked out once, when it comes. Asking then costs a few numpy calls, and
    F0: which of a frame's candidates it is depends on the others.
    """

    def __init__(self, num_columns: int, f0_of: F0Of) -> None:
        """f0_of: rows of so many columns, and where somebody speaks, to F0 in Hz, 0 where none."""
        self._f0_of = f0_of
        self._pitch = Growing(num_columns)
        self._powers = tuple(Growing() for _ in BANDS_HZ)
        self._level_db = Growing()
        self._density = Density()
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

    def add_pitch(self, rows: Floats) -> None:
        """What F0 of frames of 10 ms may be [n, num_columns]."""
        self._pitch.append(rows)

    @property
    def num_heard(self) -> int:
        """Frames of 10 ms whose mel is known."""
        return len(self._level_db)

    @property
    def num_frames(self) -> int:
        """Frames of 10 ms of which level and speech are known."""
        return min(len(self._level_db), len(self._frame_speech))

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
        """The oldest `num_units` of UNIT_SAMPLES, of which everything must be known, with 0.6 s
        behind them: frames are counted from there."""
        frames = num_units * UNIT_SAMPLES // HOP_SAMPLES
        by_frame = (self._level_db, self._clipped, self._frame_speech, self._pitch)
        for held in (*self._powers, *by_frame):
            held.drop(frames)
        self._density.drop(frames)
        self._speech.drop(num_units * UNIT_SAMPLES // SPEECH_SAMPLES)

    def frames(self) -> Frames:
        """To the last of which level and speech are known."""
        end, pitched = self.num_frames, self.num_pitched
        f0 = np.zeros(end, np.float32)
        f0[:pitched] = self._f0_of(self._pitch.values[:pitched], self.speech[:pitched])
        power, low, high = (held.values[:end] for held in self._powers)
        return Frames(
            power,
            low,
            high,
            self._level_db.values[:end],
            f0,
            self.speech[:end],
            self._clipped.values[:end],
            self._density.so_far()[:end],
        )

    def measures(self) -> SpeechMeasures:
        """Of all frames that are known."""
        return self.frames().measures()
