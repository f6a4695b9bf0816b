"""A house on toy models in one loop: clients' server, edge, link, verifier, a bad network."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

import anyio
from toy_parts import MODEL, VOCABULARY, Decoding, ToyJudge, toy_parts

from bench.proxy import Proxy
from streamer.core.link import wire
from streamer.net.link.client import RemoteCloud, VerifierAddress
from streamer.net.link.server import VerifierServer
from streamer.net.link.target import DecodingTerms
from streamer.net.realtime.server import PATH, RealtimeServer, ServerTerms
from streamer.net.service.admission import Admission
from streamer.stages.stream import open_stream

MAX_SESSIONS = 8
HOLD_S = 30.0


@dataclass
class Clock:
    """A clock that may jump ahead, as the machine's does behind a long stop."""

    ahead_s: float = 0.0

    def __call__(self) -> float:
        return time.perf_counter() + self.ahead_s


class Program:
    """What would be a process: `run(ready)` of it lives until it is killed."""

    def __init__(self, run, proxy):
        self._run, self._proxy, self._task = run, proxy, None

    async def start(self):
        ready = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(ready.set_result))
        await asyncio.wait([ready, self._task], return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            self._task.result()
        self._proxy.target_port = ready.result()
        self._proxy.toxics.is_down = False

    async def kill(self):
        """No goodbye: whoever is connected is reset first."""
        self._proxy.toxics.is_down = True
        self._proxy.cut()
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task


class House:
    """Clients come to `client_proxy`, the edge comes to the verifier by `edge_proxy`."""

    def __init__(self, decoding: Decoding, client_proxy: Proxy, edge_proxy: Proxy) -> None:
        self.client_proxy, self.edge_proxy = client_proxy, edge_proxy
        self.clock = Clock()
        self._decoding = decoding
        self.server = Program(self._serve, client_proxy)
        self.verifier = Program(self._verify, edge_proxy)

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.client_proxy.port}{PATH}"

    async def _verify(self, ready):
        server = VerifierServer(ToyJudge, MODEL, Admission((wire.PATH,), MAX_SESSIONS), HOLD_S)
        await server.run(ready)

    async def _serve(self, ready):
        plan = self._decoding.plan
        terms = DecodingTerms(VOCABULARY, self._decoding.sampling)
        url = f"ws://127.0.0.1:{self.edge_proxy.port}"
        verifier = VerifierAddress(url, budget_s=plan.verify_budget_s)
        async with anyio.create_task_group() as group:
            link = RemoteCloud(verifier, terms, self.clock, group)
            parts = toy_parts(self._decoding, link)
            server = RealtimeServer(
                lambda options: open_stream(parts, options, self.clock),
                Admission((PATH,), MAX_SESSIONS),
                ServerTerms(HOLD_S),
            )
            await link.settled(2.0)
            await server.run(ready)


@contextlib.asynccontextmanager
async def house(decoding: Decoding, seed: int = 0) -> AsyncIterator[House]:
    """One that runs."""
    async with Proxy(1, seed=seed) as clients, Proxy(1, seed=seed + 1) as edges:
        found = House(decoding, clients, edges)
        await found.verifier.start()
        await found.server.start()
        try:
            yield found
        finally:
            await found.server.kill()
            await found.verifier.kill()
