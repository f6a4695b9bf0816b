"""`streamer describe`: recordings in; sentences or JSON on stdout; all else on stderr."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import anyio
import anyio.to_thread

from streamer.audio.file import AudioError, open_audio
from streamer.commands.options import DescribeOptions
from streamer.commands.process import (
    Failed,
    aligned,
    fail,
    opened,
    put,
    put_json,
    recordings_of,
    tell,
    told_of,
)
from streamer.config import Config, ConfigError
from streamer.core.attributes import ABSENT, readings_of
from streamer.core.description import Description, TextDelta, one_line
from streamer.core.measures.speech_measures import ABSOLUTE
from streamer.core.text import comma, told
from streamer.core.text.vocabulary import SENTENCE_ENDS
from streamer.core.timeline import conversation
from streamer.describer import Describer
from streamer.intervals import filled_pauses, measure_intervals, read_intervals
from streamer.progress import Bar, clock
from streamer.timeline import check_target, main_measures, write_timeline

NO_VOICE = "pitch for this voice unknown: no pitch is heard, or auto has fewer than two turns"


class Take:
    """A recording, or one channel of it, and its output. Text goes out as it commits, unless
    several are described at once."""

    def __init__(
        self, file: str, channel: int | None, is_alone: bool, options: DescribeOptions, bar: Bar
    ) -> None:
        self._file, self._channel, self._options, self._bar = file, channel, options, bar
        self._is_alone = is_alone
        self._name = "" if is_alone or options.quiet else f"{one_line(str(self))}: "
        self._held = ""  # text to show at once at the end
        self._from_s: float | None = None
        self._is_open = False  # a line of text has begun

    def __str__(self) -> str:
        return self._file if self._channel is None else f"{self._file}, channel {self._channel}"

    async def describe(self, describer: Describer) -> Description | None:
        """Describe it and show all; None where that failed."""
        options = self._options
        try:
            result = await describer.describe(
                self._file,
                self._delta,
                self._heard,
                measures=options.measures or bool(options.timeline or options.pitch_reference),
                channel=self._channel,
                track=options.track,
                pitch_reference=options.pitch_reference,
            )
        except (Failed, BrokenPipeError):  # of stdout: nothing more can be shown
            raise
        except Exception as error:
            self._failed(error)
            return None
        self._done(result)
        if options.intervals is not None:
            await anyio.to_thread.run_sync(self._show_intervals, result.language)
        if options.filled_pauses:
            await anyio.to_thread.run_sync(self._show_filled, result.language)
        return result

    def _heard(self, heard_s: float, of_s: float) -> None:
        """Show how far a single recording is heard, unless the bar would tear a line."""
        if self._is_alone and not self._is_open:
            self._bar.show(heard_s / of_s, f"{clock(heard_s)} of {clock(of_s)}")

    def _delta(self, delta: TextDelta) -> None:
        """A piece of the sentence. A part of a long recording begins a line with its time."""
        if self._options.json:
            return
        piece = one_line(delta.text)  # a model may write control characters
        is_new = delta.from_s != self._from_s
        if is_new or not self._is_open:
            time = f"[{clock(delta.from_s or 0)}] " if is_new and not self._options.quiet else ""
            piece = ("\n" if self._is_open else "") + self._name + time + piece
            self._from_s = delta.from_s
        # closed at once, so that the bar may come back, and no warning stands in the line
        self._is_open = not piece.endswith(tuple(SENTENCE_ENDS))
        self._put(piece if self._is_open else piece + "\n")

    def _put(self, text: str) -> None:
        if self._is_alone or self._options.jobs == 1:
            put(text, end="")
        else:
            self._held += text

    def _end(self) -> None:
        """Close the line, and show all."""
        if self._is_open:
            self._put("\n")
        self._is_open = False
        put(self._held, end="")

    def _failed(self, error: Exception) -> None:
        """Earlier text stays; the reason goes to stderr and into the recording's object."""
        told = told_of(error)
        reason = told or f"{type(error).__name__}: {error}; this is a defect of streamer"
        self._end()
        if self._options.json:
            self._put_json({"error": getattr(error, "reason", reason)})
        fail(told or f"{self}: {reason}, please report it")

    def _done(self, result: Description) -> None:
        options, measures = self._options, result.measures
        notes: list[str] = []
        # a cut file fails the command, so its reason is no mere warning
        if result.warning is not None and (result.is_cut or not options.quiet):
            notes.append(result.warning)
        if not (options.json or result.text):  # no speech
            self._put(self._name.rstrip() + "\n")
        self._end()
        if options.json:
            put_json(result.as_json())
        else:
            if measures is not None and options.measures:
                put(table_of(result))
            if options.pitch_reference is not None:
                put(voice_lines(result))
            if measures is not None and not (options.measures or options.quiet):
                notes += measures.faults_in("en")
            if result.stop_reason == "no_speech" and not options.quiet:
                notes.append("no speech was heard, so there is no sentence")
        if notes:
            fail(f"{self}: {'; '.join(notes)}")
        if options.verbose:
            tell(summary(result))

    def _put_json(self, row: Mapping[str, Any]) -> None:
        channel = {} if self._channel is None else {"channel": self._channel}
        put_json({"file": self._file, **channel, **row})

    def _show_intervals(self, language: str) -> None:
        """An object, or a table with a line for each interval."""
        intervals = read_intervals(self._options.intervals or "")
        measures = measure_intervals(self._file, intervals, self._channel, self._options.track)
        rows, table = [], []
        for each, found in zip(intervals, measures, strict=True):
            rows.append(asdict(each) | {"measures": found.as_json()})
            cells = [cell or ABSENT for cell in main_measures(found, language)[:-1]]
            table.append([f"{each.start_s:.2f}-{each.end_s:.2f} s", *cells, one_line(each.text)])
        if self._options.json:
            self._put_json({"intervals": rows})
        else:
            put("\n".join(aligned(table)))

    def _show_filled(self, language: str) -> None:
        """The filled pauses, as an object or a line."""
        found = filled_pauses(self._file, self._channel, self._options.track)
        if self._options.json:
            self._put_json({"filled_pauses": found.as_json()})
            return
        times = ", ".join(f"{begin:.1f}" for begin, _ in found.times_s)
        parts = [told(language, "filled pauses: {}", len(found))]
        if found.per_min is not None:
            parts.append(told(language, "{:.1f} per minute", found.per_min))
        parts += [told(language, "at {} s", times)] if times else []
        put(f"  {comma(language).join(parts)}")


