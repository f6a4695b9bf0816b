"""Verifiers elsewhere, for tests of the link: real processes, liars, and the real server on a judge that is slow."""

import contextlib
import random
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import anyio
from processes import listening
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

from streamer.core import wire
from streamer.core.served import House
from streamer.core.verify import Verdict
from streamer.net.admission import Admission
from streamer.net.service import Address
from streamer.net.verifier import VerifierServer

HOUSE = House("model", "tokenizer", "zh", 1_000, 60.0)


def verifying(*options, port=0, **environment):
    """A verifier process: (its address, the process)."""
    return listening("verifier", "--port", port, *options, **environment)


@contextlib.contextmanager
def verifiers(*options, num_ahead=2):
    """A function that gives one fresh verifier process after another: (its port, the process)."""
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(num_ahead) as pool:
        started = [pool.submit(stack.enter_context, verifying(*options)) for _ in range(num_ahead)]

        def another():
            started.append(pool.submit(stack.enter_context, verifying(*options)))
            url, process = started.pop(0).result()
            return int(url.rsplit(":", 1)[1]), process

        try:
            yield another
        finally:
            pool.shutdown()


@asynccontextmanager
async def lying(reply, seed=0):
    """A websocket server that says what `reply(message, chance)` says, None: closes at once. Its port."""
    chance = random.Random(seed)

    async def handle(socket):
        if reply is None:
            return
        try:
            async for data in socket:
                for message in reply(wire.decode_up(data), chance):
                    await socket.send(message if isinstance(message, bytes) else wire.encode(message))
        except ConnectionClosed:
            return

    async with serve(handle, "127.0.0.1", 0, compression=None) as server:
        yield server.sockets[0].getsockname()[1]


def honest(message, chance):
    """Opened, Pong, Heard as they should be."""
    match message:
        case wire.Ping(token=token):
            return [wire.Pong(token)]
        case wire.Open():
            return [wire.Opened(message.channel, message.epoch, 0, "model")]
        case wire.Finish():
            return [wire.Heard(message.channel, 1, message.num_samples, True)]
    return []


class Slow:
    """A judge that takes a while to hear; its verdicts come at once."""

    def __init__(self, samples_per_s):
        self.samples_per_s, self.num_heard = samples_per_s, 0

    async def hear(self, samples):
        await anyio.sleep(len(samples) / self.samples_per_s)
        self.num_heard += len(samples)

    async def finish(self):
        pass

    async def judge(self, request, runs_on):
        yield Verdict(request.number, 0, 5)

    def close(self):
        pass


@asynccontextmanager
async def serving_judges(open_judge):
    """The real server in this process, on other judges: (its port, the server)."""
    server, port, is_ready = VerifierServer(open_judge, HOUSE, Admission((wire.PATH,), 8)), [], anyio.Event()

    def ready(found):
        port.append(found)
        is_ready.set()

    async with anyio.create_task_group() as group:
        group.start_soon(server.run, Address(port=0), ready)
        await is_ready.wait()
        yield port[0], server
        server.stop()


def free_port():
    """One that nobody listens on now."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]
