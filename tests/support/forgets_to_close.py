"""A program that ends while its event loop runs in another thread."""

import asyncio
import threading
from contextlib import suppress

from streamer.assembly.models import Models
from streamer.config import Config
from streamer.model.engines.engine import Row
from streamer.model.scheduler import StepScheduler
from streamer.stages.batcher import Batcher


def endless(engine):
    slot, num_steps = engine.open(), 0
    while True:
        yield Row(slot, 10, [1] * 40)
        num_steps += 1
        if num_steps == 3:
            is_at_work.set()


async def main(engine):
    async with Batcher(StepScheduler(engine), "edge") as batcher:
        await batcher.submit(endless(engine))


def run():
    with suppress(RuntimeError):  # the describer was closed, by the interpreter's end
        asyncio.run(main(engine))


# stable: torch's products, which let the GIL go
engine = Models(Config(mode="edge", engine="stable")).first.engine
is_at_work = threading.Event()
threading.Thread(target=run, daemon=True).start()
is_at_work.wait()
