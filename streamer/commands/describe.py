"""`streamer describe`: recordings in; sentences or JSON on stdout; all else on stderr."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import anyio
import anyio.to_thread

from streamer.audio.file import AudioError, open_audio
from streamer.commands.options import DescribeOptions, reference_of
from streamer.commands.process import (
    Failed,
    aligned,
    fail,
    opened,
    put,
    put_json,
    recordings_of,
    run_async,
    tell,
    told_of,
)
from streamer.config import Config, ConfigError, combined
from streamer.core.attributes import ABSENT, readings_of
from streamer.core.description import Description, TextDelta, one_line
from streamer.core.measures.speech_measures import ABSOLUTE
from streamer.core.text.chinese import comma, told
from streamer.core.text.vocabulary import SENTENCE_ENDS
from streamer.core.timeline import conversation
from streamer.describer import Describer
from streamer.intervals import filled_pauses, measure_intervals, read_intervals
from streamer.progress import Bar, clock
from streamer.timeline import check_target, main_measures, write_timeline

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
        self.take, self._options, self._bar = take, options, bar
        self._is_alone = num_takes == 1
        self._name = f"{one_line(str(take))}: " if has_name else ""
        self._held = ""  # text to show at once at the end
        self._from_s: float | None = None
        self._is_open = False  # a line of text has begun

    def heard(self, heard_s: float, of_s: float) -> None:
        """Show how far a single recording is heard, unless the bar would tear a line."""
        if self._is_alone and not (self._is_open and self._options.jobs == 1):
            self._bar.show(heard_s / of_s, f"{clock(heard_s)} of {clock(of_s)}")

    def delta(self, delta: TextDelta) -> None:
        """A piece of the sentence. A part of a long recording begins a line with its time."""
        if self._options.json:
            return
        piece = one_line(delta.text)  # a model may write control characters
        is_new = delta.from_s is not None and delta.from_s != self._from_s
        if is_new or not self._is_open:
            time = f"[{clock(delta.from_s or 0)}] " if is_new and not self._options.quiet else ""
            piece = ("\n" if self._is_open else "") + self._name + time + piece
            self._from_s = delta.from_s
        # a part's line is closed at once, so that the bar may come back
        self._is_open = delta.from_s is None or not piece.endswith(tuple(SENTENCE_ENDS))
        self._put(piece if self._is_open else piece + "\n")

    def end(self) -> None:
        """Close the line, and show all."""
        if self._is_open:
            self._put("\n")
        self._is_open = False
        self._bar.hide()
        put(self._held, end="")

    def failed(self, error: Exception) -> None:
        """Earlier text stays; the reason goes to stderr and into the recording's object."""
        told = told_of(error)
        reason = told or f"{type(error).__name__}: {error}; this is a defect of streamer"
        self.end()
        if self._options.json:
            put_json({**self.take.as_json(), "error": getattr(error, "reason", reason)})
        fail(told or f"{self.take}: {reason}, please report it")

    def done(self, result: Description) -> None:
        options, measures = self._options, result.measures
        notes: list[str] = []
        if not (options.json or result.text):  # no speech
            self._put(self._name.rstrip() + "\n")
        self.end()
        if options.json:
            put_json(result.as_json())
        elif measures is not None and options.measures:
            put(table_of(result))
        if options.pitch_reference is not None and not options.json:
            put(voice_lines(result))
        if not (options.json or options.quiet):
            if measures is not None and not options.measures:
                notes += measures.faults_in("en")
            if result.stop_reason == "no_speech":
                notes.append("no speech was heard, so there is no sentence")
        # a cut file fails the command, so its reason is no mere warning
        if result.warning is not None and (result.is_cut or not options.quiet):
            notes.append(result.warning)
        for note in notes:
            fail(f"{self.take}: {note}")
        if options.verbose:
            tell(summary(result))

    def _put(self, text: str) -> None:
        if self._options.jobs == 1:
            self._bar.hide()
            put(text, end="")
        else:
            self._held += text


