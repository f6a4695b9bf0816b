"""`streamer describe`: recordings in; sentences or JSON on stdout; all else on stderr."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import anyio
import anyio.to_thread

from streamer.audio.file import AudioError, open_audio
from streamer.commands.options import DescribeOptions, reference_of
from streamer.commands.process import Failed, fail, opened, put, put_json, recordings_of, run_async
from streamer.commands.screen import Screen, Take, show_filled, show_intervals
from streamer.config import Config, ConfigError, combined
from streamer.core.conversation import conversation
from streamer.core.description import Description
from streamer.describer import Describer
from streamer.intervals import filled_pauses, measure_intervals, read_intervals
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
    """`options.jobs` recordings at once; one's failure never ends the run."""
    todo, has_failed = iter(files), False
    async with opened(config) as describer:

        async def work() -> None:
            nonlocal has_failed
            for file in todo:
                takes = await anyio.to_thread.run_sync(takes_of, file, options)
                num_takes = max(len(files), len(takes))
                found = [await _describe(describer, take, options, num_takes) for take in takes]
                channels = [each for each in found if each is not None]
                if len(channels) < len(takes) or any(each.is_cut for each in channels):
                    has_failed = True
                if len(channels) == len(takes) and not await anyio.to_thread.run_sync(
                    _show_together, channels, options
                ):
                    has_failed = True

        async with anyio.create_task_group() as group:
            for _ in range(min(options.jobs, len(files))):
                group.start_soon(work)
    return 1 if has_failed else 0


async def _describe(
    describer: Describer, take: Take, options: DescribeOptions, num_takes: int
) -> Description | None:
    """Its description; None where that failed."""
    screen = Screen(take, options, num_takes)
    try:
        result = await describer.describe(
            take.file,
            screen.delta,
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
    await anyio.to_thread.run_sync(_show_more, take, options, result.language)
    return result


def _show_more(take: Take, options: DescribeOptions, language: str) -> None:
    """Show intervals and filled pauses, if they were asked for."""
    if options.intervals is not None:
        intervals = read_intervals(options.intervals)
        measures = measure_intervals(take.file, intervals, take.channel, options.track)
        show_intervals(take.file, intervals, measures, options, language)
    if options.filled_pauses:
        filled = filled_pauses(take.file, take.channel, options.track)
        show_filled(take, filled, options.json, language)


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
