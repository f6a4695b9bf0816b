"""Real servers and what speaks to them: processes, HTTP, strict clients; certificates. A scripted session
without a model for the wire's tests, by sockets or in memory.
"""

import asyncio
import json
import random
import urllib.error
import urllib.request
from contextlib import asynccontextmanager
from pathlib import Path
from typing import get_args

import anyio
import trustme
from openai.types import realtime as types
from places import SAMPLES
from processes import PATIENCE_S, listening
from processes import describe as describe_command
from processes import until as wait_until

from streamer.core.decoding.plan import Counts
from streamer.core.description import Description, TextDelta
from streamer.net.realtime.conversation import Conversation
from streamer.net.realtime.server import PATH, RealtimeServer, ServerTerms
from streamer.net.realtime.session import ClientSession
from streamer.net.service.admission import Admission
from streamer.net.service.metrics import Metrics
from streamer.stages.events import Cleared, NothingToCommit, TurnCommitted


@asynccontextmanager
async def in_process(server, port=0, tls=None):
    async def run(task_status):
        await server.run(task_status.started, port=port, tls=tls)

    async with anyio.create_task_group() as group:
        yield await group.start(run)
        server.stop()


COMMIT = '{"type": "input_audio_buffer.commit"}'
ANSWER = '{"type": "response.create"}'


def serving(*options, **environment):
    """A server process, on a free port unless one is given: (its websocket address, process)."""
    port = () if "--port" in options else ("--port", 0)
    return listening("serve", *port, *options, **environment)


def describe_files(files, mode, *more):
    """What `streamer describe --json` says, a row for each."""
    status, rows, err = describe_command(*files, "--mode", mode, *more)
    assert status == 0, err
    return rows


def described_by_name(mode, *more):
    """The same of the bundled recordings, by file name."""
    return {Path(row["file"]).name: row for row in describe_files(SAMPLES, mode, *more)}


def http(url, path, headers=None, context=None):
    """(status, body, headers) of a GET. context: of TLS."""
    address = url.replace("ws", "http", 1).removesuffix("/v1/realtime") + path
    request = urllib.request.Request(address, headers=headers or {})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S, context=context) as answer:
            return answer.status, answer.read().decode(), answer.headers
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode(), error.headers


def url_of(proxy):
    """The address of a server through a proxy."""
    return f"ws://127.0.0.1:{proxy.port}{PATH}"


def session_update(rate=16_000, vad=None, **extensions):
    audio = {"input": {"format": {"type": "audio/pcm", "rate": rate}, "turn_detection": vad}}
    session = {"type": "realtime", "audio": audio, "streamer": extensions}
    return json.dumps({"type": "session.update", "session": session})


@asynccontextmanager
async def running(open_session, max_sessions=4, hold_s=5.0, api_key=None, at=0, **more):
    """(websocket address, server) in this process. at: its port; more: of its Admission."""
    admission = Admission((PATH,), max_sessions, api_key, **more)
    server = RealtimeServer(open_session, admission, ServerTerms(hold_s))
    async with in_process(server, at) as port:
        yield f"ws://127.0.0.1:{port}{PATH}", server


async def until_metric(url, line):
    """Wait until /metrics holds this line."""
    await wait_until(lambda: f"\n{line}\n" in http(url, "/metrics")[1])


async def until(ws, kind):
    """Events up to the first of `kind`."""
    events = []
    while not events or events[-1]["type"] != kind:
        events.append(json.loads(await asyncio.wait_for(ws.recv(), PATIENCE_S)))
    return events


async def describe(ws, data, seed=0):
    """Feed raw PCM16 in random pieces, commit, ask: all events to response.done."""
    chance, at = random.Random(seed), 0
    while at < len(data):
        n = chance.choice([1, 333, 3_200, 16_000])
        await ws.send(data[at : at + n])
        at += n
    await ws.send(COMMIT)
    await ws.send(ANSWER)
    return await until(ws, "response.done")


def text_of(events):
    deltas = (e for e in events if e["type"] == "response.output_text.delta")
    return "".join(event["delta"] for event in deltas)


# kind of a server event -> its type in the official client
STRICT = {
    get_args(kind.model_fields["type"].annotation)[0]: kind
    for kind in get_args(get_args(types.RealtimeServerEvent)[0])
}
# pipecat wants these to be there, null or not
RESPONSE = {"id", "object", "status", "status_details", "output", "usage"}
USAGE = {"total_tokens", "input_tokens", "output_tokens"}
USAGE |= {"input_token_details", "output_token_details"}


def validate(raw):
    """Strictly, by the official client's types."""
    STRICT[raw["type"]].model_validate(raw, strict=True)
    if (response := raw.get("response")) is not None:
        assert response.keys() >= RESPONSE
        assert response["usage"] is None or response["usage"].keys() >= USAGE


def certificate(folder):
    """(chain, private key, the authority's certificate): PEM files in `folder`."""
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    chain, key, ca = folder / "chain.pem", folder / "key.pem", folder / "ca.pem"
    chain.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
    ca.write_bytes(authority.cert_pem.bytes())
    return chain, key, ca


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
