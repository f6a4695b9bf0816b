"""Measures as a person reads them. In: SpeechMeasures. Out: lines of a table, units in each."""

from __future__ import annotations

from streamer.core.measures.speech_measures import SpeechMeasures

ABSENT = "-"
INDENT = "  "


def table_of(found: SpeechMeasures) -> str:
    """One line per measure, then the warnings; ends with a newline."""
    rows = _rows(found)
    width = max(len(name) for name, _ in rows)
    lines = [f"{INDENT}{name:<{width}}  {told}" for name, told in rows]
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


def _told(form: str, *values: float | None) -> str:
    """The values in this form, or a dash where one is not known."""
    return ABSENT if None in values else form.format(*values)
