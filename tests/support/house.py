"""A house on toy models in one loop: clients' server, edge, link, verifier, a bad network; and a client
that keeps what is not acknowledged and comes back, with its History.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

import anyio
from history import History
from toy_parts import MODEL, VOCABULARY, Decoding, ToyJudge, toy_parts
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from wire import ANSWER, COMMIT, session_update

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


AGAIN_S = 0.02
OPTIONS = {"events": True, "binary": True, "acks": True}
GONE = (ConnectionClosed, InvalidHandshake, OSError, TimeoutError, EOFError)


def messages_of(turns, chance):
    """session.update, then each turn in random pieces with a commit and a response.create."""
    messages = [session_update(**OPTIONS)]
    for data in turns:
        at = 0
        while at < len(data):
            n = chance.choice([1, 333, 3_200, 16_001])
            messages.append(data[at : at + n])
            at += n
        messages += [COMMIT, ANSWER]
    return messages


class Returning:
    """`run` to the last turn; it drops its socket after `cut_share` of messages and events."""

    def __init__(self, url, turns, chance, cut_share=0.0, may_begin_anew=False):
        self.url, self.turns, self.chance, self.cut_share = url, turns, chance, cut_share
        self.history = History()
        self.num_answered = 0
        self._may_begin_anew = may_begin_anew
        self._begin()

    def _begin(self):
        """With a session that knows nothing, from the first turn that has no answer."""
        self.history.note("began", self.num_answered)
        self._messages = messages_of(self.turns[self.num_answered :], self.chance)
        self._session_id = None
        self._num_seen = self._num_sent = 0
        self._acked = {"bytes": 0, "messages": 0}

    async def run(self):
        while self.num_answered < len(self.turns):
            try:
                await self._socket()
            except InvalidStatus as refused:
                status = refused.response.status_code
                self.history.note("refused", status)
                if status == 404:
                    assert self._may_begin_anew, "the session is lost"
                    self._begin()
                await asyncio.sleep(AGAIN_S)
            except GONE:
                self.history.note("cut")
                await asyncio.sleep(AGAIN_S)
        return self.history

    async def _socket(self):
        """One, to its end."""
        where = self.url
        if self._session_id is not None:
            where += f"?resume={self._session_id}&bytes={self._acked['bytes']}"
            where += f"&event={self._num_seen}"
        async with contextlib.AsyncExitStack() as stack:
            ws = await connect(where, compression=None, open_timeout=5, ping_interval=None)
            stack.callback(ws.transport.abort)
            if self._session_id is None:
                self._num_sent = 0  # what was sent before its name was known has gone with it
            else:
                self._go_on(json.loads(await ws.recv()))
            stack.callback(asyncio.create_task(self._send(ws)).cancel)
            await self._receive(ws)

    def _go_on(self, event):
        assert event["type"] == "streamer.resumed"
        assert (event["lost_events"], event["lost_bytes"]) == (0, 0)
        assert event["event"] == self._num_seen
        assert event["messages"] >= self._acked["messages"]
        self._num_sent = event["messages"]
        self.history.note("resumed", event)

    async def _send(self, ws):
        with contextlib.suppress(ConnectionClosed):
            while self._num_sent < len(self._messages):
                await ws.send(self._messages[self._num_sent])
                self.history.note("sent", self._messages[self._num_sent])
                self._num_sent += 1
                self._maybe_cut(ws)

    async def _receive(self, ws):
        while self.num_answered < len(self.turns):
            event = json.loads(await ws.recv())
            self.history.note("seen", event)
            self._num_seen += 1
            self._session_id = self._session_id or event["session"]["id"]
            if event["type"] == "streamer.ack":
                assert event["bytes"] >= self._acked["bytes"]
                self._acked = event
            self.num_answered += event["type"] == "streamer.description"
            self._maybe_cut(ws)

    def _maybe_cut(self, ws):
        if self._session_id is not None and self.chance.random() < self.cut_share:
            self.history.note("cut")
            ws.transport.abort()
