"""Where a pitch lies for one voice, in semitones from that voice's usual one.

The pitch that a sentence names is absolute: most women are "high" there, most men "low".
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

import numpy as np

from streamer.core.measures.speech_measures import SpeechMeasures

# "auto": the median of the voice's own turns, or that of a coach's baseline; None: absolute only
PitchReference = float | Literal["auto"] | None
REFERENCE_HZ = (30.0, 1000.0)
# 383 turns of 8 readers are 0.7 to 1.3 semitones from their own median (SD, 2026-11).
BOUNDS = (-3.0, -1.5, 1.5, 3.0)  # semitones
NAMES = ("very low", "low", "usual", "high", "very high")
MAX_TURNS = 1_000  # that a usual pitch is taken from, the last ones
ABSOLUTE = "pitch compared with all voices"


@dataclass(frozen=True, slots=True)
class VoicePitch:
    """semitones: over reference_hz, the voice's usual pitch. reference: "given", "turns" (the
    median of the voice's own turns) or "baseline" (a coach's)."""

    semitones: float
    reference_hz: float
    reference: Literal["given", "turns", "baseline"]

    @property
    def level(self) -> int:
        """0 (very low for this voice) to 4 (very high for it); 2 is usual."""
        return int(np.searchsorted(BOUNDS, self.semitones))

    def __str__(self) -> str:
        away = f"{self.semitones:+.1f} semitones from {self.reference_hz:.0f} Hz"
        return f"pitch {NAMES[self.level]} for this voice: {away}"

    def as_json(self) -> dict[str, Any]:
        """Plain types, rounded."""
        return {
            "semitones": round(self.semitones, 2),
            "reference_hz": round(self.reference_hz, 1),
            "reference": self.reference,
            "level": self.level,
            "name": f"{NAMES[self.level]} for this voice",
        }


class Voice:
    """The usual pitch of one speaker, given, or of the turns that were added."""

    def __init__(self, reference: PitchReference) -> None:
        """Raises ValueError for a reference that is no pitch of a voice."""
        low, high = REFERENCE_HZ
        is_number = isinstance(reference, Real) and not isinstance(reference, bool)
        is_name = reference is None or (isinstance(reference, str) and reference == "auto")
        if not is_name and not (is_number and low <= reference <= high):  # type: ignore[operator]
            told = f"give {low:g} to {high:g} Hz, or auto"
            raise ValueError(f"pitch_reference is {reference!r:.40}; {told}")
        self._is_told = reference is not None
        self._hz = None if is_name else float(reference)  # type: ignore[arg-type]
        self._turns: deque[tuple[float, float]] = deque(maxlen=MAX_TURNS)  # semitones, seconds

    def go_on(self, before: Voice) -> None:
        """The same speaker as `before`: with its turns."""
        self._turns.extend(before._turns)

    def add(self, found: SpeechMeasures | None) -> None:
        """One more turn of the speaker."""
        if found is not None and found.pitch_median_hz is not None:
            self._turns.append((12 * math.log2(found.pitch_median_hz), found.speech_s))

    def of(
        self, found: SpeechMeasures | None, baseline_hz: float | None = None
    ) -> VoicePitch | None:
        """Where the pitch of `found` lies. baseline_hz: of a coach, used where none is given. None:
        absolute only, no pitch, or "auto" with fewer than two turns and no baseline."""
        if not self._is_told or found is None or found.pitch_median_hz is None:
            return None
        semitones = 12 * math.log2(found.pitch_median_hz)
        if (hz := self._hz) is not None:
            return VoicePitch(semitones - 12 * math.log2(hz), hz, "given")
        if baseline_hz is not None:
            return VoicePitch(semitones - 12 * math.log2(baseline_hz), baseline_hz, "baseline")
        if len(self._turns) < 2:
            return None
        usual = _weighted_median(self._turns)
        return VoicePitch(semitones - usual, 2 ** (usual / 12), "turns")


def _weighted_median(pairs: Sequence[tuple[float, float]] | deque[tuple[float, float]]) -> float:
    """The value under which half of the weight lies, of (value, weight)."""
    values, weights = np.array(sorted(pairs)).T
    added = np.cumsum(weights)
    return float(values[np.searchsorted(added, added[-1] / 2)])
