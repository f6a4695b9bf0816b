"""Sessions that are resumed; links that are cut at any moment: tests/net/test_history.py."""

import asyncio
import base64
import contextlib
import json
import random
from collections import Counter

import anyio
import openai
import pytest
import soundfile
from fake_session import opening
from patience import until as wait_until
from speech import SAMPLES
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from wire import COMMIT, running, session_update, text_of, until

from streamer.net.realtime import journal as module
from streamer.net.realtime.journal import OBJECT_BYTES, Journal

UPDATE = session_update(binary=True)


async def session_of(ws):
    return (await until(ws, "session.created"))[-1]["session"]["id"]


async def status_of(url):
    """The status by which a connection is refused."""
    with pytest.raises(InvalidStatus) as refused:
        await connect(url)
    return refused.value.response.status_code


async def test_of_fifty_that_resume_at_once_the_newest_has_the_session():
    """The others are closed with 4409, also the first, which still sends."""
    async with (
        running(opening(feed_s=0.01), max_sessions=1) as (url, _),
        anyio.create_task_group() as group,
    ):
        first = await connect(url)
        session = await session_of(first)
        await first.send(UPDATE)

        async def speak():
            with contextlib.suppress(ConnectionClosed):
                while True:
                    await first.send(bytes(640))

        group.start_soon(speak)
        again = f"{url}?resume={session}"
        links = await asyncio.gather(*(connect(again, open_timeout=60) for _ in range(50)))
        closed = Counter()

        async def listen(link, scope):
            with scope, pytest.raises(ConnectionClosed) as error:
                await until(link, "never")
            if not scope.cancel_called:
                closed[error.value.rcvd.code] += 1

        listening = {link: anyio.CancelScope() for link in (first, *links)}
        for link, scope in listening.items():
            group.start_soon(listen, link, scope)
        await wait_until(lambda: closed.total() == 50)
        assert closed == {4409: 50}
        (winner,) = (link for link in links if link.close_code is None)
        listening[winner].cancel()
        await anyio.wait_all_tasks_blocked()
        for message in ('{"type": "input_audio_buffer.clear"}', bytes(320), COMMIT):
            await winner.send(message)
        assert text_of(await until(winner, "response.done")) == "320"
        await winner.close()


async def test_requests_that_cannot_be_resumed_are_refused_before_the_upgrade():
    async with running(opening(), hold_s=0.2) as (url, server), connect(url) as ws:
        session = await session_of(ws)
        for query, status in (
            (f"resume={session}&event=2", 400),
            (f"resume={session}&bytes=-1", 400),
            (f"resume={session}&event=" + "9" * 5_000, 400),
            ("resume=sess_0", 404),
        ):
            assert await status_of(f"{url}?{query}") == status
        ws.transport.abort()
        await wait_until(lambda: not server.sessions)
        assert await status_of(f"{url}?resume={session}") == 404


async def test_a_session_without_a_client_keeps_its_place():
    """A new client is refused; the one that was cut finds its session."""
    sessions = []
    async with (
        running(opening(sessions), max_sessions=2, hold_s=600) as (url, server),
        connect(url) as other,
    ):
        await until(other, "session.created")
        ws = await connect(url)
        session = await session_of(ws)
        ws.transport.abort()
        await wait_until(lambda: server.num_held == 1)
        assert await status_of(url) == 503
        async with connect(f"{url}?resume={session}&event=1") as back:
            assert (await until(back, "streamer.resumed"))[-1]["event"] == 1
        await wait_until(lambda: len(sessions) == 1)  # a goodbye ends it at once
        await wait_until(lambda: "streamer_sessions 1.0" in server.metrics.text().decode())


async def test_a_client_that_does_not_count_gets_the_events_that_were_not_sent():
    """And the number of events that it may have missed."""
    async with running(opening()) as (url, _):
        ws = await connect(url)
        session = await session_of(ws)
        for message in (UPDATE, b"123", COMMIT):
            await ws.send(message)
        await until(ws, "response.done")
        ws.transport.abort()
        async with connect(f"{url}?resume={session}") as ws:
            told = json.loads(await ws.recv())
            assert (told["bytes"], told["messages"], told["lost_bytes"]) == (3, 3, None)
            assert 0 <= told["lost_events"] <= told["event"]
            await ws.send(b"12345")
            await ws.send(COMMIT)
            assert text_of(await until(ws, "response.done")) == "5"


# the client's own, with websockets 17
@pytest.mark.filterwarnings("ignore:connect:DeprecationWarning")
async def test_the_official_client_comes_back_by_on_reconnecting(server, wanted):
    """Unmodified: by its own reconnection with an extra query; the session's options last."""
    base = server.replace("ws", "http", 1).removesuffix("/realtime")
    realtime = openai.AsyncOpenAI(api_key="none", base_url=base).realtime
    session, gaps, text = [], [], ""
    audio, rate = soundfile.read(SAMPLES[0], dtype="int16")

    def again(_):
        return {"extra_query": {"resume": session[0]}}

    async with realtime.connect(model="streamer", on_reconnecting=again) as connection:
        heard = {"format": {"type": "audio/pcm", "rate": rate}, "turn_detection": None}
        await connection.session.update(session={"type": "realtime", "audio": {"input": heard}})
        async for event in connection:
            match event.type:
                case "session.created":
                    session.append(event.session.id)
                case "session.updated":
                    connection._connection.transport.abort()
                case "streamer.resumed":
                    gaps.append(event.lost_events)
                    data = base64.b64encode(audio.tobytes()).decode()
                    await connection.input_audio_buffer.append(audio=data)
                    await connection.input_audio_buffer.commit()
                    await connection.response.create()
                case "response.output_text.delta":
                    text += event.delta
                case "response.done":
                    break
    assert len(gaps) == 1
    assert text == wanted[SAMPLES[0].name]["text"]


@pytest.mark.parametrize("seed", range(20))
def test_every_event_that_is_kept_is_found_by_its_number(seed, monkeypatch):
    """Against plain lists, through random appends, confirmations and attachments."""
    monkeypatch.setattr(module, "MAX_HELD_BYTES", 30_000)
    monkeypatch.setattr(module, "KEPT_BYTES", 3_000)
    chance, journal, said, sizes, read = random.Random(seed), Journal("a"), 0, [], 0
    for _ in range(300):
        text = "x" * chance.choice([0, 9, 500])
        new = [{"type": "x", "i": said + i, "text": text} for i in range(chance.choice([0, 1, 9]))]
        journal.append(new)
        said += len(new)
        sizes += [OBJECT_BYTES + len(journal[said - len(new) + i]) for i in range(len(new))]
        if chance.random() < 0.3:
            read = max(read, number := chance.randint(0, said + 10))
            journal.confirm(number)
            read = min(read, said)
        if chance.random() < 0.5:
            journal.sent(chance.randint(0, said))
        journal.attach(chance.random() < 0.5)
        assert journal.end == said
        assert journal.num_read == max(journal.first, read)
        assert journal.first <= journal.num_read <= journal.num_sent <= said
        parts = (journal.first, said, 30_000), (journal.num_sent, said, 30_000)
        for begin, end, most in (*parts, (journal.first, journal.num_read, 3_000)):
            assert journal.num_bytes(begin, end) == sum(sizes[begin:end]) <= most
        if journal.first < said:
            number = chance.randrange(journal.first, said)
            row = json.loads(journal[number])
            assert (row["event_id"], row["i"]) == (f"event_a_{number}", number)
