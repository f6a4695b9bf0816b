"""The measures of one turn, with units in every name, and warnings in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

MIN_SNR_DB = 10.0
MAX_CLIPPED = 0.002  # share of the samples
MIN_SPEECH_S = 1.5
FULL_SCALE = 0.999


@dataclass(frozen=True, slots=True)
class SpeechMeasures:
    """One turn, or a stretch of one. None: too little speech to say. docs/measures.md defines
    each."""

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

    @property
    def rate_syllables_per_min(self) -> float | None:
        """The rate per minute of speech."""
        return None if self.rate_syllables_per_s is None else 60 * self.rate_syllables_per_s

    @property
    def warnings(self) -> tuple[str, ...]:
        """In plain words: why these numbers cannot be relied on. Empty where they can."""
        return tuple(_warnings(self))

    def as_json(self) -> dict[str, Any]:
        """Plain types, rounded to 4 decimals."""
        row = asdict(self)
        row["rate_syllables_per_min"] = self.rate_syllables_per_min
        row = {name: round(v, 4) if isinstance(v, float) else v for name, v in row.items()}
        return row | {"warnings": list(self.warnings)}


def _warnings(found: SpeechMeasures) -> Sequence[str]:
    told = []
    if found.speech_s < MIN_SPEECH_S:
        told.append(f"only {found.speech_s:.1f} s of speech: under {MIN_SPEECH_S} s nothing holds")
    if found.speech_s >= MIN_SPEECH_S and found.pitch_median_hz is None:
        told.append("no pitch: the voice is whispered, so nothing is said about pitch and melody")
    if found.clipped_share > MAX_CLIPPED:
        told.append(
            f"clipped: {100 * found.clipped_share:.1f} % of the samples are at full scale, so "
            "level and timbre are wrong; record it softer"
        )
    if found.snr_db is not None and found.snr_db < MIN_SNR_DB:
        told.append(
            f"noisy: speech is only {found.snr_db:.0f} dB above the noise, {MIN_SNR_DB:.0f} dB "
            "are needed; go nearer to the microphone"
        )
    return told


def join_measures(parts: Sequence[SpeechMeasures]) -> SpeechMeasures | None:
    """The measures of a recording in parts: sums of counts and seconds, else means by seconds of
    speech. None for no parts."""
    if not parts:
        return None
    if len(parts) == 1:
        return parts[0]
    spans = [(p, p.speech_s) for p in parts]
    total = sum(p.audio_s for p in parts)
    counts = [p.pause_count for p in parts if p.pause_count is not None]
    longest = [p.longest_pause_s for p in parts if p.longest_pause_s is not None]

    def mean(name: str) -> float | None:
        known = [(getattr(p, name), s) for p, s in spans if getattr(p, name) is not None]
        weight = sum(s for _, s in known)
        return sum(v * s for v, s in known) / weight if weight else None

    return SpeechMeasures(
        rate_syllables_per_s=mean("rate_syllables_per_s"),
        pitch_median_hz=mean("pitch_median_hz"),
        pitch_mean_hz=mean("pitch_mean_hz"),
        pitch_sd_hz=mean("pitch_sd_hz"),
        pitch_sd_semitones=mean("pitch_sd_semitones"),
        pitch_range_semitones=mean("pitch_range_semitones"),
        level_dbfs=mean("level_dbfs"),
        level_range_db=mean("level_range_db"),
        pause_share=mean("pause_share"),
        pause_count=sum(counts) if counts else None,
        longest_pause_s=max(longest) if longest else None,
        timbre_db=mean("timbre_db"),
        speech_s=sum(p.speech_s for p in parts),
        audio_s=total,
        snr_db=mean("snr_db"),
        clipped_share=sum(p.clipped_share * p.audio_s for p in parts) / total if total else 0.0,
    )


@dataclass(frozen=True, slots=True)
class Measures:
    """A turn that goes on: all of it so far, and its last 2, 7 and 20 s. heard_s: up to where.
    F0 is known up to 25 ms before that."""

    turn: int
    heard_s: float
    so_far: SpeechMeasures
    last: Mapping[int, SpeechMeasures]

    def as_json(self) -> dict[str, Any]:
        """Plain types; the keys of `last` are seconds as text."""
        last = {str(seconds): found.as_json() for seconds, found in self.last.items()}
        return {"heard_s": round(self.heard_s, 3), "so_far": self.so_far.as_json(), "last_s": last}
