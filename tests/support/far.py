"""Verifiers elsewhere, for tests of the link: real processes, liars, and the real server on a judge
that is slow."""

import contextlib
import random
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import anyio
from in_process import in_process
from msgspec.structs import replace
from patience import PATIENCE_S
from processes import listening
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import serve as serve_on_threads

from streamer.core.audio.turn_items import Closed, Heard
from streamer.core.decoding.verdict import Verdict
from streamer.core.link import packing, wire
from streamer.core.link.verifier_turn import VerifierModel
from streamer.net.link.dial import VerifierAddress
from streamer.net.link.edge import EdgeLink
from streamer.net.link.server import VerifierServer
from streamer.net.service.admission import Admission

MODEL = VerifierModel("model", "tokenizer", "zh", 1_000, 60.0)


def verifying(*options, port=0, **environment):
    """A verifier process: (its address, the process)."""
    return listening("verifier", "--port", port, *options, **environment)


@contextlib.contextmanager
def verifiers(num, num_ahead=3):
    """A function that gives one fresh verifier process after another, `num` of them: (its port, the
    process)."""
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(num_ahead) as pool:
        started, left = [], iter(range(num))

        def start():
            if next(left, None) is not None:
                started.append(pool.submit(stack.enter_context, verifying()))

        for _ in range(num_ahead):
            start()

        def another():
            start()
            url, process = started.pop(0).result()
            return int(url.rsplit(":", 1)[1]), process

        try:
            yield another
        finally:
            pool.shutdown()


@asynccontextmanager
async def lying(reply, seed=0):
    """A websocket server that says what `reply(message, chance)` says, None: closes at once. Its
    port.

    A reply with `repeats_s` also says every so often, of each turn, that nothing of it was heard
    yet.
    """
    chance = random.Random(seed)

    async def handle(socket):
        if reply is None:
            return
        epochs = {}
        async with anyio.create_task_group() as group:
            if (repeats_s := getattr(reply, "repeats_s", None)) is not None:
                group.start_soon(repeat, socket, epochs, repeats_s)
            await answer(socket, epochs)
            group.cancel_scope.cancel()

    async def repeat(socket, epochs, repeats_s):
        with contextlib.suppress(ConnectionClosed):
            while True:
                await anyio.sleep(repeats_s)
                for channel, epoch in epochs.items():
                    await socket.send(wire.encode(wire.HeardMessage(channel, epoch, 0, False)))

    async def answer(socket, epochs):
        try:
            async for data in socket:
                asked = wire.decode_up(data)
                if isinstance(asked, wire.Open):
                    epochs[asked.channel] = asked.epoch
                for message in reply(asked, chance):
                    if isinstance(message, wire.HeardMessage):
                        message = replace(message, epoch=epochs[message.channel])
                    await socket.send(
                        message if isinstance(message, bytes) else wire.encode(message)
                    )
        except ConnectionClosed:
            return

    async with serve(handle, "127.0.0.1", 0, compression=None) as server:
        yield server.sockets[0].getsockname()[1]


def honest(message, chance):
    """Opened, Pong, Heard as they should be; `lying` knows the epoch."""
    match message:
        case wire.Ping(token=token):
            return [wire.Pong(token)]
        case wire.Open():
            return [wire.OpenedMessage(message.channel, message.epoch, 0, "model")]
        case wire.AudioMessage():
            return [
                wire.HeardMessage(
                    message.channel, 0, message.start + packing.num_samples_of(message), False
                )
            ]
        case wire.Finish():
            return [wire.HeardMessage(message.channel, 0, message.num_samples, True)]
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


async def be_honest(socket):
    """Answer all that is said on this websocket, to its end."""
    with contextlib.suppress(ConnectionClosed):
        async for data in socket:
            for message in honest(wire.decode_up(data), None):
                await socket.send(wire.encode(message))


@asynccontextmanager
async def serving_judges(open_judge, port=0):
    """The real server in this process, on other judges: (its port, the server)."""
    server = VerifierServer(open_judge, MODEL, Admission((wire.PATH,), 8))
    async with in_process(server, port) as own:
        yield own, server


@asynccontextmanager
async def linked(port, terms, **options):
    """An edge's link, without an edge."""
    link = EdgeLink(VerifierAddress(f"ws://127.0.0.1:{port}", **options), terms, time.perf_counter)
    async with anyio.create_task_group() as group:
        group.start_soon(link.run)
        yield link
        group.cancel_scope.cancel()


async def hear(target, samples, piece=1_600):
    """A turn's samples, a tenth of a second each time."""
    for at in range(0, len(samples), piece):
        await target.hear(Heard(0, (), 0.0, len(samples), samples=samples[at : at + piece]))


async def finish(target):
    async def free():
        return {}

    await target.finish(Closed(0, (), 0.0, target.turn.num_samples, True, lambda: None), free)


async def until(condition, within_s=PATIENCE_S):
    with anyio.fail_after(within_s):
        while not condition():
            await anyio.sleep(0.01)


def mutated(chance, data):
    """Bytes that are nearly right."""
    data = bytearray(data)
    for _ in range(chance.randint(0, 4)):
        if data and chance.random() < 0.7:
            data[chance.randrange(len(data))] = chance.randrange(256)
        elif chance.random() < 0.5:
            data += chance.randbytes(chance.randint(1, 9))
        else:
            del data[chance.randrange(len(data) + 1) :]
    return bytes(data) if chance.random() < 0.9 else chance.randbytes(chance.randint(0, 400))


def free_port():
    """One that nobody listens on now."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@contextlib.contextmanager
def flooding(message):
    """A server, on threads of its own, that says one message all the time, as fast as it is taken:
    its port."""
    payload = wire.encode(message)
    frames = (bytes([0x82, len(payload)]) + payload) * 4_000

    def flood(link):
        with contextlib.suppress(OSError):
            while True:
                link.socket.sendall(frames)

    with serve_on_threads(flood, "127.0.0.1", 0, compression=None) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.socket.getsockname()[1]
        server.shutdown()
        thread.join()
