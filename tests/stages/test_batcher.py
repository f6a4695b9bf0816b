"""One thread for many streams: results and errors reach their callers."""

import threading
import time

import anyio
import pytest

from streamer.stages.batcher import Batcher


class CountingRounds:
    """Steps are (number of rounds, result); a round takes a moment, as an engine step does."""

    def __init__(self):
        self.left, self.widths = {}, []
        self.threads = set()

    def add(self, job):
        self.left[job] = list(job.steps)

    def __len__(self):
        return len(self.left)

    def run(self):
        self.threads.add(threading.get_ident())
        self.widths.append(len(self.left))
        time.sleep(0.001)
        finished = []
        for job, steps in list(self.left.items()):
            steps[0] -= 1
            if steps[0] <= 0:
                del self.left[job]
                setattr(job, "error" if isinstance(steps[1], Exception) else "value", steps[1])
                finished.append(job)
        return finished


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_many_callers_share_rounds_and_get_their_own_results(backend):
    rounds = CountingRounds()

    async def main():
        found = {}

        async def call(i):
            found[i] = await batcher.submit((1 + i % 5, i))

        async with Batcher(rounds, "test") as batcher:
            async with anyio.create_task_group() as group:
                for i in range(40):
                    group.start_soon(call, i)
            with pytest.raises(ValueError, match="mine"):
                await batcher.submit((2, ValueError("mine")))
        return found

    found = anyio.run(main, backend=backend)
    assert found == {i: i for i in range(40)}
    assert max(rounds.widths) > 4, "ready rows of many streams go into one round"
    assert len(rounds.threads) == 1
    assert rounds.threads != {threading.get_ident()}
