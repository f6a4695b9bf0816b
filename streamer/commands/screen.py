"""The output of one recording: its sentence, JSON, table of measures and line of numbers.

On a terminal a sentence grows as its tokens commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import Any
from unicodedata import east_asian_width

from streamer.commands.options import DescribeOptions, reference_of
from streamer.commands.process import fail, put, put_json, tell, told_of
from streamer.core.conversation import conversation
from streamer.core.description import Description, TextDelta, one_line
from streamer.core.measures.speech_measures import (
    ABSOLUTE,
    VOICE_NAMES,
    SpeechMeasures,
    Voice,
    VoicePitch,
)
from streamer.core.readings import ABSENT, readings_of
from streamer.core.text.chinese import comma, told
from streamer.core.text.vocabulary import SENTENCE_ENDS
from streamer.core.timeline import main_measures
from streamer.intervals import FilledPauses, Interval
from streamer.progress import Bar, clock

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

    def __init__(self, take: Take, options: DescribeOptions, num_takes: int, bar: Bar) -> None:
        has_name = num_takes > 1 and not options.quiet
        self._take = take
        self._options = options
        self._bar = bar
        self._name = f"{one_line(str(take))}: " if has_name else ""
        self._grows = options.jobs == 1
        self._held = ""  # text to show at once at the end
        self._from_s: float | None = None
        self._is_begun = False
        self._is_open = False  # a line of text has begun

    @property
    def blocks_bar(self) -> bool:
        """Whether a bar would tear the line that grows."""
        return self._is_open and self._grows

    def delta(self, delta: TextDelta) -> None:
        """A piece of the sentence. A part of a long recording begins a line with its time."""
        if self._options.json:
            return
        piece = text = one_line(delta.text)  # a model may write control characters
        if delta.from_s is not None and delta.from_s != self._from_s:
            self._from_s = delta.from_s
            self.end()
            piece = text if self._options.quiet else f"[{clock(delta.from_s)}] {text}"
        self._write(piece if self._is_open else self._name + piece)
        self._is_open = True
        # a part's line is closed at once, so that the bar may come back
        if delta.from_s is not None and text.endswith(tuple(SENTENCE_ENDS)):
            self.end()

    def end(self) -> None:
        if self._is_open:
            self._write("\n")
        self._is_open = False

    def failed(self, error: Exception) -> None:
        """Earlier text stays; the reason goes to stderr and into the recording's object."""
        told = told_of(error)
        reason = told or f"{type(error).__name__}: {error}; this is a defect of streamer"
        self._flush()
        if self._options.json:
            put_json({**self._take.as_json(), "error": getattr(error, "reason", reason)})
        fail(told or f"{self._take}: {reason}, please report it")

    def done(self, result: Description) -> None:
        options, measures = self._options, result.measures
        if not (options.json or self._is_begun):  # no speech
            self._write(self._name.rstrip() + "\n")
        self._flush()
        if options.json:
            put_json(result.as_json())
        elif measures is not None and options.measures:
            put(table_of(result))
        elif measures is not None and self._is_talkative:
            for fault in measures.faults:
                self._tell(fault)
        if options.pitch_reference is not None and not options.json:
            put(voice_lines(result))
        if result.stop_reason == "no_speech" and self._is_talkative:
            self._tell("no speech was heard, so there is no sentence")
        # a cut file fails the command, so its reason is no mere warning
        if result.warning is not None and (result.is_cut or not options.quiet):
            self._tell(result.warning)
        if options.verbose:
            tell(summary(result))

    @property
    def _is_talkative(self) -> bool:
        return not (self._options.json or self._options.quiet)

    def _tell(self, why: str) -> None:
        """A line on stderr about the recording."""
        self._bar.hide()
        fail(f"{self._take}: {why}")

    def _write(self, text: str) -> None:
        self._is_begun = True
        self._held += text
        if self._grows:
            self._put_held()

    def _flush(self) -> None:
        """Close the line, and show all; the bar is hidden then."""
        self.end()
        self._put_held()

    def _put_held(self) -> None:
        self._bar.hide()
        put(self._held, end="")
        self._held = ""


