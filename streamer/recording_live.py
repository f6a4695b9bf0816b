"""A recording in, its descriptions out, through a live stream: where the cloud is elsewhere. Else
as recording.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

import anyio
import anyio.to_thread
from anyio import CapacityLimiter

from streamer.audio.file import Source, open_audio
from streamer.core.audio.turn_items import Closed
from streamer.core.decoding.counts import Counts
from streamer.core.description import Description, TextDelta, join_parts
from streamer.recording import (
    RATE_HZ,
    HeardProgress,
    OnDelta,
    OnHeard,
    Samples,
    as_live,
    begin_of,
    chunks_of,
)
from streamer.stages.events import NothingToCommit, SessionOptions, TurnFailed
from streamer.stages.plumbing.ports import Parts, TargetLost, Written
from streamer.stages.stream import Stream, open_stream

TELL_S = 1.0  # that a file waits for its upload before it is told


async def describe_live(
    parts: Parts,
    source: Source,
    on_delta: OnDelta,
    limiter: CapacityLimiter,
    on_wait: Callable[[str], None] = lambda why: None,
    on_heard: OnHeard = lambda heard_s, of_s: None,
) -> Description:
    """Describe one file. Raises AudioError, TargetLost; deltas already given stay given.

    on_wait: told once, where the verifier makes the file wait longer than TELL_S, what is waited
    for.
    """
    async with limiter:
        with await anyio.to_thread.run_sync(open_audio, source) as audio:
            found = list[Description]()
            name = audio.path
            progress = HeardProgress(audio.duration_s, on_heard)
            try:
                options = SessionOptions(RATE_HZ, is_float=True)
                async with (
                    open_stream(parts, options) as stream,
                    anyio.create_task_group() as group,
                ):
                    is_fed = anyio.Event()
                    group.start_soon(_feed, stream, as_live(chunks_of(audio)), is_fed, progress)
                    group.start_soon(_tell_wait, parts, is_fed, on_wait)
                    failed = await _collect(
                        stream, on_delta, found, audio.duration_s > parts.max_turn_s
                    )
                    group.cancel_scope.cancel()
            except ExceptionGroup as errors:
                raise _first(errors) from None
            if failed is not None:
                raise TargetLost(f"{name}: {failed}")
            described = [replace(one, file=name, turn=0) for one in found] or [
                _nothing(parts, name)
            ]
            return join_parts(name, described, audio.warning, audio.cut is not None)


def _first(errors: ExceptionGroup) -> Exception:
    first = errors.exceptions[0]
    return _first(first) if isinstance(first, ExceptionGroup) else first


def _nothing(parts: Parts, name: str) -> Description:
    """Of a recording without a sample."""
    closed = Closed(0, (), 0.0, 0, False, None)
    written = Written(closed, "", (), "no_speech", parts.mode, Counts(), None, None, 0.0)
    return replace(parts.describe(written), file=name)


async def _feed(
    stream: Stream, pieces: Iterator[Samples], is_fed: anyio.Event, progress: HeardProgress
) -> None:
    """All but the last piece is prefilled everywhere before that one is fed: so it is as if it were
    live.

    is_fed: set when only the models, and the link, are waited for.
    """
    held = await _next(pieces)
    while held is not None and (following := await _next(pieces)) is not None:
        await stream.feed(held.astype("<f4").tobytes())
        progress.heard(held)
        held = following
    is_fed.set()
    await stream.catch_up()
    if held is not None:
        await stream.feed(held.astype("<f4").tobytes())
    with suppress(NothingToCommit):
        await stream.commit()
    await stream.end()


async def _tell_wait(parts: Parts, is_fed: anyio.Event, on_wait: Callable[[str], None]) -> None:
    cloud = parts.cloud
    if cloud is None:
        return
    await is_fed.wait()
    while True:
        await anyio.sleep(TELL_S)
        if (unheard_s := cloud.unheard_s) > 0:
            on_wait(
                f"waiting until the verifier has heard all: {max(1, round(unheard_s))} s of audio "
                "are on their way"
            )
            return
        # else it goes on without, or is at work
        if parts.mode in ("exact", "cloud") and not cloud.is_linked:
            on_wait(
                f"waiting for {cloud.name} ({cloud.trouble}), as long as the verify budget says"
            )
            return


async def _next(pieces: Iterator[Samples]) -> Samples | None:
    return await anyio.to_thread.run_sync(next, pieces, None)


async def _collect(
    stream: Stream, on_delta: OnDelta, found: list[Description], is_long: bool
) -> str | None:
    """Descriptions of all parts into `found`; why one failed, if one did."""
    async for event in stream.events():
        if isinstance(event, TextDelta):
            on_delta(replace(event, from_s=begin_of(found)) if found or is_long else event)
        elif isinstance(event, Description):
            found.append(event)
        elif isinstance(event, TurnFailed):
            return event.message
    return None
