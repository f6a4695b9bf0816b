"""The output of one recording: its sentence, JSON and tables of measures.

On a terminal a sentence grows as its tokens commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any
from unicodedata import east_asian_width

from streamer.commands.options import DescribeOptions, reference_of
from streamer.commands.process import fail, put, put_json, told_of
from streamer.core.description import Description, TextDelta, one_line
from streamer.core.measures.speech_measures import ABSOLUTE, VOICE_NAMES, SpeechMeasures, Voice
from streamer.core.readings import ABSENT, readings_of
from streamer.core.text.chinese import comma, told
from streamer.core.timeline import main_measures
from streamer.intervals import FilledPauses, Interval
from streamer.progress import clock

NO_VOICE = "pitch for this voice unknown: no pitch is heard, or auto has fewer than two turns"


@dataclass(frozen=True)
class Take:
    """A recording, or one channel of it."""

    file: str
    channel: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Plain types."""
        return {"file": self.file} | ({} if self.channel is None else {"channel": self.channel})

    def __str__(self) -> str:
        return self.file if self.channel is None else f"{self.file}, channel {self.channel}"


class Screen:
    """One take's output. Text goes out as it commits, unless several are described at once."""

    def __init__(self, take: Take, options: DescribeOptions, num_takes: int) -> None:
        has_name = num_takes > 1 and not options.quiet
        self._take, self._options = take, options
        self._name = f"{one_line(str(take))}: " if has_name else ""
        self._held = ""  # text to show at once at the end
        self._from_s: float | None = None
        self._is_begun = False

    def delta(self, delta: TextDelta) -> None:
        """A piece of the sentence. A part of a long recording begins a line with its time."""
        if self._options.json:
            return
        piece = one_line(delta.text)  # a model may write control characters
        if not self._is_begun or delta.from_s != self._from_s:
            has_time = delta.from_s is not None and not self._options.quiet
            time = f"[{clock(delta.from_s or 0)}] " if has_time else ""
            piece = ("\n" if self._is_begun else "") + self._name + time + piece
            self._is_begun, self._from_s = True, delta.from_s
        self._put(piece)

    def end(self) -> None:
        """Close the line, and show all."""
        if self._is_begun:
            self._put("\n")
        put(self._held, end="")

    def failed(self, error: Exception) -> None:
        """Earlier text stays; the reason goes to stderr and into the recording's object."""
        told = told_of(error)
        reason = told or f"{type(error).__name__}: {error}; this is a defect of streamer"
        self.end()
        if self._options.json:
            put_json({**self._take.as_json(), "error": getattr(error, "reason", reason)})
        fail(told or f"{self._take}: {reason}, please report it")

    def done(self, result: Description) -> None:
        options, measures = self._options, result.measures
        notes: list[str] = []
        if not (options.json or self._is_begun):  # no speech
            self._put(self._name.rstrip() + "\n")
        self.end()
        if options.json:
            put_json(result.as_json())
        elif measures is not None and options.measures:
            put(table_of(result))
        if options.pitch_reference is not None and not options.json:
            put(voice_lines(result))
        if not (options.json or options.quiet):
            notes += (
                measures.faults_in("en") if measures is not None and not options.measures else ()
            )
            if result.stop_reason == "no_speech":
                notes.append("no speech was heard, so there is no sentence")
        # a cut file fails the command, so its reason is no mere warning
        if result.warning is not None and (result.is_cut or not options.quiet):
            notes.append(result.warning)
        for note in notes:
            fail(f"{self._take}: {note}")

    def _put(self, text: str) -> None:
        if self._options.jobs == 1:
            put(text, end="")
        else:
            self._held += text