def run(options: DescribeOptions, given: Mapping[str, Any]) -> int:
    """The exit status: 1 when any recording, or a model, failed. Raises ConfigError."""
    config = combined(options.pipeline, given).for_jobs(options.jobs)
    files = recordings_of(options.files)
    is_apart = options.channels == "apart"
    if "-" in files and (is_apart or options.filled_pauses or options.intervals is not None):
        raise ConfigError("stdin can be read only once, and these options need more; give a file")
    reference_of(options.pitch_reference)
    if options.timeline is not None:
        check_target(options.timeline)
    if options.intervals is not None:
        read_intervals(options.intervals)
    for name in ("timeline", "intervals"):
        if (of_one := getattr(options, name)) is not None and len(files) != 1:
            told = f"{len(files)} are given: give one recording"
            raise ConfigError(f"--{name} {of_one} is of one recording; {told}")
    return run_async(_describe_all, files, config, options)


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
                    takes = await anyio.to_thread.run_sync(takes_of, file, options)
                    num_takes = max(len(files), len(takes))
                    screens = [Screen(take, options, num_takes, bar) for take in takes]
                    if not await _describe_file(describer, screens, options):
                        has_failed = True
                    num_done += 1

            async with anyio.create_task_group() as group:
                for _ in range(min(options.jobs, len(files))):
                    group.start_soon(work)
    return 1 if has_failed else 0


async def _describe_file(
    describer: Describer, screens: Sequence[Screen], options: DescribeOptions
) -> bool:
    """All takes of a recording, one after the other. False if something of it failed, or it is cut
    short."""
    found = [await _describe(describer, screen, options) for screen in screens]
    channels = [each for each in found if each is not None]
    if len(channels) < len(screens):
        return False
    is_shown = await anyio.to_thread.run_sync(_show_together, channels, options)
    return is_shown and not any(each.is_cut for each in channels)


async def _describe(
    describer: Describer, screen: Screen, options: DescribeOptions
) -> Description | None:
    """The description of a take; None where that failed."""
    take = screen.take
    try:
        result = await describer.describe(
            take.file,
            screen.delta,
            screen.heard,
            measures=options.measures or bool(options.timeline or options.pitch_reference),
            channel=take.channel,
            track=options.track,
            pitch_reference=reference_of(options.pitch_reference),
        )
    except anyio.get_cancelled_exc_class():
        screen.end()
        raise
    except (Failed, BrokenPipeError):  # of stdout: nothing more can be shown
        raise
    except Exception as error:
        screen.failed(error)
        return None
    screen.done(result)
    if options.intervals is not None:
        await anyio.to_thread.run_sync(_show_intervals, take, options, result.language)
    if options.filled_pauses:
        await anyio.to_thread.run_sync(_show_filled, take, options, result.language)
    return result


def _show_intervals(take: Take, options: DescribeOptions, language: str) -> None:
    """An object, or a table with a line for each interval."""
    intervals = read_intervals(options.intervals or "")
    measures = measure_intervals(take.file, intervals, take.channel, options.track)
    pairs = list(zip(intervals, measures, strict=True))
    if options.json:
        rows = [asdict(each) | {"measures": found.as_json()} for each, found in pairs]
        put_json({"file": take.file, "intervals": rows})
        return
    table = []
    for each, found in pairs:
        cells = [f"{each.start_s:.2f}-{each.end_s:.2f} s"]
        cells += [cell or ABSENT for cell in main_measures(found, language)[:-1]]
        table.append([*cells, one_line(each.text)])
    put("\n".join(aligned(table)))


def _show_filled(take: Take, options: DescribeOptions, language: str) -> None:
    """The filled pauses, as an object or a line."""
    found = filled_pauses(take.file, take.channel, options.track)
    if options.json:
        put_json({**take.as_json(), "filled_pauses": found.as_json()})
        return
    times = ", ".join(f"{begin:.1f}" for begin, _ in found.times_s)
    parts = [told(language, "filled pauses: {}", len(found))]
    if found.per_min is not None:
        parts.append(told(language, "{:.1f} per minute", found.per_min))
    parts += [told(language, "at {} s", times)] if times else []
    put(f"  {comma(language).join(parts)}")


def _show_together(channels: Sequence[Description], options: DescribeOptions) -> bool:
    """Show the call and write the timeline, if they were asked for. False if that failed."""
    file, out = channels[0].file, options.timeline
    if options.measures and (call := conversation(channels)) is not None:
        if options.json:
            put_json({"file": file, "conversation": call.as_json()})
        else:
            put(f"  {call.told_in(channels[0].language)}")
    if out is None:
        return True
    if any(each.timeline is None for each in channels):
        fail(f"{file}: holds no sample, so {out} is not written")
        return False
    try:
        if (left_out := write_timeline(channels, out)) is not None:
            fail(f"{out}: {left_out}")
    except OSError as error:
        fail(f"--timeline {out}: cannot be written ({error.strerror}); make room, run it again")
        return False
    return True


def takes_of(file: str, options: DescribeOptions) -> list[Take]:
    """One take for all channels, or one for each. An error of opening is reported later."""
    if options.channels == "apart":
        with suppress(AudioError), open_audio(file, options.track) as audio:
            return [Take(file, channel) for channel in range(audio.channels)]
    return [Take(file)]


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
