"""Recordings go through a stream, as live audio does.

The last 100 ms are fed only when all before is prefilled, so a file's TTFT is that of a live turn.
A recording longer than the model's `max_turn_s` is described in parts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import anyio
import anyio.to_thread
import numpy as np

from streamer.audio.file import Audio, AudioError, Source, open_audio
from streamer.core.audio.pcm import (
    LIVE_SAMPLES,
    SAMPLE_RATE_HZ,
    WINDOW_SAMPLES,
    BadAudio,
    Chunker,
    Samples,
    on_grid,
)
from streamer.core.audio.turn import Closed
from streamer.core.decoding.plan import Counts
from streamer.core.description import Description, TextDelta, join_parts
from streamer.stages.events import SessionOptions, TargetLost, TurnFailed, cause_of, quietly
from streamer.stages.parts import Parts
from streamer.stages.stream import LiveSession, open_stream


async def describe_recording(
    parts: Parts,
    source: Source,
    on_delta: Callable[[TextDelta], None] | None = None,
    on_heard: Callable[[float, float], None] | None = None,
    measures: bool = False,
    channel: int | None = None,
    track: int | None = None,
) -> Description:
    """Describe one recording, or one channel of it. Deltas that were handed out are never taken
    back. measures: show numbers beside the words. track: of a film, from 0.

    Called on the event loop: on_heard with the seconds heard and those in all, the last time when
    all before the last piece is prefilled. Raises AudioError, TargetLost where a verdict that is
    needed does not come, and RuntimeError where a model fails.
    """
    found: list[Description] = []
    with await _opened(source, track) as audio:
        options = SessionOptions(SAMPLE_RATE_HZ, is_recording=True, measures=measures)
        is_long = audio.duration_s > parts.max_turn_s
        try:
            async with open_stream(parts, options) as stream, anyio.create_task_group() as group:
                pieces = as_live(chunks_of(audio, channel))
                group.start_soon(quietly, _feed, stream, audio, pieces, on_heard)
                async for event in stream.events():
                    if isinstance(event, TextDelta) and on_delta is not None:
                        from_s = sum(part.audio_s for part in found) if found or is_long else None
                        on_delta(replace(event, from_s=from_s))
                    elif isinstance(event, Description):
                        found.append(event)
                    elif isinstance(event, TurnFailed):
                        kind = TargetLost if event.is_target_lost else RuntimeError
                        raise kind(f"{audio.path}: {event.message}")
                group.cancel_scope.cancel()
        except ExceptionGroup as errors:
            raise cause_of(errors) from None
        if not found:  # the recording has no sample
            nothing = Closed(0, (), 0.0, 0, has_speech=False, last_speech=None)
            found = [parts.describe(nothing, "no_speech", Counts())]
        described = [replace(one, file=audio.path, channel=channel, turn=0) for one in found]
        return join_parts(described, audio.warning, audio.cut is not None)


async def _opened(source: Source, track: int | None) -> Audio:
    """The open recording. A caller that is cancelled does not wait for a silent pipe."""
    is_over = threading.Event()

    def open_it() -> Audio:
        audio = open_audio(source, track, is_over.is_set)
        if is_over.is_set():
            audio.close()
        return audio

    try:
        return await anyio.to_thread.run_sync(open_it, abandon_on_cancel=True)
    finally:
        is_over.set()


def chunks_of(audio: Audio, channel: int | None = None) -> Iterator[Samples]:
    """The recording as 16 kHz mono chunks: the loudest channel, or one alone. Raises AudioError."""
    if channel is not None and channel not in range(audio.channels):
        has = f"has {audio.channels} channel{'s' * (audio.channels > 1)}, counted from 0"
        raise AudioError(audio.path, f"{has}; there is no channel {channel!r}")
    which = slice(None) if channel is None else slice(channel, channel + 1)
    try:
        chunker = Chunker(audio.sample_rate, audio.channels if channel is None else 1)
        for block in audio:
            yield on_grid(chunker.push(block[:, which]))
        yield on_grid(chunker.finish())
        audio.mixed = chunker.mixed
    except BadAudio as error:
        raise AudioError(audio.path, str(error)) from None


def as_live(chunks: Iterator[Samples]) -> Iterator[tuple[Samples, bool]]:
    """The same samples in pieces of 2 s, the rest, and a last piece of 100 ms or less, which is
    marked by True.

    The last piece is the one that a microphone would send last. When it comes, only the last
    window and the suffix are left to do. 100 ms pieces throughout would give the same ids and cost
    more.
    """
    held = np.zeros(0, np.float32)
    for chunk in chunks:
        held = np.concatenate([held, chunk])
        while len(held) > WINDOW_SAMPLES:
            yield held[:WINDOW_SAMPLES], False
            held = held[WINDOW_SAMPLES:]
    if last := max(0, len(held) - 1) // LIVE_SAMPLES * LIVE_SAMPLES:
        yield held[:last], False
    if len(held):
        yield held[last:], True


async def _feed(
    stream: LiveSession,
    audio: Audio,
    pieces: Iterator[tuple[Samples, bool]],
    on_heard: Callable[[float, float], None] | None,
) -> None:
    """Feed all, the last piece when everything before it is done."""
    num_heard = 0
    while (found := await anyio.to_thread.run_sync(next, pieces, None)) is not None:
        piece, is_last = found
        num_heard += len(piece)
        heard_s = num_heard / SAMPLE_RATE_HZ
        if is_last:
            await stream.catch_up(len(piece))
        if on_heard is not None:
            on_heard(heard_s, max(audio.duration_s, heard_s))
        await stream.feed(piece.astype("<f4").tobytes())
        if is_last:
            await stream.commit()
    await stream.end()
