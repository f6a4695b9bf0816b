"""The output of one recording: its sentence, JSON, table of measures and line of numbers.

On a terminal a sentence grows as its tokens commit.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import Any
from unicodedata import east_asian_width

from streamer.commands.options import DescribeOptions
from streamer.commands.process import fail, plain, put, tell
from streamer.core.conversation import conversation
from streamer.core.description import Description, TextDelta, one_line
from streamer.core.measures.speech_measures import (
    ABSOLUTE,
    VOICE_NAMES,
    SpeechMeasures,
    Voice,
    VoicePitch,
)
from streamer.core.readings import ABSENT, readings_of, titles_in
from streamer.core.text.characters import SENTENCE_ENDS
from streamer.fillers import FilledPauses
from streamer.intervals import Interval
from streamer.progress import Bar, clock

NO_VOICE = "pitch for this voice unknown: auto needs two turns or more, or give HZ"


@dataclass(frozen=True)
class Take:
    """A recording, or one channel of it. number: of the recording, among those that were given."""

    file: str
    channel: int | None = None
    number: int = 0

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
        self._grows = options.jobs == 1 or num_takes == 1
        self._held: list[str] = []  # text that does not grow
        self._from_s: float | None = None
        self._is_begun = False
        self._is_open = False  # a line of text has begun
        self.where = ""  # the position in the recording, if it is known

    @property
    def blocks_bar(self) -> bool:
        """Whether a bar would tear the line that grows on this terminal."""
        return self._is_open and self._grows and sys.stdout.isatty()

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

    def wait(self, why: str) -> None:
        """Explain a long pause on stderr, but never inside a line that grows."""
        if not (self._options.json or self._options.quiet or self._is_begun):
            self._tell(why)

    def end(self) -> None:
        if self._is_open:
            self._write("\n")
        self._is_open = False

    def failed(self, told: str, reason: str) -> None:
        """Earlier text stays; the reason goes to stderr and into the recording's object."""
        self._flush()
        if self._options.json:
            channel = {} if self._take.channel is None else {"channel": self._take.channel}
            self._say(_as_json({"file": self._take.file, **channel, "error": reason}))
        self._bar.hide()
        fail(told)

    def done(self, result: Description, is_away: bool) -> None:
        options = self._options
        if options.json:
            self._say(_as_json(result.as_json()))
        elif not self._is_begun:  # no speech
            self._say(self._name.rstrip() + "\n")
        self._flush()
        if result.measures is not None and options.measures and not options.json:
            self._say(table_of(result))
        elif result.measures is not None and not (options.json or options.quiet):
            for fault in result.measures.faults:
                self._tell(fault)
        if options.pitch_reference is not None and not options.json:
            self._say(voice_lines(result))
        if result.stop_reason == "no_speech" and not (options.json or options.quiet):
            self._tell("no speech was heard, so there is no sentence")
        # a cut file fails the command, so its reason is no mere warning
        if result.warning is not None and (result.is_cut or not options.quiet):
            self._tell(result.warning)
        if options.verbose:
            self._bar.hide()
            tell(summary(result, is_away))

    def _tell(self, why: str) -> None:
        """A line on stderr about the recording."""
        self._bar.hide()
        fail(f"{self._take}: {why}")

    def _write(self, text: str) -> None:
        self._is_begun = True
        if self._grows:
            self._say(text)
        else:
            self._held.append(text)

    def _flush(self) -> None:
        self.end()
        if self._held:
            self._say("".join(self._held))
            self._held.clear()

    def _say(self, text: str) -> None:
        if sys.stdout.isatty():
            self._bar.hide()
        put(text, end="")


def show_call(file: str, channels: Sequence[Description], options: DescribeOptions) -> None:
    """An object or a line on what is between the channels of a call; nothing without speech."""
    if (found := conversation(channels)) is None:
        return
    if options.json:
        put(_as_json({"file": file, "conversation": found.as_json()}), end="")
        return
    put(f"  between channels: {found}")


def show_intervals(
    file: str,
    intervals: Sequence[Interval],
    measures: Sequence[SpeechMeasures],
    options: DescribeOptions,
) -> None:
    """An object, or a table with a line for each interval, which are turns of one voice."""
    voice = Voice(options.reference)
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
        put(_as_json({"file": file, "intervals": each_json}), end="")
        return
    rows = [
        (
            f"{each.start_s:.2f}-{each.end_s:.2f} s",
            _told("{:.1f} syllables/s", found.rate_syllables_per_s),
            _told("{:.0f} Hz", found.pitch_median_hz),
            _told("SD {:.1f} semitones", found.pitch_sd_semitones),
            _told("{:.1f} dBFS", found.level_dbfs),
            *([] if options.reference is None else [_for_voice(voice.of(found))]),
            one_line(each.text),
        )
        for each, found in pairs
    ]
    put("\n".join(aligned(rows)))