def show_intervals(
    file: str,
    intervals: Sequence[Interval],
    measures: Sequence[SpeechMeasures],
    options: DescribeOptions,
    language: str,
) -> None:
    """An object, or a table with a line for each interval, which are turns of one voice. language:
    of the recording's sentence."""
    voice = Voice(reference_of(options.pitch_reference))
    for found in measures:
        voice.add(found)
    rows: list[Any] = []
    for each, found in zip(intervals, measures, strict=True):
        pitch = voice.of(found)
        if options.json:
            more = {} if pitch is None else {"voice_pitch": pitch.as_json()}
            rows.append(asdict(each) | {"measures": found.as_json()} | more)
            continue
        cells = [f"{each.start_s:.2f}-{each.end_s:.2f} s"]
        for form, value in main_measures(found):
            cells.append(ABSENT if value is None else told(language, form, value))
        if options.pitch_reference is not None:
            name = "" if pitch is None else told(language, VOICE_NAMES[pitch.level])
            cells.append(ABSENT if pitch is None else f"{pitch.semitones:+.1f} ({name})")
        rows.append([*cells, one_line(each.text)])
    if options.json:
        put_json({"file": file, "intervals": rows})
    else:
        put("\n".join(aligned(rows)))


def show_filled(take: Take, found: FilledPauses, is_json: bool, language: str) -> None:
    """An object, or a line."""
    if is_json:
        put_json({**take.as_json(), "filled_pauses": found.as_json()})
        return
    times = ", ".join(f"{begin:.1f}" for begin, _ in found.times_s)
    parts = [told(language, "filled pauses: {}", len(found))]
    if found.per_min is not None:
        parts.append(told(language, "{:.1f} per minute", found.per_min))
    parts += [told(language, "at {} s", times)] if times else []
    put(f"  {comma(language).join(parts)}")


def table_of(result: Description) -> str:
    """One line for each attribute: its word, its number with the error to expect, how sure the word
    is; then details and warnings, all in the sentence's language. Needs measures."""
    m, language, lines, warnings = result.measures, result.language, [], []
    assert m is not None
    if result.stop_reason != "no_speech":
        lines = aligned(
            [
                (
                    told(language, reading.attribute),
                    reading.name or ABSENT,
                    reading.number(language),
                    told(language, reading.certainty),
                )
                for reading in readings_of(result)
            ]
        )
        warnings = [f"  ! {warning}" for warning in m.warnings_in(language)]
    # the recording, and measures that no attribute is a level of
    details = [
        ("noise {:.0f} dB below the speech", m.snr_db),
        ("1 pause" if m.pause_count == 1 else "{:d} pauses", m.pause_count or None),
        ("the longest {:.1f} s", m.longest_pause_s or None),
        ("pitch spans {:.0f} semitones", m.pitch_range_semitones),
        ("loudness spans {:.0f} dB", m.level_range_db),
        ("{:.2f} % clipped", 100 * m.clipped_share or None),
        (ABSOLUTE, m.pitch_median_hz),
    ]
    known = [told(language, "{:.1f} s of speech in {:.1f} s", m.speech_s, m.audio_s)]
    known += [told(language, form, value) for form, value in details if value is not None]
    return "\n".join([*lines, f"  {comma(language).join(known)}", *warnings])


def voice_lines(result: Description) -> str:
    """How high the pitch is for this voice; of a long recording a line for each part."""
    language = result.language
    if not result.parts:
        pitch = result.voice_pitch
        return f"  {pitch.told_in(language) if pitch else told(language, NO_VOICE)}"
    rows = [(clock(part.start_s), part.voice_pitch) for part in result.parts]
    return "\n".join(f"  [{at}] {p.told_in(language) if p else ABSENT}" for at, p in rows)


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of a table as lines, two blanks before each column."""

    def columns(text: str) -> int:  # of a terminal: a Chinese character takes two
        return sum(2 if east_asian_width(c) in "WF" else 1 for c in text)

    widths = [max(map(columns, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = zip(row, widths, strict=True)
        line = "".join("  " + text + " " * (width - columns(text)) for text, width in cells)
        lines.append(line.rstrip())
    return lines
