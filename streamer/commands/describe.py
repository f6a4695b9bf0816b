"""`streamer describe`: recordings in; sentences or JSON on stdout; all else on stderr."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.to_thread

from streamer.audio.file import AudioError, open_audio
from streamer.commands.options import DescribeOptions, reference_of
from streamer.commands.process import StdoutLost, fail, opened, recordings_of, run_async
from streamer.commands.screen import Screen, Take, show_call, show_filled, show_intervals
from streamer.config import Config, ConfigError, combined
from streamer.core.description import Description
from streamer.describer import Describer
from streamer.intervals import filled_pauses, measure_intervals, read_intervals
from streamer.progress import Bar, clock
from streamer.timeline import check_target, write_timeline


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
    async with opened(config) as describer:
        with Bar("describing", len(files)) as bar:
            return await _Batch(describer, len(files), options, bar).run(files)


@dataclass
class _Batch:
    """`options.jobs` recordings at once; one's failure never ends the run."""

    describer: Describer
    num_files: int
    options: DescribeOptions
    bar: Bar
    num_done: int = 0
    has_failed: bool = False
    shares: dict[str, float] = field(default_factory=dict)  # heard, of each recording in progress

    async def run(self, files: Sequence[str]) -> int:
        todo = iter(files)
        self.show_progress()
        async with anyio.create_task_group() as group:
            for _ in range(min(self.options.jobs, len(files))):
                group.start_soon(self._work, todo)
        return 1 if self.has_failed else 0

    async def _work(self, todo: Iterator[str]) -> None:
        for file in todo:
            takes = await anyio.to_thread.run_sync(takes_of, file, self.options)
            found = []
            for take in takes:
                found += await self._describe(take, len(takes))
            self.shares.pop(file, None)
            self.num_done += 1
            self.show_progress()
            if len(found) == len(takes):
                await anyio.to_thread.run_sync(self._show_together, found)
            else:
                self.has_failed = True

    async def _describe(self, take: Take, num_takes: int) -> list[Description]:
        """Its description, or nothing where that failed."""
        options = self.options
        screen = Screen(take, options, max(self.num_files, num_takes), self.bar)

        def heard(heard_s: float, of_s: float) -> None:
            self.shares[take.file] = ((take.channel or 0) + heard_s / of_s) / num_takes
            if not screen.blocks_bar:
                self.show_progress(f"{clock(heard_s)} of {clock(of_s)}")

        try:
            result = await self.describer.describe(
                take.file,
                screen.delta,
                heard,
                measures=options.measures or bool(options.timeline or options.pitch_reference),
                channel=take.channel,
                track=options.track,
                pitch_reference=reference_of(options.pitch_reference),
            )
        except anyio.get_cancelled_exc_class():
            screen.end()
            raise
        except (StdoutLost, BrokenPipeError):  # nothing more can be shown
            raise
        except Exception as error:
            screen.failed(error)
            return []
        screen.done(result)
        self.has_failed |= result.is_cut
        await anyio.to_thread.run_sync(self._show_more, take, result.language)
        return [result]

    def _show_more(self, take: Take, language: str) -> None:
        """Show intervals and filled pauses, if they were asked for."""
        options = self.options
        if options.intervals is not None:
            intervals = read_intervals(options.intervals)
            measures = measure_intervals(take.file, intervals, take.channel, options.track)
            show_intervals(take.file, intervals, measures, options, language)
        if options.filled_pauses:
            filled = filled_pauses(take.file, take.channel, options.track)
            show_filled(take, filled, options.json, language)

    def _show_together(self, channels: Sequence[Description]) -> None:
        """Show the call and write the timeline, if they were asked for."""
        options = self.options
        if len(channels) > 1 and options.measures:
            show_call(channels[0].file, channels, options)
        if options.timeline is not None:
            self.has_failed |= not _write(channels, options.timeline)

    def show_progress(self, where: str = "") -> None:
        """Progress over all recordings, or within a single one."""
        if where or self.num_files > 1:
            many = f"{self.num_done} of {self.num_files}"
            done = self.num_done + sum(self.shares.values())
            self.bar.show(done, many if self.num_files > 1 else where)


def takes_of(file: str, options: DescribeOptions) -> list[Take]:
    """One take for all channels, or one for each. An error of opening is reported later."""
    if options.channels == "apart":
        with suppress(AudioError), open_audio(file, options.track) as audio:
            return [Take(file, channel) for channel in range(audio.channels)]
    return [Take(file)]


def _write(channels: Sequence[Description], out: str) -> bool:
    """Whether the timeline could be written."""
    if any(each.timeline is None for each in channels):
        fail(f"{channels[0].file}: holds no sample, so {out} is not written")
        return False
    try:
        left_out = write_timeline(channels if len(channels) > 1 else channels[0], out)
    except OSError as error:
        fail(f"--timeline {out}: cannot be written ({error.strerror}); make room, run it again")
        return False
    if left_out is not None:
        fail(f"{out}: {left_out}")
    return True
