"""Measures for people. In: SpeechMeasures, how sure words are. Out: a table with units."""

from __future__ import annotations

from collections.abc import Mapping

from streamer.core.measures.speech_measures import SpeechMeasures

ABSENT = "-"
INDENT = "  "
AROUSAL = "arousal"  # a word without a measure
# a line's name -> the attribute whose word is on it
WORDS = {
    "rate": "rate",
    "pitch": "pitch",
    "pitch range": "variation",
    "level": "loudness",
    "pauses": "pauses",
    "timbre": "timbre",
    AROUSAL: AROUSAL,
}


def table_of(found: SpeechMeasures, confidence: Mapping[str, float | None] | None = None) -> str:
    """One line per measure, then the warnings; ends with a newline. confidence: of the word on it,
    a column of its own where it is known."""
    rows = _rows(found)
    if confidence is not None and confidence.get("arousal") is not None:
        rows.append((AROUSAL, ABSENT))
    told = {name: _sure(confidence, name) for name, _ in rows}
    names, values = (max(map(len, column)) for column in zip(*rows, strict=True))
    lines = [
        f"{INDENT}{name:<{names}}  {value:<{values}}  {told[name]}".rstrip() for name, value in rows
    ]
    lines += [f"{INDENT}! {warning}" for warning in found.warnings]
    return "\n".join(lines) + "\n"


def _rows(m: SpeechMeasures) -> list[tuple[str, str]]:
    rate = _told("{:.1f} syllables/s, {:.0f}/min", m.rate_syllables_per_s, m.rate_syllables_per_min)
    semitones = _told("SD {:.1f}, 5-95 % {:.1f}", m.pitch_sd_semitones, m.pitch_range_semitones)
    level = _told("{:.1f} dBFS, range {:.0f} dB", m.level_dbfs, m.level_range_db)
    share = None if m.pause_share is None else 100 * m.pause_share
    pauses = _told("{:.0f} % in {:d}, longest {:.2f} s", share, m.pause_count, m.longest_pause_s)
    clipped = f"clipped {100 * m.clipped_share:.2f} %"
    return [
        ("rate", rate),
        ("pitch", _told("{:.0f} Hz", m.pitch_median_hz)),
        ("pitch range", ABSENT if semitones == ABSENT else f"{semitones} semitones"),
        ("level", level),
        ("pauses", pauses),
        ("timbre", _told("{:+.1f} dB (1-5 kHz over 80-1000 Hz)", m.timbre_db)),
        ("speech", f"{m.speech_s:.1f} s of {m.audio_s:.1f} s"),
        ("recording", f"SNR {_told('{:.0f} dB', m.snr_db)}, {clipped}"),
    ]


def _sure(confidence: Mapping[str, float | None] | None, name: str) -> str:
    """What stands in the column of confidence."""
    sure = confidence.get(WORDS[name]) if confidence is not None and name in WORDS else None
    return "" if sure is None else f"word right: {100 * sure:.0f} %"


def _told(form: str, *values: float | None) -> str:
    """The values in this form, or a dash where one is not known."""
    return ABSENT if None in values else form.format(*values)
