"""Last stage: committed ids in, text and Descriptions out."""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest

import anyio
import anyio.to_thread
from anyio.streams.memory import MemoryObjectReceiveStream

from streamer.core.confidence import Piece
from streamer.core.decoding.plan import Emit
from streamer.core.description import TextDelta
from streamer.stages.events import TurnFailed
from streamer.stages.ports import Parts, Written
from streamer.stages.queues import Answered, Committed, Failed, Outlet, Ready


async def emit(
    answers: MemoryObjectReceiveStream[Committed | Answered | Failed],
    outlet: Outlet,
    parts: Parts,
    clock: Callable[[], float],
) -> None:
    """A TextDelta for every Committed, a Description at each turn's end. Ends when `answers`
    does."""
    text: _AnswerText | None = None
    async with answers, outlet:
        async for item in answers:
            match item:
                case Committed(ready, emit):
                    text = text or _AnswerText(parts, ready)
                    await outlet.send(text.push(emit, clock()))
                case Answered(ready):
                    text = text or _AnswerText(parts, ready)
                    written = text.finish(item)
                    # on a thread: where speech ended may still have to be found out
                    await outlet.send(
                        await anyio.to_thread.run_sync(
                            parts.describe, written, limiter=parts.threads.limiter
                        )
                    )
                    text = None
                case Failed(turn, message, is_target_lost):
                    text = None
                    await outlet.send(TurnFailed(turn, message, is_target_lost))


class _AnswerText:
    """The text of one answer as it grows."""

    def __init__(self, parts: Parts, ready: Ready) -> None:
        self._parts = parts
        self._emitter = parts.emitter()
        self._ready = ready
        self._text = ""
        self._emits = list[Emit]()
        self._ttft_ms: float | None = None

    def push(self, emit: Emit, now: float) -> TextDelta:
        text = self._emitter.push(emit.ids)
        at_ms = self._ms(now)
        if self._ttft_ms is None and text:
            self._ttft_ms = at_ms
        self._text += text
        self._emits.append(emit)
        return TextDelta(text, emit.ids, emit.verified, at_ms, self._ready.turn.number)

    def finish(self, end: Answered) -> Written:
        prefill_ms = None if end.prefilled_at is None else self._ms(end.prefilled_at)
        # A short answer may be over before its first text has gone out.
        total_ms = max(self._ms(end.done_at), self._ttft_ms or 0.0)
        return Written(
            self._ready.closed,
            self._text,
            tuple(token for emit in self._emits for token in emit.ids),
            end.stop_reason,
            end.mode,
            end.counts,
            self._ttft_ms,
            prefill_ms,
            total_ms,
            self._pieces(),
        )

    def _pieces(self) -> tuple[Piece, ...]:
        """After the last delta, so that no token waits for it."""
        emitter = self._parts.emitter()
        return tuple(
            Piece(emitter.push((token,)), log_prob, emit.verified)
            for emit in self._emits
            for token, log_prob in zip_longest(emit.ids, emit.log_probs)
        )

    def _ms(self, at: float) -> float:
        """Milliseconds since the turn's last sample was fed."""
        return 1000 * (at - self._ready.fed_at)
