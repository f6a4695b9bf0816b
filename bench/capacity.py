"""How many edges does one verifier process carry? In: held-out clips. Out: tokens per second,
verifying and decoding alone.

`python -m bench.capacity` takes 5 minutes, most of it prefill of turns of 10, 30 and 60 s. First it
records the requests of real turns in exact mode. Then it prefills many turns at once. When all are
ready, each sends the requests of its turn. So the verifier alone is measured: no edge computes
beside it. In the same run, alternating, the rival decodes the same turns by the cloud alone
(Decode). Both give the same tokens, and the same engine batches both. Prefill is not counted; it is
the same for both.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from tqdm import tqdm
from websockets.asyncio.client import connect

from bench.arms import models_of
from bench.clips import Clip, held_out
from bench.common import median, progress, table_of, write
from bench.keep import options_of
from bench.processes import serving
from bench.watched import Between, Passing, opened
from streamer.core.audio.turn_items import Heard
from streamer.core.decoding.verdict import Refusal, Verdict, VerifyRequest
from streamer.core.link import wire
from streamer.core.link.decoding_terms import FIRST, DecodingTerms
from streamer.core.link.edge_turn import RemoteTurn
from streamer.recording import describe_recording

PING_S = 1.0  # a verifier drops a link that is silent for 10 s
MOST_S = 300.0  # of one round: its turns are prefilled and decoded, or something is wrong


@dataclass
class Recorded:
    """One turn: its samples, how it was opened, its requests in order, the ids that came of it."""

    terms: DecodingTerms
    samples: list[Any] = field(default_factory=list)
    requests: list[VerifyRequest] = field(default_factory=list)
    num_ids: int = 0


@dataclass(frozen=True)
class RecordedTarget(Passing):
    """A turn's target that notes what it hears and is asked."""

    one: Recorded

    async def hear(self, heard: Heard) -> None:
        if heard.samples is not None and len(heard.samples):
            self.one.samples.append(heard.samples)
        await self.inner.hear(heard)

    async def verify(self, request: VerifyRequest) -> Verdict | Refusal:
        self.one.requests.append(request)
        reply: Verdict | Refusal = await self.inner.verify(request)
        return reply


async def record(verifier: str, clips: Sequence[Clip]) -> list[Recorded]:
    """Each clip's turn as the edge asked for it."""
    turns: list[Recorded] = []

    def target_of(target: Any) -> RecordedTarget:
        turns.append(Recorded(target.turn.terms))
        return RecordedTarget(target, turns[-1])

    async with opened(models_of(mode="exact", cloud=verifier)) as parts:
        watched = Between(parts.patient(), target_of=target_of)
        await describe_recording(watched, clips[0].path)  # the pace learns the link
        found = []
        for clip in progress(clips, "recording"):
            turns.clear()
            described = await describe_recording(watched, clip.path)
            (one,) = (turn for turn in turns if turn.requests)
            found.append(replace(one, num_ids=described.n_tokens))
    return found


class Replayed:
    """One turn on a link of its own. Enter it, `prefill`, then `decode`. Raises RuntimeError where
    it is rejected."""

    def __init__(self, one: Recorded, is_alone: bool) -> None:
        terms = DecodingTerms(**(vars(one.terms) | {"runs_on": is_alone, "asks_first": False}))
        self.turn = RemoteTurn(0, secrets.token_bytes(16), terms)
        self._one = one
        self._is_alone = is_alone

    @asynccontextmanager
    async def linked(self, verifier: str) -> AsyncIterator[None]:
        """Within: a link that pings, so that it is not taken for dead while others are
        prefilled."""
        async with connect(
            verifier + wire.PATH, compression=None, max_size=None, ping_interval=None
        ) as self._socket:
            async with asyncio.TaskGroup() as beside:
                pinging = beside.create_task(self._ping())
                yield
                pinging.cancel()
            await self._socket.send(wire.encode(wire.Close(0)))

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(PING_S)
            await self._socket.send(wire.encode(wire.Ping(0)))

    async def _send_what_waits(self) -> None:
        while (message := self.turn.pull()) is not None:
            await self._socket.send(wire.encode(message))

    async def _receive(self) -> wire.Down:
        message = wire.decode_down(await self._socket.recv())
        if isinstance(message, wire.Rejected):
            raise RuntimeError(f"the verifier rejects a turn: {message.reason}")
        return message

    async def prefill(self) -> None:
        """Until the verifier waits for requests."""
        self.turn.attach()
        for piece in self._one.samples:
            self.turn.hear(piece)
        self.turn.finish()
        async with asyncio.TaskGroup() as beside:
            beside.create_task(self._send_what_waits())
            while not self.turn.is_ready:
                self.turn.take(await self._receive())

    async def decode(self) -> float:
        """When the last reply came."""
        asked = [FIRST] if self._is_alone else self._one.requests
        for request in asked:
            self.turn.ask(request)
            message = self.turn.pull()
            assert message is not None
            await self._socket.send(wire.encode(message))
        left = self._one.num_ids if self._is_alone else len(asked)
        while left:
            left -= isinstance(await self._receive(), wire.Judged | wire.Refused)
        return time.perf_counter()


