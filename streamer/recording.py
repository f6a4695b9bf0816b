"""A recording in, its descriptions out: the same way as live audio, chunk by chunk. Synchronous.

The last window is pushed only after the earlier ones are prefilled, so a file's TTFT is what a live turn's is. A
recording longer than the model's `max_turn_s` is described in parts; memory stays that of one part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from streamer.audio import AudioError, AudioFile, open_audio
from streamer.core.attributes import parse
from streamer.core.chunker import BadAudio, Chunker
from streamer.models import Models
from streamer.results import Description, TextDelta, describe_turn, join_parts

RATE_HZ = 16_000
WINDOW_SAMPLES = 2 * RATE_HZ
BEHIND_SAMPLES = 40  # a window is complete so many samples behind its boundary (engine-facts)
OnDelta = Callable[[TextDelta], None]
Samples = NDArray[np.float32]


def describe_recording(
    models: Models, source: str | Path, on_delta: OnDelta, check: Callable[[], None] = lambda: None
) -> Description:
    """Describe one file. Raises AudioError with one clear line; deltas already given stay given.

    `check` is called between chunks and deltas; what it raises ends the turn and gives its KV slots back.
    """
    name, limit_s = str(source), models.max_turn_s
    with open_audio(source) as audio:
        chunks = _checked(chunks_of(audio), check)
        parts = [describe_part(models, name, part, on_delta) for part in cut_parts(chunks, limit_s)]
        return join_parts(name, parts, audio.warning)


def _checked(chunks: Iterator[Samples], check: Callable[[], None]) -> Iterator[Samples]:
    for chunk in chunks:
        check()
        yield chunk


def cut_parts(chunks: Iterator[Samples], max_turn_s: float) -> Iterator[Iterator[Samples]]:
    """A recording's chunks as parts of at most `max_turn_s`, each an iterator of chunks.

    Each part must be consumed before the next one is asked for; there is at least one, maybe without samples.
    """
    rest: list[Samples] = []
    limit = int(max_turn_s * RATE_HZ)
    is_over = False

    def part() -> Iterator[Samples]:
        nonlocal is_over
        room = limit
        while True:
            chunk = rest.pop() if rest else next(chunks, None)
            if chunk is None:
                is_over = True
                return
            if len(chunk) > room:
                rest.append(chunk[room:])
                chunk = chunk[:room]
            room -= len(chunk)
            yield chunk
            if room == 0:
                rest[:] = rest or [c for c in (next(chunks, None),) if c is not None]
                is_over = not rest
                return

    yield part()
    while not is_over:
        yield part()


def chunks_of(audio: AudioFile) -> Iterator[Samples]:
    """The recording as 16 kHz mono chunks. Raises AudioError."""
    chunker = Chunker(audio.sample_rate, audio.channels)
    try:
        for block in audio:
            if len(chunk := chunker.push(block)):
                yield chunk
        if len(chunk := chunker.finish()):
            yield chunk
    except BadAudio as error:
        raise AudioError(audio.path, str(error)) from None


def describe_part(models: Models, name: str, chunks: Iterator[Samples], on_delta: OnDelta) -> Description:
    """One turn of a recording: push, answer, count."""
    turn = models.new_turn()
    try:
        last = None
        for chunk in hold_back_last_window(chunks):
            if last is not None:
                turn.push(last)
            last = chunk
        arrived = turn.clock()  # the last window's samples arrive now; the earlier ones are prefilled
        if last is not None:
            turn.push(last)
        turn.finish()
        ids: list[int] = []
        text, first = "", None
        for delta in turn.answer():
            first = first or delta.at
            ids.extend(delta.ids)
            text += delta.text
            on_delta(TextDelta(delta.text, delta.ids, delta.verified, 1000 * (delta.at - arrived)))
        done = turn.clock()
        silence = None if turn.last_speech_sample is None else turn.num_samples - turn.last_speech_sample
        return describe_turn(
            name, text, ids, turn.stop_reason, turn.plan.mode, turn.counts, turn.num_samples / RATE_HZ,
            None if first is None else 1000 * (first - arrived),
            None if turn.prefilled_at is None else 1000 * (turn.prefilled_at - arrived),
            1000 * (done - arrived), None if silence is None else silence / RATE_HZ,
            parse(text, models.phrases),
        )  # fmt: skip
    finally:
        turn.close()


def hold_back_last_window(chunks: Iterator[Samples]) -> Iterator[Samples]:
    """The same samples, cut so that the last piece is what lies behind the last complete window."""
    held = np.zeros(0, np.float32)
    done = 0  # samples given out
    for chunk in chunks:
        held = np.concatenate([held, chunk])
        while len(held) > (n := WINDOW_SAMPLES + (BEHIND_SAMPLES if done == 0 else 0)):
            yield held[:n]
            held, done = held[n:], done + n
    if len(held):
        yield held
