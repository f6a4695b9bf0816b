"""Sessions that are resumed; links that are cut at any moment: tests/net/test_history.py."""

import base64
import json
import random

import openai
import pytest
import soundfile
from fake_session import opening
from patience import until as wait_until
from speech import SAMPLES
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from wire import COMMIT, running, session_update, text_of, until

from streamer.net.realtime import session as module
from streamer.net.realtime.session import OBJECT_BYTES, Journal

UPDATE = session_update(binary=True)


async def session_of(ws):
    return (await until(ws, "session.created"))[-1]["session"]["id"]


async def status_of(url):
    """The status by which a connection is refused."""
    with pytest.raises(InvalidStatus) as refused:
        await connect(url)
    return refused.value.response.status_code


async def test_the_newest_of_several_that_resume_has_the_session():
    async with running(opening(), max_sessions=1) as (url, _):
        first = await connect(url)
        session = await session_of(first)
        links = [await connect(f"{url}?resume={session}") for _ in range(3)]
        for link in (first, *links[:-1]):
            with pytest.raises(ConnectionClosed) as closed:
                await until(link, "never")
            assert closed.value.rcvd.code == 4409
        for message in (UPDATE, bytes(320), COMMIT):
            await links[-1].send(message)
        assert text_of(await until(links[-1], "response.done")) == "320"
        await links[-1].close()


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
    """Through random appends and confirmations; what is kept is bounded."""
    monkeypatch.setattr(module, "MAX_HELD_BYTES", 30_000)
    monkeypatch.setattr(module, "KEPT_BYTES", 3_000)
    chance, journal, said = random.Random(seed), Journal("a"), 0
    for _ in range(300):
        text = "x" * chance.choice([0, 9, 500])
        new = [{"type": "x", "i": said + i, "text": text} for i in range(chance.choice([0, 1, 9]))]
        journal.append(new)
        said += len(new)
        if chance.random() < 0.3:
            journal.confirm(chance.randint(0, said + 10))
        journal.sent(chance.randint(0, said))
        assert journal.end == said
        assert journal.first <= journal.num_read <= journal.num_sent <= said
        kept = [journal[number] for number in range(journal.first, said)]
        sizes = [len(row) + OBJECT_BYTES for row in kept]
        assert sum(sizes) <= 30_000
        assert sum(sizes[: journal.num_read - journal.first]) <= 3_000
        for number, row in enumerate(map(json.loads, kept), journal.first):
            assert (row["event_id"], row["i"]) == (f"event_a_{number}", number)
