"""Last stage: committed ids in, text and Descriptions out."""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest

import anyio
import anyio.to_thread
from anyio.streams.memory import MemoryObjectReceiveStream

from streamer.core.confidence import Piece
from streamer.core.description import TextDelta
from streamer.stages.events import TurnFailed
from streamer.stages.plumbing.messages import Failed, Over, Ready, Said
from streamer.stages.plumbing.outlet import Outlet
from streamer.stages.plumbing.ports import Parts, Written


async def emit(
    said: MemoryObjectReceiveStream[Said | Over | Failed],
    outlet: Outlet,
    parts: Parts,
    clock: Callable[[], float],
) -> None:
    """A TextDelta for every Said, a Description at each turn's end. Ends when `said` does."""
    writing: _Writing | None = None
    async with said, outlet:
        async for item in said:
            match item:
                case Said(ready):
                    writing = writing or _Writing(parts, ready)
                    await outlet.send(writing.push(item, clock()))
                case Over(ready):
                    writing = writing or _Writing(parts, ready)
                    written = writing.finish(item)
                    # on a thread: where speech ended may still have to be found out
                    await outlet.send(
                        await anyio.to_thread.run_sync(
                            parts.describe, written, limiter=parts.threads.limiter
                        )
                    )
                    writing = None
                case Failed(turn, message, is_target_lost):
                    writing = None
                    await outlet.send(TurnFailed(turn, message, is_target_lost))


class _Writing:
    """The text of one answer as it grows."""

    def __init__(self, parts: Parts, ready: Ready) -> None:
        self._parts = parts
        self._emitter = parts.emitter()
        self._ready = ready
        self._text = ""
        self._said = list[Said]()
        self._ttft_ms: float | None = None

    def push(self, said: Said, now: float) -> TextDelta:
        text = self._emitter.push(said.ids)
        at_ms = self._ms(now)
        if self._ttft_ms is None and text:
            self._ttft_ms = at_ms
        self._text += text
        self._said.append(said)
        return TextDelta(text, said.ids, said.verified, at_ms, self._ready.turn.number)

    def finish(self, over: Over) -> Written:
        prefill_ms = None if over.prefilled_at is None else self._ms(over.prefilled_at)
        # A short answer may be over before its first text has gone out.
        total_ms = max(self._ms(over.done_at), self._ttft_ms or 0.0)
        return Written(
            self._ready.closed,
            self._text,
            tuple(token for said in self._said for token in said.ids),
            over.stop_reason,
            over.mode,
            over.counts,
            self._ttft_ms,
            prefill_ms,
            total_ms,
            self._pieces(),
        )

    def _pieces(self) -> tuple[Piece, ...]:
        """Behind the last delta: no token waits for it."""
        emitter = self._parts.emitter()
        return tuple(
            Piece(emitter.push((token,)), log_prob, said.verified)
            for said in self._said
            for token, log_prob in zip_longest(said.ids, said.log_probs)
        )

    def _ms(self, at: float) -> float:
        """Milliseconds since the turn's last sample was fed."""
        return 1000 * (at - self._ready.fed_at)