def show_call(file: str, channels: Sequence[Description], options: DescribeOptions) -> None:
    """An object or a line on what is between the channels of a call; nothing without speech."""
    if (found := conversation(channels)) is None:
        return
    if options.json:
        put_json({"file": file, "conversation": found.as_json()})
        return
    put(f"  {found.told_in(channels[0].language)}")


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
    pairs = list(zip(intervals, measures, strict=True))
    if options.json:
        each_json = [
            asdict(each)
            | {"measures": found.as_json()}
            | ({} if (pitch := voice.of(found)) is None else {"voice_pitch": pitch.as_json()})
            for each, found in pairs
        ]
        put_json({"file": file, "intervals": each_json})
        return
    rows = [
        (
            f"{each.start_s:.2f}-{each.end_s:.2f} s",
            *(_known(language, *measure) for measure in main_measures(found)),
            *([] if options.pitch_reference is None else [_for_voice(voice.of(found), language)]),
            one_line(each.text),
        )
        for each, found in pairs
    ]
    put("\n".join(aligned(rows)))


def show_filled(take: Take, found: FilledPauses, is_json: bool, language: str) -> None:
    """An object, or a line."""
    if is_json:
        put_json({**take.as_json(), "filled_pauses": found.as_json()})
        return
    times = ", ".join(f"{begin:.1f}" for begin, _ in found.times_s)
    parts = [told(language, "filled pauses: {}", len(found))]
    parts += [_known(language, "{:.1f} per minute", found.per_min)]
    parts += [told(language, "at {} s", times)] if times else []
    put(f"  {comma(language).join(parts)}")


def table_of(result: Description) -> str:
    """One line for each attribute: its word, its number with the error to expect, how sure the word
    is; then details and warnings, all in the sentence's language. Needs measures."""
    found, language = result.measures, result.language
    assert found is not None
    rows = [
        (
            told(language, reading.attribute),
            reading.name or ABSENT,
            reading.number(language),
            told(language, reading.certainty),
        )
        for reading in readings_of(result)
    ]
    is_heard = result.stop_reason != "no_speech"
    lines = [*(aligned(rows) if is_heard else ()), f"  {_details(found, language)}"]
    warnings = [f"  ! {warning}" for warning in found.warnings_in(language) if is_heard]
    return "\n".join([*lines, *warnings])


def voice_lines(result: Description) -> str:
    """How high the pitch is for this voice; of a long recording a line for each part."""
    language = result.language
    if not result.parts:
        pitch = result.voice_pitch
        return f"  {pitch.told_in(language) if pitch else told(language, NO_VOICE)}"
    begins = accumulate((part.audio_s for part in result.parts), initial=0.0)
    pitches = [part.voice_pitch for part in result.parts]
    rows = zip(begins, (p.told_in(language) if p else ABSENT for p in pitches), strict=False)
    return "\n".join(f"  [{clock(begin)}] {pitch}" for begin, pitch in rows)


def _for_voice(pitch: VoicePitch | None, language: str) -> str:
    if pitch is None:
        return ABSENT
    return f"{pitch.semitones:+.1f} ({told(language, VOICE_NAMES[pitch.level])})"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of a table as lines, two blanks before each column."""
    widths = [max(map(_columns, column)) for column in zip(*rows, strict=True)]
    return ["".join(map(_padded, row, widths)).rstrip() for row in rows]


def _columns(text: str) -> int:
    """Columns of a terminal: a Chinese character takes two."""
    return sum(2 if east_asian_width(c) in "WF" else 1 for c in text)


def _padded(text: str, width: int) -> str:
    return "  " + text + " " * (width - _columns(text))


def _details(m: SpeechMeasures, language: str) -> str:
    """The recording, and measures that no attribute is a level of."""
    known = [
        ("noise {:.0f} dB below the speech", m.snr_db),
        ("1 pause" if m.pause_count == 1 else "{:d} pauses", m.pause_count or None),
        ("the longest {:.1f} s", m.longest_pause_s or None),
        ("pitch spans {:.0f} semitones", m.pitch_range_semitones),
        ("loudness spans {:.0f} dB", m.level_range_db),
        ("{:.2f} % clipped", 100 * m.clipped_share or None),
        (ABSOLUTE, m.pitch_median_hz),
    ]
    seconds = told(language, "{:.1f} s of speech in {:.1f} s", m.speech_s, m.audio_s)
    more = [told(language, form, value) for form, value in known if value is not None]
    return comma(language).join([seconds, *more])


def _known(language: str, form: str, value: float | None) -> str:
    """The value in this form; a dash if it is unknown."""
    return ABSENT if value is None else told(language, form, value)


def summary(result: Description) -> str:
    """One line of numbers. The times of a long recording would be those of one part."""
    told = [f"{result.audio_s:.1f} s"]
    if result.ttft_ms is not None and not result.parts:
        told.append(f"first text after {result.ttft_ms:.0f} ms")
    told += [f"{result.n_tokens} tokens", f"{result.verified_share:.0%} verified [{result.mode}]"]
    return f"  {one_line(result.file)}: {', '.join(told)}"