def show_filled(take: Take, found: FilledPauses, is_json: bool) -> None:
    """An object, or a line."""
    if is_json:
        channel = {} if take.channel is None else {"channel": take.channel}
        put(_as_json({"file": take.file, **channel, "filled_pauses": found.as_json()}), end="")
        return
    times = ", ".join(f"{begin:.1f}" for begin, _ in found.times_s)
    where = f" (at {times} s)" if times else ""
    put(f"  filled pauses: {len(found)}, {_told('{:.1f} per minute', found.per_min)}{where}")


def _as_json(row: Mapping[str, Any]) -> str:
    told = {name: plain(value) for name, value in row.items()}
    return json.dumps(told, ensure_ascii=False) + "\n"


def table_of(result: Description) -> str:
    """One line for each attribute: its word, its number with the error to expect, how sure the word
    is; then details and warnings. Ends with a newline. Needs measures."""
    found = result.measures
    assert found is not None
    titles = titles_in(result.language)
    readings = readings_of(result)
    rows = [(titles[r.attribute], r.name or ABSENT, r.number, r.certainty) for r in readings]
    lines = [*aligned(rows), f"  {_details(found)}"]
    return "\n".join([*lines, *(f"  ! {warning}" for warning in found.warnings)]) + "\n"


def voice_lines(result: Description) -> str:
    """How high the pitch is for this voice; of a long recording a line for each part."""
    if not result.parts:
        return f"  {result.voice_pitch or NO_VOICE}\n"
    begins = accumulate((part.audio_s for part in result.parts), initial=0.0)
    rows = zip(begins, result.parts, strict=False)
    return "".join(f"  [{clock(begin)}] {part.voice_pitch or ABSENT}\n" for begin, part in rows)


def _for_voice(pitch: VoicePitch | None) -> str:
    return ABSENT if pitch is None else f"{pitch.semitones:+.1f} ({VOICE_NAMES[pitch.level]})"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of a table as lines, two blanks before each column."""
    widths = [max(map(_columns, column)) for column in zip(*rows, strict=True)]
    return ["".join(map(_padded, row, widths)).rstrip() for row in rows]


def _columns(text: str) -> int:
    """Columns of a terminal: a Chinese character takes two."""
    return sum(2 if east_asian_width(c) in "WF" else 1 for c in text)


def _padded(text: str, width: int) -> str:
    return "  " + text + " " * (width - _columns(text))


def _details(m: SpeechMeasures) -> str:
    """The recording, and measures that no attribute is a level of."""
    told = [
        (f"{m.speech_s:.1f} s of speech in {m.audio_s:.1f} s", True),
        ("noise {:.0f} dB below the speech", m.snr_db),
        ({0: "no pause", 1: "1 pause"}.get(m.pause_count or 0, "{:d} pauses"), m.pause_count),
        ("the longest {:.1f} s", m.longest_pause_s or None),
        ("pitch spans {:.0f} semitones", m.pitch_range_semitones),
        ("loudness spans {:.0f} dB", m.level_range_db),
        ("{:.2f} % clipped", 100 * m.clipped_share or None),
        (ABSOLUTE, m.pitch_median_hz),
    ]
    return ", ".join(form.format(value) for form, value in told if value is not None)


def _told(form: str, value: float | None) -> str:
    """The value in this form; a dash if it is unknown."""
    return ABSENT if value is None else form.format(value)


def summary(result: Description, is_away: bool) -> str:
    """One line of numbers. is_away: tokens were uploaded to a verifier elsewhere."""
    head = f"  {one_line(result.file)}: {result.audio_s:.1f} s"
    if result.stop_reason == "no_speech":
        return f"{head}, no speech"
    if result.parts:  # times are those of one part
        said = f"{len(result.parts)} parts, {result.n_tokens} tokens"
    else:
        first = "no text" if result.ttft_ms is None else f"first text after {result.ttft_ms:.0f} ms"
        speed = "" if result.tokens_per_s is None else f" at {result.tokens_per_s:.0f}/s"
        said = f"{first}, {result.n_tokens} tokens{speed}"
    checked = _checked(result, is_away)
    return f"{head}, {said}, {checked}{result.verified_share:.0%} verified [{result.mode}]"


def _checked(result: Description, is_away: bool) -> str:
    if not result.n_uploaded:
        return ""
    calls = f"{result.cloud_calls} call{'s' * (result.cloud_calls != 1)}"
    if is_away:
        return f"{result.n_uploaded} uploaded in {calls} ({result.n_accepted} accepted), "
    checked = f"{result.n_uploaded} checked by the larger model in {calls}"
    return f"{checked} ({result.n_accepted} kept), "
