"""A TCP proxy that delays, slows, cuts or stops a link.

`async with Proxy(port, Toxics(latency_s=0.05)) as proxy: ... proxy.port`. Both directions suffer
alike. Latency is one way, so a round trip takes twice as long. While a connection lives, its bytes
come in order and none is lost, as TCP has it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import sys
from collections.abc import Awaitable
from dataclasses import dataclass, field

READ_BYTES = 16_384
MAX_BYTES = 1 << 20  # on their way in one direction; then the sender waits
Due = asyncio.Queue[tuple[float, bytes]]  # when, what


@dataclass
class Toxics:
    """Faults of the link. bandwidth: bytes per second and direction, None: no limit. slice_bytes:
    size of a piece. is_hung: connected, nothing comes through. is_down: no connection is accepted.
    """

    latency_s: float = 0.0
    jitter_s: float = 0.0
    bandwidth: float | None = None
    slice_bytes: int | None = None
    is_hung: bool = False
    is_down: bool = False


@dataclass
class Proxy:
    """Counts the bytes that went up; `cut` resets every connection."""

    target_port: int
    toxics: Toxics = field(default_factory=Toxics)
    seed: int = 0

    async def __aenter__(self) -> Proxy:
        self.num_up = self.num_cuts = 0
        self.cut_after: int | None = None  # bytes in either direction, then a reset
        self.cut_every: int | None = None  # the next `cut_after`
        self._chance = random.Random(self.seed)
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def cut(self) -> None:
        """Reset what is connected, in the middle of whatever it was saying."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            await self._join(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()
            self._writers.discard(writer)
            self._tasks.discard(task)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.toxics.is_down:
            return
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target_port)
        self._writers.add(far_writer)
        try:
            await _first(
                [self._carry(reader, far_writer, True), self._carry(far_reader, writer, False)]
            )
        finally:
            far_writer.transport.abort()
            self._writers.discard(far_writer)

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_up: bool
    ) -> None:
        """One direction: read at once, hand on when it is due."""
        due: Due = asyncio.Queue(MAX_BYTES // READ_BYTES)
        await _first([self._read(reader, due), self._hand_on(writer, due, is_up)])

    async def _read(self, reader: asyncio.StreamReader, due: Due) -> None:
        clock = asyncio.get_running_loop().time
        free_at = 0.0
        last = 0.0
        while data := await reader.read(READ_BYTES):
            toxics = self.toxics
            free_at = max(free_at, clock())
            if toxics.bandwidth is not None:
                free_at += len(data) / toxics.bandwidth
            last = max(
                last, free_at + toxics.latency_s + self._chance.uniform(0.0, toxics.jitter_s)
            )
            await due.put((last, data))
        await due.put((last, b""))

    async def _hand_on(self, writer: asyncio.StreamWriter, due: Due, is_up: bool) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            at, data = await due.get()
            await asyncio.sleep(max(0.0, at - clock()))
            while self.toxics.is_hung:
                await asyncio.sleep(0.02)
            if not data:
                return
            size = self.toxics.slice_bytes or len(data)
            for first in range(0, len(data), size):
                self._say(writer, data[first : first + size], is_up)
                await writer.drain()
                if size < len(data):
                    await asyncio.sleep(0)

    def _say(self, writer: asyncio.StreamWriter, data: bytes, is_up: bool) -> None:
        if self.cut_after is not None:
            data, left = data[: self.cut_after], self.cut_after - len(data)
            self.cut_after = max(0, left)
        writer.write(data)
        self.num_up += len(data) * is_up
        if self.cut_after == 0:
            self.cut_after = self.cut_every
            self.num_cuts += 1
            self.cut()


async def _first(work: list[Awaitable[None]]) -> None:
    """Until one of them ends; the others are cancelled."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "port", type=int, help="where to hand on to, on 127.0.0.1; then read from stdin: MS MBIT"
    )
    options = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_run(options.port))


async def _run(target_port: int) -> None:
    async with Proxy(target_port) as proxy:
        print(proxy.port, flush=True)
        await _obey(proxy)


async def _obey(proxy: Proxy) -> None:
    """A line "RTT_MS MBIT" (0: no limit) changes the link, and is said again when it has."""
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(lines), sys.stdin
    )
    while line := (await lines.readline()).decode():
        rtt_ms, mbit = map(float, line.split())
        proxy.toxics = Toxics(rtt_ms / 2_000, bandwidth=mbit * 125_000 or None)
        print(line, end="", flush=True)


if __name__ == "__main__":
    main()
