"""A scripted session without a model for the wire's tests, by sockets or in memory."""

import json
from contextlib import asynccontextmanager

import anyio

from streamer.core.decoding.plan import Counts
from streamer.core.description import Description, TextDelta
from streamer.net.realtime.conversation import Conversation
from streamer.net.realtime.session import ClientSession
from streamer.net.service.metrics import Metrics
from streamer.stages.events import Cleared, NothingToCommit, TurnCommitted


class FakeSession:
    """Answers each commit, after `waits` or at once, with the digits of its turn's bytes."""

    def __init__(self, options, feed_s=0.0, num_said=0, num_last=0, part_s=1e9, **is_so):
        self.options, self.feed_s, self._num_last = options, feed_s, num_last
        self.fails, self._is_slow = is_so.get("fails", False), is_so.get("is_slow", False)
        self._waits, self._held = is_so.get("waits", False), []
        self.part_s = part_s
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

    async def _answer(self, turn, text, seconds, stop_reason="eos"):
        for i, digit in enumerate(text):
            await self._say.send(TextDelta(digit, (i,), True, float(i), turn))
        times = {"ttft_ms": 1.0, "prefill_ms": 0.0, "total_ms": 2.0}
        ids = tuple(range(len(text)))
        said = {"file": "", "text": text, "stop_reason": stop_reason, "mode": "exact"}
        said |= {"attributes": {}, "counts": Counts(), "audio_s": seconds}
        await self._say.send(Description(**said, **times, ids=ids, turn=turn))

    async def answer(self):
        while self._held and not self._is_slow:
            await self._answer(*self._held.pop(0))

    async def clear(self):
        self.num_turn_bytes = 0
        await self._say.send(Cleared(self.num_turns))

    async def cancel(self):
        while self._held:
            turn, _, seconds = self._held.pop(0)
            await self._answer(turn, "", seconds, "cancelled")

    async def end(self):
        self._is_ended = True
        for _ in range(self._num_last):
            self._say.send_nowait(TurnCommitted(0, 1.0))
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


class Talk:
    """A client of a session in memory."""

    def __init__(self, session):
        self.session = session
        self._num_read = 0

    async def say(self, *messages):
        """Every event that follows these messages."""
        for message in messages:
            is_event = isinstance(message, dict)
            await self.session.take(json.dumps(message) if is_event else message)
            await anyio.wait_all_tasks_blocked()
        journal = self.session.journal
        events = [json.loads(journal[i]) for i in range(self._num_read, journal.end)]
        self._num_read = journal.end
        return events


@asynccontextmanager
async def talking(is_beta=False, **script):
    """A Talk with a scripted session, after its first events."""
    conversation = Conversation("sess_00000000", "realtime", is_beta=is_beta)
    session = ClientSession(conversation, opening(**script), Metrics())
    async with anyio.create_task_group() as group:
        group.start_soon(session.run)
        await anyio.wait_all_tasks_blocked()
        talk = Talk(session)
        created, *_ = await talk.say()
        assert created["type"] == "session.created"
        yield talk
        session.end((1000, ""))
