"""Pieces of many streams wait for a thread; the end of a turn does not."""

import anyio
import pytest
from anyio.lowlevel import checkpoint
from toy_parts import Decoding, ToyHearing, ToyParts

from streamer import Description
from streamer.core.decoding.plan import Plan
from streamer.core.rules.sampling import Sampling
from streamer.stages.events import SessionOptions
from streamer.stages.ports import NUM_PIECES
from streamer.stages.stream import open_stream

PCM = bytes(3_200)  # one piece of 100 ms


class Ending(ToyHearing):
    """Voice activity is about to end the turn."""

    is_ending = True


class Parts(ToyParts):
    def __init__(self, hearing):
        super().__init__(Decoding(Plan("edge"), Sampling()), None)
        self.heard = hearing()

    def hearing(self, options):
        return self.heard


@pytest.fixture(params=["asyncio", "trio"])
def run(request):
    def run_on(work):
        anyio.run(work, backend=request.param)

    return run_on


def take_all(parts):
    """Other streams hear pieces."""
    others = [object() for _ in range(NUM_PIECES)]
    for other in others:
        parts.threads.pieces.acquire_on_behalf_of_nowait(other)
    return others


def test_a_piece_waits_for_a_thread_and_a_commit_does_not(run):
    async def work():
        parts = Parts(ToyHearing)
        others = take_all(parts)
        async with open_stream(parts, SessionOptions()) as stream:
            await stream.feed(PCM)
            await anyio.wait_all_tasks_blocked()
            assert parts.heard.num_turns == 0
            assert await stream.commit() == 0
            await stream.feed(PCM)
            await anyio.wait_all_tasks_blocked()
            assert parts.heard.num_turns == 1, "the next turn waits again"
            parts.threads.pieces.release_on_behalf_of(others[0])
            await stream.end()
            found = [e async for e in stream.events() if isinstance(e, Description)]
        assert [one.audio_s for one in found] == [0.1, 0.1]
        assert parts.threads.pieces.borrowed_tokens == NUM_PIECES - 1

    run(work)


def test_pieces_do_not_wait_where_voice_activity_may_end_the_turn(run):
    async def work():
        parts = Parts(Ending)
        take_all(parts)
        async with open_stream(parts, SessionOptions()) as stream:
            await stream.feed(PCM)
            with anyio.fail_after(30):
                while parts.heard.num_turns == 0:
                    await checkpoint()

    run(work)


def test_a_stream_that_is_left_while_it_waits_takes_no_thread_with_it(run):
    async def work():
        parts = Parts(ToyHearing)
        others = take_all(parts)
        async with open_stream(parts, SessionOptions()) as stream:
            await stream.feed(PCM)
            await anyio.wait_all_tasks_blocked()
        for other in others:
            parts.threads.pieces.release_on_behalf_of(other)
        assert parts.threads.pieces.borrowed_tokens == 0

    run(work)
