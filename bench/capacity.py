"""How many edges does one verifier process carry? In: held-out clips. Out: ids per second, verifying or decoding alone.

`python -m bench.capacity` (8 minutes on a quiet machine, most of it prefill: turns of 10, 30 and 60 s). The requests of
real turns in exact mode are recorded once. Then so many turns at once are prefilled, and when all are ready each sends
the requests of its turn: what is measured is the verifier alone, no edge computes beside it. In the same run,
alternating, the rival: the same turns decoded by the cloud alone (Decode). Both give the same ids, both are batched by
the same engine. Prefill is apart, and the same for both.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from websockets.asyncio.client import connect

from bench.clips import Clip, held_out
from bench.common import median, progress, table, write
from bench.keep import options_of
from bench.network import child, play
from streamer.core import wire
from streamer.core.remote import FIRST, RemoteTurn, Terms
from streamer.core.verify import Refusal, Verdict, VerifyRequest
from streamer.describer import Describer
from streamer.net.far import FarTarget


@dataclass
class Recorded:
    """One turn: its samples, how it was opened, its requests in order, the ids that came of it."""

    terms: Terms
    samples: list[Any]
    requests: list[VerifyRequest] = field(default_factory=list)
    num_ids: int = 0


async def record(verifier: str, clips: Sequence[Clip]) -> list[Recorded]:
    """Each clip's turn as the edge asked for it."""
    found: list[Recorded] = []
    verify = FarTarget.verify

    async def noted(self: FarTarget, request: VerifyRequest) -> Verdict | Refusal:
        if not found or found[-1].samples is not self.turn._pieces:
            found.append(Recorded(self.terms, self.turn._pieces))
        found[-1].requests.append(request)
        return await verify(self, request)

    FarTarget.verify = noted  # type: ignore[method-assign]
    try:
        async with Describer.open(mode="exact", cloud=verifier) as describer:
            for clip in progress(clips, "recording"):
                found_ids = (await play(describer, clip)).n_tokens
                found[-1].num_ids = found_ids
    finally:
        FarTarget.verify = verify  # type: ignore[method-assign]
    return found


async def replay(verifier: str, one: Recorded, is_alone: bool, ready: asyncio.Barrier) -> float:
    """One turn on a link of its own; when its last reply came."""
    terms = Terms(**(vars(one.terms) | {"runs_on": is_alone, "asks_first": False}))
    turn = RemoteTurn(0, secrets.token_bytes(16), terms)
    async with connect(verifier + wire.PATH, compression=None, max_size=None, ping_interval=None) as socket:
        turn.attach()
        for piece in one.samples:
            turn.hear(piece)
        turn.finish()
        while (message := turn.pull()) is not None:
            await socket.send(wire.encode(message))
        while not turn.is_ready:
            turn.take(wire.decode_down(await socket.recv()))
        await ready.wait()
        asked = [FIRST] if is_alone else one.requests
        for request in asked:
            turn.ask(request)
            message = turn.pull()
            assert message is not None
            await socket.send(wire.encode(message))
        left = one.num_ids if is_alone else len(asked)
        while left:
            left -= isinstance(wire.decode_down(await socket.recv()), wire.Judged | wire.Refused)
        done = time.perf_counter()
        await socket.send(wire.encode(wire.Close(0)))
        return done


async def ids_per_s(verifier: str, turns: Sequence[Recorded], is_alone: bool) -> float:
    ready = asyncio.Barrier(len(turns) + 1)
    tasks = [asyncio.create_task(replay(verifier, one, is_alone, ready)) for one in turns]
    await ready.wait()
    started = time.perf_counter()
    return sum(one.num_ids for one in turns) / (max(await asyncio.gather(*tasks)) - started)


async def measure(verifier: str, seconds: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    recorded = await record(verifier, held_out(options.num, seconds))
    rows = []
    for edges in options.edges:
        turns = (recorded * edges)[:edges]
        found: dict[bool, list[float]] = {False: [], True: []}
        for i in progress(range(options.repeats + 1), f"{edges} edges, {seconds} s"):
            for is_alone in (False, True):
                speed = await ids_per_s(verifier, turns, is_alone)
                if i:
                    found[is_alone].append(speed)
        verifying, alone = median(found[False]), median(found[True])
        ratio = median(a / b for a, b in zip(found[False], found[True], strict=True))
        ids = sum(one.num_ids for one in turns)
        rows.append({"seconds": seconds, "edges": edges, "requests_per_id": sum(len(t.requests) for t in turns) / ids,
                     "verifying_ids_per_s": verifying, "cloud_only_ids_per_s": alone, "ratio": ratio})  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--num", type=int, default=16, help="different clips")
    parser.add_argument("--seconds", type=int, nargs="+", default=[10, 30, 60], help="lengths of the clips")
    parser.add_argument("--repeats", type=int, default=3)
    options = options_of(parser)
    with child("streamer", "verifier", "--port", "0", "--max-sessions", "64") as line:
        rows = [row for seconds in options.seconds for row in asyncio.run(measure(line.split()[2], seconds, options))]
    print(table(tuple(rows[0]), [tuple(row.values()) for row in rows]))
    print("written:", write("capacity", rows))


if __name__ == "__main__":
    main()