async def run(options: DescribeOptions, config: Config) -> int:
    """The exit status: 1 when any recording, or a model, failed. Raises ConfigError."""
    files = recordings_of(options.files)
    is_apart = options.channels == "apart"
    if "-" in files and (is_apart or options.filled_pauses or options.intervals is not None):
        raise ConfigError("stdin can be read only once, and these options need more; give a file")
    if options.timeline is not None:
        check_target(options.timeline)
    if options.intervals is not None:
        read_intervals(options.intervals)
    for name in ("timeline", "intervals"):
        if (of_one := getattr(options, name)) is not None and len(files) != 1:
            told = f"{len(files)} are given: give one recording"
            raise ConfigError(f"--{name} {of_one} is of one recording; {told}")
    return await _describe_all(files, config.for_jobs(options.jobs), options)


async def _describe_all(files: Sequence[str], config: Config, options: DescribeOptions) -> int:
    """`options.jobs` recordings at once; one's failure never ends the run."""
    todo, num_done, has_failed = iter(files), 0, False
    async with opened(config) as describer:
        with Bar("describing", len(files)) as bar:

            async def work() -> None:
                nonlocal has_failed, num_done
                for file in todo:
                    if len(files) > 1:
                        bar.show(num_done, f"{num_done} of {len(files)}")
                    channels = await anyio.to_thread.run_sync(channels_of, file, options)
                    is_alone = len(files) == len(channels) == 1
                    takes = [Take(file, each, is_alone, options, bar) for each in channels]
                    found = [await take.describe(describer) for take in takes]
                    if not await anyio.to_thread.run_sync(_ended, found, options):
                        has_failed = True
                    num_done += 1

            async with anyio.create_task_group() as group:
                for _ in range(min(options.jobs, len(files))):
                    group.start_soon(work)
    return 1 if has_failed else 0


def _ended(found: Sequence[Description | None], options: DescribeOptions) -> bool:
    """Show the call and write the timeline, if asked for. False if any failed or is cut short."""
    channels = [each for each in found if each is not None]
    if len(channels) < len(found):
        return False
    file, out = channels[0].file, options.timeline
    if options.measures and (call := conversation(channels)) is not None:
        if options.json:
            put_json({"file": file, "conversation": call.as_json()})
        else:
            put(f"  {call.told_in(channels[0].language)}")
    if out is not None:
        if any(each.timeline is None for each in channels):
            fail(f"{file}: holds no sample, so {out} is not written")
            return False
        try:
            if (left_out := write_timeline(channels, out)) is not None:
                fail(f"{out}: {left_out}")
        except OSError as error:
            fail(f"--timeline {out}: cannot be written ({error.strerror}); make room, run it again")
            return False
    return not any(each.is_cut for each in channels)


def channels_of(file: str, options: DescribeOptions) -> Sequence[int | None]:
    """Those described by themselves; None: all as one. An error of opening is reported later."""
    if options.channels == "apart":
        with suppress(AudioError), open_audio(file, options.track) as audio:
            return range(audio.channels)
    return [None]


def table_of(result: Description) -> str:
    """One line for each attribute: its word, its number with the error to expect, how sure the word
    is; then details and warnings, all in the sentence's language. Needs measures."""
    m, language = result.measures, result.language
    assert m is not None
    rows: list[tuple[str, ...]] = []
    warnings: list[str] = []
    if result.stop_reason != "no_speech":
        rows = [reading.cells(language) for reading in readings_of(result)]
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
    return "\n".join([*aligned(rows), f"  {comma(language).join(known)}", *warnings])


def summary(result: Description) -> str:
    """One line of numbers. The times of a long recording would be those of one part."""
    told = [f"{result.audio_s:.1f} s"]
    if result.ttft_ms is not None and not result.parts:
        told.append(f"first text after {result.ttft_ms:.0f} ms")
    told += [f"{result.n_tokens} tokens", f"{result.verified_share:.0%} verified [{result.mode}]"]
    return f"  {one_line(result.file)}: {', '.join(told)}"


def voice_lines(result: Description) -> str:
    """How high the pitch is for this voice; of a long recording a line for each part."""
    language = result.language
    if not result.parts:
        pitch = result.voice_pitch
        return f"  {pitch.told_in(language) if pitch else told(language, NO_VOICE)}"
    rows = [(clock(part.start_s), part.voice_pitch) for part in result.parts]
    return "\n".join(f"  [{at}] {p.told_in(language) if p else ABSENT}" for at, p in rows)
