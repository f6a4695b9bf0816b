"""Live sessions on the parts of a stream, which a test may wrap, and the KV slots that are free."""

from contextlib import asynccontextmanager

from streamer.stages.events import SessionOptions
from streamer.stages.stream import open_stream


@asynccontextmanager
async def session_of(parts, **options):
    """As `Describer.session` gives it; **options: those of SessionOptions."""
    async with open_stream(parts, SessionOptions(**options)) as session:
        yield session


def slots_free(models):
    """KV slots of each model."""
    return [thinker.engine.slots.num_free for thinker in models.pair if thinker is not None]


def free_of(describer):
    """The same of a Describer, which says nothing of its slots."""
    return slots_free(describer._models)
