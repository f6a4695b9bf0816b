"""What does a real link between edge and verifier cost, and what hides it? In: held-out clips. Out:
a table, plots.

`python -m bench.network` (16 minutes) runs every round trip and bandwidth, then slowed edges. It
prints the tables of docs/measured.md; `python -m bench.network_show FILE.jsonl` prints them again.
`python -m bench.network --exact-only --num 200 --rtt 50 --mbit 20` (6 minutes, and 6 more when the
clips are first made) counts tokens that differ from cloud-only's.

There is a verifier process, a proxy process (bench/proxy.py), and the edge in this process. Every
clip goes through every arm in turn, in one run. Of every twenty clips one has 30 s and one 60 s;
the others have 3 and 10 s. Somebody who speaks sends 256 kbit/s, so all but a clip's last 100 ms is
prefilled before the clock starts. To save time the link is fast until then; from then on it is what
the cell says.

The arms: edge only; cloud only (audio up, tokens streamed down: the honest rival); plain
synchronous speculation at the preset's k, and at its best fixed k; ours in exact, gated fluent and
gated quality; exact in one process, without a link. --edge-ms makes each token take so much longer
on the edge. Real edges are slow: a 3B model on two cores takes 376 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import numpy as np

from bench.clips import Clip, held_out
from bench.common import progress, write
from bench.keep import options_of
from bench.network_show import ARMS, FIXED, conclude, plot, plot_slowed, readme, show, summarise
from streamer.core.decoding.verdict import Refusal, Verdict, VerifyRequest
from streamer.core.description import Description
from streamer.core.link import wire
from streamer.core.link.edge_turn import RemoteTurn
from streamer.describer import Describer
from streamer.net.link.remote_target import RemoteTarget
from streamer.stages.stream import Stream

EXACT_ARMS = ("edge only", "cloud only", "plain, preset's k", "ours, exact")
# of every twenty clips
LENGTHS_S = (3, 10, 3, 10, 10, 3, 10, 30, 3, 10, 3, 10, 10, 3, 10, 60, 3, 10, 3, 10)


@dataclass(frozen=True)
class Cell:
    """One setting of link and edge. mbit 0: no limit."""

    rtt_ms: float
    mbit: float
    edge_ms: float


@dataclass(frozen=True)
class Played:
    """One clip through one arm, and what the verifier did for it."""

    described: Description
    judged_ms: float
    num_verdicts: float
    num_judged: float  # draft ids
    end_ms: float  # that its first request waited until the verifier had heard the turn's end


@contextmanager
def started(*command: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that says one line when it is ready, and that line."""
    run = [sys.executable, "-m", *command]
    process = subprocess.Popen(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait(40)


@contextmanager
def child(*command: str) -> Iterator[str]:
    """Its line alone."""
    with started(*command) as (_, line):
        yield line


class Proxy:
    """The link's process: `set` how bad it is from now on."""

    def __init__(self, process: subprocess.Popen[str], port: str) -> None:
        self._process = process
        self.url = f"ws://127.0.0.1:{port}"

    def set(self, rtt_ms: float, mbit: float) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{rtt_ms} {mbit}\n")
        self._process.stdin.flush()
        self._process.stdout.readline()


class Meter:
    """What the verifier has done, from its /metrics."""

    def __init__(self, url: str) -> None:
        self._url = url.replace("ws", "http", 1) + "/metrics"

    def read(self) -> np.ndarray:
        """(seconds it judged, verdicts, draft ids judged)."""
        with urllib.request.urlopen(self._url, timeout=10) as answer:
            text = answer.read().decode()
        names = ("judging_seconds", "verdicts", "uploaded_ids")
        return np.array(
            [float(re.search(rf"^streamer_{n}_total (\S+)$", text, re.M)[1]) for n in names]
        )  # type: ignore[index]


@asynccontextmanager
async def bad_from_the_end(proxy: Proxy, cell: Cell) -> AsyncIterator[None]:
    """Within: the link is fast until all but a clip's last piece is prefilled; then it is the
    cell's."""
    catch_up = Stream.catch_up

    async def heard(self: Stream, *until: Any) -> None:
        await catch_up(self, *until)
        proxy.set(cell.rtt_ms, cell.mbit)

    Stream.catch_up = heard  # type: ignore[method-assign]
    try:
        yield
    finally:
        Stream.catch_up = catch_up  # type: ignore[method-assign]


class Ends:
    """How long a turn's first request waits for the verifier, which has not heard the turn's end
    yet. One turn at a time, each `forget`s the one before."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self._asked = self._heard = math.inf

    @property
    def wait_ms(self) -> float:
        """0 where nothing was asked, or all was heard before."""
        return 1_000 * (self._heard - self._asked) if self._asked < self._heard < math.inf else 0.0

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Within: both times are noted."""
        verify = RemoteTarget.verify
        take = RemoteTurn.take
        ends = self

        async def asked(self: RemoteTarget, request: VerifyRequest) -> Verdict | Refusal:
            ends._asked = min(time.perf_counter(), ends._asked)
            return await verify(self, request)

        def heard(self: RemoteTurn, message: wire.Down) -> Verdict | Refusal | None:
            if isinstance(message, wire.HeardMessage) and message.is_finished:
                ends._heard = min(time.perf_counter(), ends._heard)
            return take(self, message)

        RemoteTarget.verify, RemoteTurn.take = asked, heard  # type: ignore[method-assign]
        try:
            yield
        finally:
            RemoteTarget.verify, RemoteTurn.take = verify, take  # type: ignore[method-assign]


class SlowEdge:
    """Every token that a describer's edge drafts takes `edge_s` longer, however many come of one
    step. Open it first."""

    def __init__(self, describer: Describer, edge_s: float) -> None:
        parts = describer._parts
        assert parts is not None
        self._edge_s = edge_s
        self._fast = parts.drafter
        self.num_slept = 0  # ids that were waited for
        parts.drafter = self._drafter  # type: ignore[method-assign]

    def _drafter(self, edge: Any) -> Any:
        return SlowDrafter(self._fast(edge), self._sleep)

    def _sleep(self, num_ids: int) -> None:
        for _ in range(num_ids):
            time.sleep(self._edge_s)
        self.num_slept += num_ids


@dataclass(frozen=True)
class SlowDrafter:
    """A drafter whose every call takes longer by what `sleep` takes for as many ids as it
    drafted."""

    drafter: Any
    sleep: Callable[[int], None]

    def draft(self, *wanted: Any) -> Any:
        drafted = yield from self.drafter.draft(*wanted)
        self.sleep(len(drafted[0]))
        return drafted


def check_slow(arm: str, num_slept: int, num_drafted: int) -> None:
    """Raises RuntimeError where tokens came that nobody waited for: they would flatter this arm."""
    if num_slept < num_drafted:
        raise RuntimeError(
            f"{arm}: {num_drafted} ids were drafted, but only {num_slept} of them took longer"
        )


async def play(describer: Describer, clip: Clip) -> Description:
    return await describer.describe(clip.path)


async def run(
    verifier: str, proxy: Proxy, cell: Cell, clips: Sequence[Clip], arms: dict[str, Sequence[Clip]]
) -> dict[str, list[Played]]:
    """Each arm's clips, in the order of `clips`: clip after clip through all arms in turn."""
    found: dict[str, list[Played]] = {name: [] for name in arms}
    meter = Meter(verifier)
    ends = Ends()
    proxy.set(0, 0)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(bad_from_the_end(proxy, cell))
        stack.enter_context(ends.noted())
        describers: dict[str, Describer] = {}
        slow: dict[str, SlowEdge] = {}
        for name in arms:
            options = {"cloud": proxy.url} | (ARMS | FIXED)[name]
            describers[name] = await stack.enter_async_context(Describer.open(**options))
            if cell.edge_ms:
                await describers[name]._live_parts()
                slow[name] = SlowEdge(describers[name], cell.edge_ms / 1_000)
            await play(describers[name], clips[0])  # warm; and the pace learns the link
            proxy.set(0, 0)
        for clip in progress(
            clips, f"{cell.rtt_ms:g} ms, {cell.mbit:g} Mbit/s, edge +{cell.edge_ms:g} ms"
        ):
            for name in (name for name, of in arms.items() if clip in of):
                before = await anyio.to_thread.run_sync(meter.read)
                slept = slow[name].num_slept if name in slow else 0
                ends.forget()
                described = await play(describers[name], clip)
                proxy.set(0, 0)
                if name in slow:
                    check_slow(name, slow[name].num_slept - slept, described.n_drafted)
                spent = await anyio.to_thread.run_sync(meter.read) - before
                found[name].append(
                    Played(described, 1_000 * spent[0], spent[1], spent[2], ends.wait_ms)
                )
    return found


def mixed(num: int, seconds: int | None) -> list[Clip]:
    """`num` clips of one length, or of LENGTHS_S."""
    lengths = [seconds or LENGTHS_S[i % len(LENGTHS_S)] for i in range(num)]
    pools = {s: iter(held_out(lengths.count(s), s)) for s in set(lengths)}
    return [next(pools[s]) for s in lengths]


async def measure(options: argparse.Namespace, verifier: str, proxy: Proxy) -> list[dict[str, Any]]:
    clips = mixed(options.num, options.seconds)
    cells = [(Cell(rtt, mbit, 0), clips) for mbit in options.mbit for rtt in options.rtt]
    if not options.exact_only:
        cells += [
            (Cell(options.slow_rtt, options.mbit[0], ms), clips[: options.num_slow])
            for ms in options.edge_ms
        ]
    rows: list[dict[str, Any]] = []
    for cell, some in cells:
        arms: dict[str, Sequence[Clip]] = dict.fromkeys(
            EXACT_ARMS if options.exact_only else ARMS, some
        )
        if not options.exact_only and cell.mbit == options.mbit[0]:
            arms |= dict.fromkeys(FIXED, some[: options.num_best_k])
        mine = summarise(await run(verifier, proxy, cell, some, arms), some, **vars(cell))
        rows += mine
        where = (
            f"round trip {cell.rtt_ms:g} ms, {cell.mbit:g} Mbit/s, edge +{cell.edge_ms:g} ms per id"
        )
        print(f"\n{where}\n{show(mine)}", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--num", type=int, default=20, help="clips per cell")
    parser.add_argument(
        "--num-best-k", type=int, default=4, help="of them, for plain speculation at other fixed k"
    )
    parser.add_argument("--num-slow", type=int, default=4, help="of them, where the edge is slowed")
    parser.add_argument("--name", help="of the files that are written: network, or network_exact")
    parser.add_argument("--seconds", type=int, help="clips of this length alone")
    parser.add_argument(
        "--rtt", type=float, nargs="+", default=[0, 20, 50, 100, 200], help="round trips, ms"
    )
    parser.add_argument("--mbit", type=float, nargs="+", default=[20, 1], help="bandwidths")
    parser.add_argument(
        "--edge-ms",
        type=float,
        nargs="*",
        default=[10, 30, 100],
        help="added to each id of the edge",
    )
    parser.add_argument(
        "--slow-rtt", type=float, default=100, help="round trip of slowed edges, ms"
    )
    parser.add_argument(
        "--exact-only", action="store_true", help="do the ids of plain and ours, exact, differ?"
    )
    options = options_of(parser)
    since = time.monotonic()
    with child("streamer", "verifier", "--port", "0") as line:
        verifier = line.split()[2]
        with started("bench.proxy", verifier.rsplit(":", 1)[1]) as (process, port):
            rows = asyncio.run(measure(options, verifier, Proxy(process, port)))
    print("\n" + conclude(rows))
    if not options.exact_only:
        print("\n" + readme(rows))
    name = options.name or ("network_exact" if options.exact_only else "network")
    written = [write(name, rows), plot(rows, name), *plot_slowed(rows, f"{name}_slowed")]
    print(f"in {(time.monotonic() - since) / 60:.1f} minutes; written:", *written)


if __name__ == "__main__":
    main()
