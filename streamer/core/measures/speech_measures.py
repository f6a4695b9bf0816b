"""The measures of one turn, with warnings in words, and where its pitch lies for one voice.

The pitch that a sentence names is absolute: most women are "high" there, most men "low".
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from numbers import Real
from typing import Any, ClassVar, Literal

import numpy as np

from streamer.core.text import told

MIN_SNR_DB = 10.0
MAX_CLIPPED = 0.002  # share of the samples
MIN_SPEECH_S = 1.5
FULL_SCALE = 0.999
# Shallower dips between syllables mean that others speak, unless noise in the pauses explains them.
CROWD_DB = 24.0
# A recording whose `crowd_db` is over this gets a warning. It warns of 2 to 5 % of people's
# recordings, of 61 % with babble 10 dB under the voice, and of 17 % in rooms (2026-11).
MAX_CROWD_DB = 6.0
# "auto": the median of the voice's own turns, or that of a coach's baseline; None: absolute only
PitchReference = float | Literal["auto"] | None
REFERENCE_HZ = (30.0, 1000.0)
# 383 turns of 8 readers are 0.7 to 1.3 semitones from their own median (SD, 2026-11).
VOICE_BOUNDS = (-3.0, -1.5, 1.5, 3.0)  # semitones
VOICE_NAMES = ("very low", "low", "usual", "high", "very high")
MAX_TURNS = 1_000  # that a usual pitch is taken from, the last ones
ABSOLUTE = "pitch compared with all voices"


@dataclass(frozen=True, slots=True)
class SpeechMeasures:
    """One turn, or a stretch of one. None: too little speech. docs/measures.md defines each."""

    rate_syllables_per_s: float | None = None
    pitch_median_hz: float | None = None
    pitch_sd_semitones: float | None = None
    pitch_range_semitones: float | None = None  # 5th to 95th percentile
    level_dbfs: float | None = None
    level_range_db: float | None = None  # 5th to 95th percentile
    pause_share: float | None = None
    pause_count: int | None = None
    longest_pause_s: float | None = None
    timbre_db: float | None = None
    speech_s: float = 0.0  # from the first speech to the last, pauses left out
    audio_s: float = 0.0
    snr_db: float | None = None
    clipped_share: float = 0.0
    pitch_mean_hz: float | None = None
    pitch_sd_hz: float | None = None
    dip_db: float | None = None
    outside_db: float | None = None

    @property
    def rate_syllables_per_min(self) -> float | None:
        return None if self.rate_syllables_per_s is None else 60 * self.rate_syllables_per_s

    @property
    def crowd_db(self) -> float:
        """How far other voices fill the dips between syllables: more than quiet pauses would."""
        if self.dip_db is None:
            return 0.0
        deep_db = CROWD_DB if self.snr_db is None else min(CROWD_DB, self.snr_db)
        return max(0.0, deep_db - self.dip_db)

    @property
    def warnings(self) -> tuple[str, ...]:
        """In plain words: why these numbers cannot be relied on. Empty where they can."""
        return self.warnings_in("en")

    def warnings_in(self, language: str) -> tuple[str, ...]:
        """The same in the language of a sentence."""
        faults = self.faults_in(language)
        if self.speech_s < MIN_SPEECH_S:
            return told(language, SHORT, self.speech_s, MIN_SPEECH_S), *faults
        return faults if self.pitch_median_hz is not None else (told(language, WHISPERED), *faults)

    def faults_in(self, language: str) -> tuple[str, ...]:
        """Those of the warnings that blame the recording: its words suffer from them, too."""
        found = []
        if self.clipped_share > MAX_CLIPPED:
            found.append(told(language, CLIPPED, 100 * self.clipped_share))
        if self.snr_db is not None and self.snr_db < MIN_SNR_DB:
            # floor: never "only 10 dB, 10 are needed"
            found.append(told(language, NOISY, math.floor(self.snr_db), MIN_SNR_DB))
        elif self.crowd_db > MAX_CROWD_DB:
            found.append(told(language, CROWDED))
        return tuple(found)

    def as_json(self) -> dict[str, Any]:
        """Plain types, rounded to 4 decimals."""
        row = asdict(self) | {"rate_syllables_per_min": self.rate_syllables_per_min}
        row = {name: round(v, 4) if isinstance(v, float) else v for name, v in row.items()}
        return row | {"warnings": list(self.warnings)}


SHORT = "only {:.1f} s of speech: under {:.1f} s nothing holds"
WHISPERED = "no pitch: the voice is whispered, so nothing is said about pitch and melody"
CLIPPED = (
    "clipped: {:.1f} % of the samples are at full scale, so level and timbre are wrong; record it "
    "softer"
)
NOISY = (
    "noisy: speech is only {:.0f} dB above the noise, {:.0f} dB are needed; go nearer to the "
    "microphone"
)
CROWDED = (
    "crowded: other voices or an echo fill the gaps between syllables; go nearer to the microphone"
)


def join_measures(parts: Sequence[SpeechMeasures]) -> SpeechMeasures | None:
    """Measures of parts: sums of counts and seconds, else means by speech; None for no parts."""
    if len(parts) < 2:
        return parts[0] if parts else None
    found: dict[str, Any] = {}
    for name in SpeechMeasures.__slots__:
        known = [(v, p.speech_s) for p in parts if (v := getattr(p, name)) is not None]
        weight = sum(seconds for _, seconds in known)
        found[name] = sum(v * seconds for v, seconds in known) / weight if weight else None
    counts = [p.pause_count for p in parts if p.pause_count is not None]
    longest_s = [p.longest_pause_s for p in parts if p.longest_pause_s is not None]
    audio_s = sum(p.audio_s for p in parts)
    clipped_s = sum(p.clipped_share * p.audio_s for p in parts)
    found |= {
        "pause_count": sum(counts) if counts else None,
        "longest_pause_s": max(longest_s, default=None),
        "speech_s": sum(p.speech_s for p in parts),
        "audio_s": audio_s,
        "clipped_share": clipped_s / audio_s if audio_s else 0.0,
    }
    return SpeechMeasures(**found)


@dataclass(frozen=True, slots=True)
class Measures:
    """A turn that goes on: all of it so far, and its last 2, 7 and 20 s. heard_s: up to where.
    F0 is known up to 25 ms before that."""

    turn: int
    heard_s: float
    so_far: SpeechMeasures
    last: Mapping[int, SpeechMeasures]
    may_be_lost: ClassVar[bool] = True  # where the reader is slow: a later one replaces it

    def as_json(self) -> dict[str, Any]:
        """Plain types; the keys of `last` are seconds as text."""
        last = {str(seconds): found.as_json() for seconds, found in self.last.items()}
        return {"heard_s": round(self.heard_s, 3), "so_far": self.so_far.as_json(), "last_s": last}


@dataclass(frozen=True, slots=True)
class VoicePitch:
    """semitones: over reference_hz, the voice's usual pitch. reference: "given", "turns" (the
    median of the voice's own turns) or "baseline" (a coach's)."""

    semitones: float
    reference_hz: float
    reference: str

    @property
    def level(self) -> int:
        """0 (very low for this voice) to 4 (very high for it); 2 is usual."""
        return int(np.searchsorted(VOICE_BOUNDS, self.semitones))

    def __str__(self) -> str:
        return self.told_in("en")

    def told_in(self, language: str) -> str:
        """One line."""
        form = "pitch {} for this voice: {:+.1f} semitones from {:.0f} Hz"
        word = told(language, VOICE_NAMES[self.level])
        return told(language, form, word, self.semitones, self.reference_hz)

    def as_json(self) -> dict[str, Any]:
        """Plain types, rounded."""
        return {
            "semitones": round(self.semitones, 2),
            "reference_hz": round(self.reference_hz, 1),
            "reference": self.reference,
            "level": self.level,
            "name": f"{VOICE_NAMES[self.level]} for this voice",
        }


class Voice:
    """The usual pitch of one speaker, given, or of the turns that were added."""

    def __init__(self, reference: PitchReference) -> None:
        """Raises ValueError for a reference that is no pitch of a voice."""
        low, high = REFERENCE_HZ
        is_hz = isinstance(reference, Real) and low <= reference <= high
        if not (is_hz or reference is None or reference == "auto"):
            told = f"give {low:g} to {high:g} Hz, or auto"
            raise ValueError(f"pitch_reference is {reference!r:.40}; {told}")
        self._reference = reference
        self._turns: deque[tuple[float, float]] = deque(maxlen=MAX_TURNS)  # pitch in Hz, seconds

    def add(self, found: SpeechMeasures | None) -> None:
        if found is not None and found.pitch_median_hz is not None:
            self._turns.append((found.pitch_median_hz, found.speech_s))

    def of(self, found: SpeechMeasures | None, base_hz: float | None = None) -> VoicePitch | None:
        """Where the pitch of `found` lies. base_hz: of a coach, used where none is given. None:
        absolute only, no pitch, or "auto" with fewer than two turns and no baseline."""
        if self._reference is None or found is None or found.pitch_median_hz is None:
            return None
        if self._reference != "auto":
            usual_hz, reference = float(self._reference), "given"
        elif base_hz is not None:
            usual_hz, reference = base_hz, "baseline"
        elif len(self._turns) >= 2:
            # the value under which half of the weight lies
            values, seconds = np.array(sorted(self._turns)).T
            added = np.cumsum(seconds)
            usual_hz, reference = float(values[np.searchsorted(added, added[-1] / 2)]), "turns"
        else:
            return None
        semitones = 12 * math.log2(found.pitch_median_hz) - 12 * math.log2(usual_hz)
        return VoicePitch(semitones, usual_hz, reference)
