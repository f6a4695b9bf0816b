"""What a person would write today, behind our own socket: collect the turn, then call one-shot
`generate()` in a thread.

`python -m bench.one_shot_server [--threads 4]`. Server, protocol, prompt and weights of the cloud
are those of `streamer serve`. Only the session differs: audio waits until the commit, and each
token goes out as transformers tells it. One generation runs at a time, as one model allows. In:
sockets. Out: the same events, until SIGTERM.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.from_thread
import anyio.to_thread
import numpy as np
import soxr
import torch

from bench.arms import models_of
from bench.generate_arms import one_shot
from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.core.decoding.counts import Counts
from streamer.core.description import TextDelta, describe_turn
from streamer.core.text.emitter import Emitter
from streamer.model.engines.stock import load_stock
from streamer.net.realtime.server import PATH, RealtimeServer
from streamer.net.service.admission import Admission
from streamer.net.service.handler import Address
from streamer.stages.events import Cleared, Event, NothingToCommit, SessionOptions, TurnCommitted

Opening = Callable[[SessionOptions], AbstractAsyncContextManager["OneShotSession"]]


@dataclass(frozen=True)
class OneShot:
    """The stock model, and the lock that gives it to one turn at a time. `cloud`: our Thinker of
    the same weights."""

    cloud: Any
    stock: Any
    lock: anyio.Lock

    def say(self, samples: np.ndarray, tell: Callable[[int], None]) -> None:
        """`tell` each id as it comes."""
        one_shot(self.cloud, self.stock, samples, tell)


class OneShotSession:
    """A Session (stages/events.py) that does nothing until the commit."""

    def __init__(self, model: OneShot, options: SessionOptions) -> None:
        self.num_bytes_fed = 0
        self.backlog: Mapping[str, int] = {}
        self._model = model
        self._options = options
        self._turn = 0
        self._pcm = bytearray()
        self._say, self._said = anyio.create_memory_object_stream[Event](512)

    async def feed(self, pcm: bytes) -> None:
        self._pcm += pcm
        self.num_bytes_fed += len(pcm)

    def feed_nowait(self, pcm: bytes) -> bool:
        self._pcm += pcm
        self.num_bytes_fed += len(pcm)
        return True

    async def commit(self) -> int:
        if not self._pcm:
            raise NothingToCommit("nothing to commit; append audio first")
        fed_at = time.perf_counter()
        samples = np.frombuffer(bytes(self._pcm), "<i2").astype(np.float32) / 32768
        samples = soxr.resample(samples, self._options.sample_rate_hz, SAMPLE_RATE_HZ, "MQ")
        self._pcm.clear()
        turn = self._turn
        self._turn = self._turn + 1
        await self._say.send(TurnCommitted(turn, len(samples) / SAMPLE_RATE_HZ))
        emitter = Emitter(self._model.cloud.vocabulary)
        ids = list[int]()

        def tell(token: int) -> None:
            ids.append(token)
            at_ms = 1000 * (time.perf_counter() - fed_at)
            anyio.from_thread.run(
                self._say.send, TextDelta(emitter.push([token]), (token,), True, at_ms, turn)
            )

        async with self._model.lock:
            await anyio.to_thread.run_sync(functools.partial(self._model.say, samples, tell))
        total_ms = 1000 * (time.perf_counter() - fed_at)
        text = self._model.cloud.vocabulary.text_of(ids)
        seconds = len(samples) / SAMPLE_RATE_HZ
        none = Counts()
        await self._say.send(
            describe_turn(
                "", text, ids, "eos", "cloud", none, seconds, None, 0.0, total_ms, None, {}
            )
        )
        return turn

    async def answer(self) -> None: ...
    async def clear(self) -> None:
        self._pcm.clear()
        await self._say.send(Cleared(self._turn))

    async def cancel(self) -> None: ...
    async def end(self) -> None:
        self._say.close()

    def events(self) -> AsyncIterator[Event]:
        return self._said

    def close(self) -> None:
        self._say.close()
        self._said.close()


def opening(model: OneShot) -> Opening:
    @asynccontextmanager
    async def open_session(options: SessionOptions) -> AsyncIterator[OneShotSession]:
        session = OneShotSession(model, options)
        try:
            yield session
        finally:
            session.close()

    return open_session


async def serve(threads: int) -> None:
    cloud = models_of(mode="cloud").pair[1]
    assert cloud is not None
    model = OneShot(cloud, load_stock(cloud.directory), anyio.Lock())
    torch.set_num_threads(threads)
    one_shot(cloud, model.stock, np.zeros(3 * SAMPLE_RATE_HZ, np.float32))  # warm
    server = RealtimeServer(opening(model), Admission((PATH,), 100))  # type: ignore[arg-type]
    await server.run(
        Address(port=0), lambda port: print(f"listening on ws://127.0.0.1:{port}{PATH}", flush=True)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=4, help="of generate()")
    anyio.run(serve, parser.parse_args().threads)


if __name__ == "__main__":
    main()
