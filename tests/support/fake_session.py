"""A scripted session without a model for the wire's tests: slow, talkative or broken as they want."""

from contextlib import asynccontextmanager

import anyio

from streamer.core.decoding.plan import Counts
from streamer.core.description import Description, TextDelta
from streamer.stages.events import Cleared, NothingToCommit, TurnCommitted


class FakeSession:
    """Answers each commit with the number of bytes of its turn, digit by digit; feeding takes
    `feed_s` a message. waits: for `answer`."""

    def __init__(
        self, options, feed_s=0.0, num_said=0, fails=False, part_s=1e9, ttft_ms=1.0, waits=False
    ):
        self.options, self.feed_s, self.fails = options, feed_s, fails
        self._waits, self._held = waits, []
        self.part_s, self.ttft_ms = part_s, ttft_ms
        self.num_bytes_fed = self.num_turn_bytes = self.num_turns = 0
        self.backlog = {"pieces": 0, "audio_ms": 0, "turns": 0, "events": 0}
        self._say, self._said = anyio.create_memory_object_stream(100_000)
        self._is_ended = False
        for _ in range(num_said):
            self._say.send_nowait(TurnCommitted(0, 1.0))

    async def feed(self, pcm):
        if self._is_ended:
            raise anyio.ClosedResourceError
        if self.fails:
            raise RuntimeError("broken")
        await anyio.sleep(self.feed_s)
        self.num_bytes_fed += len(pcm)
        self.num_turn_bytes += len(pcm)

    async def commit(self):
        if self.num_turn_bytes == 0:
            raise NothingToCommit("nothing")
        text = str(self.num_turn_bytes)
        left_s = self.num_turn_bytes / 2 / self.options.sample_rate_hz
        self.num_turn_bytes = 0
        while left_s > 0:
            await self._describe(self.num_turns, text, min(self.part_s, left_s))
            left_s -= self.part_s
            self.num_turns += 1
        return self.num_turns - 1

    async def _describe(self, turn, text, seconds):
        await self._say.send(TurnCommitted(turn, seconds))
        if self._waits:
            self._held.append((turn, text, seconds))
        else:
            await self._answer(turn, text, seconds)

    async def _answer(self, turn, text, seconds):
        for i, digit in enumerate(text):
            await self._say.send(TextDelta(digit, (i,), True, float(i), turn))
        times = {"ttft_ms": self.ttft_ms, "prefill_ms": 0.0, "total_ms": self.ttft_ms + 1}
        ids = tuple(range(len(text)))
        said = ("", text, "eos", "exact", Counts(), seconds, {})
        await self._say.send(Description(*said, **times, ids=ids, turn=turn))

    async def answer(self):
        while self._held:
            await self._answer(*self._held.pop(0))

    async def clear(self):
        self.num_turn_bytes = 0
        await self._say.send(Cleared(self.num_turns))

    async def cancel(self):
        pass

    async def end(self):
        self._is_ended = True
        self._say.close()

    def events(self):
        return self._said

    def close(self):
        self._say.close()
        self._said.close()


def opening(sessions=None, **script):
    """A factory of fake sessions; those that are open are in `sessions`."""
    sessions = [] if sessions is None else sessions

    @asynccontextmanager
    async def open_session(options):
        session = FakeSession(options, **script)
        sessions.append(session)
        try:
            yield session
        finally:
            sessions.remove(session)
            session.close()

    return open_session
