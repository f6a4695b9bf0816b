"""A recording in, its descriptions out: the same way as live audio, chunk by chunk. Synchronous.

The last 100 ms are pushed only when all before is heard, so a file's TTFT is what a live turn's is.
A recording longer than the model's `max_turn_s` is described in parts; memory stays that of one
part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from streamer.assembly.models import Models
from streamer.audio.file import Audio, AudioError, Source, open_audio
from streamer.core.attributes import parse
from streamer.core.audio.chunker import BadAudio, Chunker, on_grid
from streamer.core.description import Description, TextDelta, describe_turn, join_parts

if TYPE_CHECKING:
    from streamer.model.turn import Turn

RATE_HZ = 16_000
WINDOW_SAMPLES = 2 * RATE_HZ
LIVE_SAMPLES = RATE_HZ // 10
BEHIND_SAMPLES = 40  # a window is complete so many samples behind its boundary (engine-facts)
HEARD_S = 5.0  # of a recording, between two calls that say how far it is heard
OnDelta = Callable[[TextDelta], None]
OnHeard = Callable[[float, float], None]
Samples = NDArray[np.float32]


def describe_recording(
    models: Models,
    source: Source,
    on_delta: OnDelta,
    check: Callable[[], None] = lambda: None,
    on_heard: OnHeard = lambda heard_s, of_s: None,
) -> Description:
    """Describe one file. Raises AudioError with one clear line; deltas already given stay given.

    `check` is called between chunks and deltas; what it raises ends the turn and gives its KV slots
    back. `on_heard` is called every HEARD_S of it.
    """
    limit_s = models.max_turn_s
    with open_audio(source) as audio:
        heard = HeardProgress(audio.duration_s, on_heard)
        parts = list[Description]()
        for part in cut_parts(_checked(chunks_of(audio), check, heard), limit_s):
            from_s = begin_of(parts) if parts or audio.duration_s > limit_s else None
            parts.append(describe_part(models, audio.path, part, on_delta, from_s))
        return join_parts(audio.path, parts, audio.warning, audio.cut is not None)


def begin_of(parts: Sequence[Description]) -> float:
    """Where the part behind `parts` begins, in seconds of the recording."""
    return sum(part.audio_s for part in parts)


class HeardProgress:
    """Says every HEARD_S how much of a recording is heard."""

    def __init__(self, of_s: float, on_heard: OnHeard) -> None:
        self._of_s = of_s
        self._on_heard = on_heard
        self._heard_s = self._told_s = 0.0

    def heard(self, samples: Samples) -> None:
        self._heard_s += len(samples) / RATE_HZ
        if self._heard_s - self._told_s >= HEARD_S:
            self._told_s = self._heard_s
            self._on_heard(self._heard_s, max(self._of_s, self._heard_s))


def _checked(
    chunks: Iterator[Samples], check: Callable[[], None], progress: HeardProgress
) -> Iterator[Samples]:
    for chunk in chunks:
        check()
        progress.heard(chunk)
        yield chunk


def cut_parts(chunks: Iterator[Samples], max_turn_s: float) -> Iterator[Iterator[Samples]]:
    """A recording's chunks as parts of at most `max_turn_s`, each an iterator of chunks.

    Each part must be consumed before the next one is asked for; there is at least one, maybe
    without samples. A rest too short to be described (10 ms of 60.01 s) gets 2 s of the part before
    it.
    """
    source = _Ahead(chunks)
    limit = int(max_turn_s * RATE_HZ)
    short = min(WINDOW_SAMPLES, limit // 2)

    def part() -> Iterator[Samples]:
        yield from source.take(limit - short)
        n = source.fill(2 * short)
        if n <= short or n == 2 * short:
            yield from source.take(short)

    yield part()
    while source.fill(1):
        yield part()


class _Ahead:
    """Chunks that can be looked at before they are taken; holds at most what `fill` was asked for
    and a chunk."""

    def __init__(self, chunks: Iterator[Samples]) -> None:
        self._chunks = chunks
        self._held = np.zeros(0, np.float32)

    def fill(self, n: int) -> int:
        """Read until `n` samples are held or the source is over; how many of the `n` there are."""
        while len(self._held) < n and (chunk := next(self._chunks, None)) is not None:
            self._held = np.concatenate([self._held, chunk])
        return min(n, len(self._held))

    def take(self, n: int) -> Iterator[Samples]:
        """Up to `n` samples, chunk by chunk as they are read."""
        while n and self.fill(1):
            piece = self._held[:n]
            self._held = self._held[n:]
            n -= len(piece)
            yield piece


def chunks_of(audio: Audio) -> Iterator[Samples]:
    """The recording as 16 kHz mono chunks. Raises AudioError."""
    chunker = Chunker(audio.sample_rate, audio.channels)
    try:
        for block in audio:
            if len(chunk := chunker.push(block)):
                yield on_grid(chunk)
        if len(chunk := chunker.finish()):
            yield on_grid(chunk)
    except BadAudio as error:
        raise AudioError(audio.path, str(error)) from None


def describe_part(
    models: Models,
    name: str,
    chunks: Iterator[Samples],
    on_delta: OnDelta,
    from_s: float | None = None,
) -> Description:
    """One turn of a recording: push, answer, count."""
    turn = models.new_turn()
    try:
        arrived = hear(turn, chunks)
        ids: list[int] = []
        text = ""
        first = None
        for delta in turn.answer():
            ids.extend(delta.ids)
            text += delta.text
            if first is None and delta.text:  # half a character is nothing to read yet
                first = delta.at
            on_delta(
                TextDelta(
                    delta.text,
                    delta.ids,
                    delta.verified,
                    1000 * (delta.at - arrived),
                    from_s=from_s,
                )
            )
        done = turn.clock()
        silence = (
            None if turn.last_speech_sample is None else turn.num_samples - turn.last_speech_sample
        )
        return describe_turn(
            name,
            text,
            ids,
            turn.stop_reason,
            turn.plan.mode,
            turn.counts,
            turn.num_samples / RATE_HZ,
            None if first is None else 1000 * (first - arrived),
            None if turn.prefilled_at is None else 1000 * (turn.prefilled_at - arrived),
            1000 * (done - arrived),
            None if silence is None else silence / RATE_HZ,
            parse(text, models.phrases),
        )
    finally:
        turn.close()


def hear(turn: Turn, chunks: Iterator[Samples]) -> float:
    """Push a turn's chunks and finish it; when its last chunk arrived, in seconds of the turn's
    clock."""
    arrived = turn.clock()
    for chunk in as_live(chunks):
        arrived = turn.clock()
        turn.push(chunk)
    turn.finish()
    return arrived


def as_live(chunks: Iterator[Samples]) -> Iterator[Samples]:
    """The same samples in the pieces that matter: whole windows, then what lies behind the last of
    them in 100 ms.

    So the last piece is what a microphone would send last: only its own work, the last window's
    encoding and the suffix are left when it is in. 100 ms pieces throughout would give the same
    (tests) and cost more.
    """
    held = np.zeros(0, np.float32)
    done = 0  # samples given out
    for chunk in chunks:
        held = np.concatenate([held, chunk])
        while len(held) > (n := WINDOW_SAMPLES + (BEHIND_SAMPLES if done == 0 else 0)):
            yield held[:n]
            held = held[n:]
            done = done + n
    for first in range(0, len(held), LIVE_SAMPLES):
        yield held[first : first + LIVE_SAMPLES]
