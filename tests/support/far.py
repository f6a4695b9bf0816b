"""Verifiers elsewhere: real processes, liars, and the real server with slow judges."""

import contextlib
import random
import socket
import time
from contextlib import asynccontextmanager

import anyio
import numpy as np
from processes import PATIENCE_S, listening
from toy_parts import MODEL, VOCABULARY
from websockets.asyncio.client import connect
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed
from wire import in_process

from streamer.core.audio.turn import Closed, Heard
from streamer.core.decoding.plan import Verdict, VerifyRequest, prefix_hash
from streamer.core.link import wire
from streamer.core.rules.settings import Rules, Sampling
from streamer.net.link.client import RemoteCloud, VerifierAddress
from streamer.net.link.server import VerifierServer
from streamer.net.link.target import DecodingTerms
from streamer.net.service.admission import Admission

TERMS = DecodingTerms(VOCABULARY, Sampling())
RULES = Rules(language="zh")
FIRST = VerifyRequest(1, 0, prefix_hash(()), (), ())
QUERY = f"?{wire.VERSION_QUERY}={wire.VERSION}"


def verifying(*options, port=0, **environment):
    """A verifier process: (its address, the process)."""
    return listening("verifier", "--port", port, *options, **environment)


@asynccontextmanager
async def answering(reply, decide=None):
    """The port of a verifier that answers each message by `reply(message, chance)`; None: closes at
    once. decide: in place of the upgrade."""
    chance = random.Random(0)

    async def handle(websocket):
        with contextlib.suppress(ConnectionClosed):
            while reply is not None:
                await say(websocket, *reply(wire.decode_up(await websocket.recv()), chance))

    options = {"compression": None, "process_request": decide}
    async with serve(handle, "127.0.0.1", 0, **options) as server:
        yield server.sockets[0].getsockname()[1]


def judging(make):
    """The replies of a verifier that is honest but for its verdicts, `make(request)`."""

    def reply(message, chance):
        match message:
            case wire.Open():
                return [wire.Heard(0, False, "model")]
            case wire.Audio():
                return [wire.Heard(message.start + len(message.samples()), False)]
            case wire.Finish():
                return [wire.Heard(message.num_samples, True)]
        return make(message)

    return reply


obliging = judging(lambda request: [Verdict(request.number, 0, 5)])


class Slow:
    """A judge that takes a while to hear; its verdicts come at once."""

    def __init__(self, samples_per_s=1e9):
        self.samples_per_s, self.num_heard, self.is_closed = samples_per_s, 0, False

    async def hear(self, samples):
        await anyio.sleep(len(samples) / self.samples_per_s)
        self.num_heard += len(samples)

    async def finish(self, weights):
        pass

    async def verify(self, request):
        return Verdict(request.number, 0, 5)

    def close(self):
        assert not self.is_closed
        self.is_closed = True


@asynccontextmanager
async def serving_judges(open_judge=lambda turn: Slow(), port=0, hold_s=30.0, **admission):
    """The real server in this process, with other judges: (its port, the server)."""
    admission = Admission((wire.PATH,), **({"max_sessions": 8} | admission))
    server = VerifierServer(open_judge, MODEL, admission, hold_s)
    async with in_process(server, port) as own:
        yield own, server


@asynccontextmanager
async def linked(port, terms=TERMS, **options):
    """An edge's link, without an edge."""
    url = f"ws://127.0.0.1:{port}"
    async with anyio.create_task_group() as group:
        yield RemoteCloud(VerifierAddress(url, **options), terms, time.perf_counter, group)
        group.cancel_scope.cancel()


def sound(seconds):
    drawn = np.random.default_rng(0).integers(-9_000, 9_000, int(seconds * 16_000))
    return drawn.astype(np.float32) / 32768


async def hear(target, samples):
    """A turn's samples, a tenth of a second each time."""
    for at in range(0, len(samples), 1_600):
        await target.hear(Heard(0, (), 0.0, samples=samples[at : at + 1_600]))


async def spoken(link, seconds):
    """A turn that is over."""
    target = link.listen(RULES)
    await hear(target, sound(seconds))
    await target.finish(Closed(0, (), 0.0, target.num_samples, True, None), {})
    return target


def opening(session=b"s" * 16, **changed):
    """The message that opens a turn, by hand."""
    fields = {"model": "", "tokenizer": VOCABULARY.fingerprint, "phrases": ""}
    fields |= {"rules": vars(RULES), "sampling": (0.0, 1.0, 0)}
    return wire.Open(session, **(fields | changed))


def raw(url, key=""):
    """A websocket of an edge, by hand."""
    header = {"Authorization": f"Bearer {key}"}
    return connect(url + wire.PATH + QUERY, additional_headers=header, compression=None)


async def say(websocket, *messages):
    for message in messages:
        await websocket.send(message if isinstance(message, bytes) else wire.encode(message))


async def told(websocket, kind=wire.Down):
    """The next message of this kind."""
    with anyio.fail_after(PATIENCE_S):
        while not isinstance(found := wire.decode_down(await websocket.recv()), kind):
            pass
    return found


def free_port():
    """One that nothing listens on now."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]