async def replay(verifier: str, one: Recorded, is_alone: bool, ready: asyncio.Barrier) -> float:
    """One turn; when its last reply came."""
    replayed = Replayed(one, is_alone)
    async with replayed.linked(verifier):
        await replayed.prefill()
        await ready.wait()
        return await replayed.decode()


async def ids_per_s(verifier: str, turns: Sequence[Recorded], is_alone: bool) -> float:
    """All at once. Raises TimeoutError, and the first turn's error ends all."""
    ready = asyncio.Barrier(len(turns) + 1)
    async with asyncio.timeout(MOST_S), asyncio.TaskGroup() as group:
        tasks = [group.create_task(replay(verifier, one, is_alone, ready)) for one in turns]
        await ready.wait()
        started = time.perf_counter()
    return sum(one.num_ids for one in turns) / (max(task.result() for task in tasks) - started)


async def measure(verifier: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    recorded = {
        seconds: await record(verifier, held_out(options.num, seconds))
        for seconds in options.seconds
    }
    sizes = [(seconds, edges) for seconds in options.seconds for edges in options.edges]
    rounds = options.repeats + 1  # the first one warms up
    rows = []
    with tqdm(
        total=sum(2 * rounds * s * n for s, n in sizes), unit=" s of audio", leave=False
    ) as bar:
        for seconds, edges in sizes:
            turns = (recorded[seconds] * edges)[:edges]
            found: dict[bool, list[float]] = {False: [], True: []}
            for i, is_alone in itertools.product(range(rounds), (False, True)):
                bar.set_description(f"{edges} edges, {seconds} s")
                speed = await ids_per_s(verifier, turns, is_alone)
                found[is_alone] += [speed] if i else []
                bar.update(seconds * edges)
            rows.append(row_of(seconds, turns, found[False], found[True]))
    return rows


def row_of(
    seconds: int, turns: Sequence[Recorded], verifying: list[float], alone: list[float]
) -> dict[str, Any]:
    """ratio: of the same round's; the others are medians."""
    ratios = [a / b for a, b in zip(verifying, alone, strict=True)]
    requests = sum(len(t.requests) for t in turns)
    ids = sum(t.num_ids for t in turns)
    return {
        "seconds": seconds,
        "edges": len(turns),
        "requests_per_id": requests / ids,
        "verifying_ids_per_s": median(verifying),
        "cloud_only_ids_per_s": median(alone),
        "ratio": median(ratios),
        "least": min(ratios),
        "most": max(ratios),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--edges", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--num", type=int, default=8, help="different clips")
    parser.add_argument(
        "--seconds", type=int, nargs="+", default=[10, 30, 60], help="lengths of the clips"
    )
    parser.add_argument("--repeats", type=int, default=3)
    options = options_of(parser)
    with serving("streamer", "verifier", "--port", "0", "--max-sessions", "64") as (url, _):
        rows = asyncio.run(measure(url, options))
    print(table_of(rows))
    print("written:", write("capacity", rows))


if __name__ == "__main__":
    main()
