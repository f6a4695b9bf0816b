"""A real `streamer serve` process: what is said over the socket is what `describe` says of the
file."""

import asyncio
import io
import json
import random

import numpy as np
import pytest
import soundfile
import soxr
import tiny
from speech import RATE_HZ, SAMPLES, speech
from websockets.asyncio.client import connect
from wire import (
    ANSWER,
    COMMIT,
    STRICT,
    describe,
    http,
    pcm,
    serving,
    session_update,
    text_of,
    until,
    until_left,
    validate,
)

from streamer.core.audio.pcm import from_g711

NO_VAD = {"audio": {"input": {"turn_detection": None}}}


async def test_streamed_over_the_socket_equals_described(server, wanted):
    """Id for id, for any cut of the bytes, turn after turn; the extensions carry ids, verified
    flags, attributes."""
    async with connect(server) as ws:
        await ws.send(session_update(events=True, binary=True))
        for seed, file in enumerate(SAMPLES):
            events = await describe(ws, soundfile.read(file, dtype="int16")[0].tobytes(), seed)
            row = wanted[file.name]
            assert text_of(events) == row["text"]
            deltas = [event for event in events if event["type"] == "streamer.delta"]
            assert [i for delta in deltas for i in delta["ids"]] == row["ids"]
            assert all(delta["verified"] for delta in deltas)
            (found,) = [json.loads(await ws.recv())["description"]]
            assert found["attributes"] == row["attributes"]


async def test_live_updates_come_while_someone_speaks(server):
    async with connect(server) as ws:
        await ws.send(session_update(events=True, binary=True, live_update_s=1.0))
        data = pcm(speech(6, 2))
        await ws.send(data)
        events = await until(ws, "streamer.live_update")
        assert events[-1]["text"]
        assert events[-1]["heard_s"] <= 6


@pytest.mark.parametrize("headers", [{}, {"OpenAI-Beta": "realtime=v1"}])
async def test_the_language_is_the_session_s_and_changes_between_turns(headers, tmp_path):
    """In both generations of the protocol. One that the server does not speak is refused."""
    edge, cloud = tiny.save_bilingual(tmp_path)
    delta = "response.text.delta" if headers else "response.output_text.delta"
    with serving("--mode", "exact", "--edge", edge, "--cloud", cloud, "--language", "en") as (
        url,
        _,
    ):
        assert json.loads(http(url, "/languages.json")[1]) == ["en", "zh"]
        levels = json.loads(http(url, "/attributes.json")[1])["rate"][0]
        assert (levels["name"], levels["english"]) == ("很慢", "very slow")
        assert {"extremely slow", "语速极慢"} <= set(levels["phrases"])
        async with connect(url, additional_headers=headers) as ws:
            (created,) = await until(ws, "session.created")
            ours = created["session"]["streamer"]
            assert (ours["language"], ours["languages"]) == ("en", ["en", "zh"])
            for asked in ({}, {"language": "zh"}, {"language": None}):
                await ws.send(session_update(events=True, binary=True, **asked))
                language = asked.get("language") or "en"
                told = (await until(ws, "session.updated"))[-1]["session"]["streamer"]
                assert told["language"] == language
                events = await describe(ws, pcm(speech(3, 1)))
                text = "".join(e["delta"] for e in events if e["type"] == delta)
                assert text.isascii() == (language == "en")
                found = json.loads(await ws.recv())["description"]
                assert (found["language"], found["text"]) == (language, text)
                assert found["levels"]["rate"]["level"] == found["attributes"]["rate"]
            await ws.send(session_update(language="de"))
            refused = (await until(ws, "error"))[-1]["error"]
            assert refused["message"] == "language is 'de'; this server speaks en and zh"


async def test_many_clients_do_not_mix(server, wanted):
    async def one(i):
        file = SAMPLES[i % len(SAMPLES)]
        async with connect(server) as ws:
            await ws.send(session_update(binary=True))
            return (
                text_of(await describe(ws, soundfile.read(file, dtype="int16")[0].tobytes(), i))
                == wanted[file.name]["text"]
            )

    assert all(await asyncio.gather(*(one(i) for i in range(12))))


@pytest.mark.parametrize("times", [6, pytest.param(50, marks=pytest.mark.long)])
async def test_clients_that_vanish_leave_nothing_behind(times):
    """Cut off at random moments, without a goodbye: sessions return to zero and all slots are free
    again."""
    with serving("--mode", "exact", "--resume-s", 0) as (url, _):
        chance = random.Random(times)
        for _ in range(times):
            ws = await connect(url)
            await ws.send(
                session_update(vad={"type": "server_vad"}, binary=True, live_update_s=0.5)
            )
            await ws.send(pcm(speech(chance.uniform(0.5, 6), 1)))
            await asyncio.sleep(chance.uniform(0, 0.3))
            ws.transport.abort()
        await until_left(url)
        await test_streamed_after(url)


async def test_streamed_after(server):
    async with connect(server) as ws:
        await ws.send(session_update(binary=True))
        assert text_of(await describe(ws, pcm(speech(2, 1))))


@pytest.mark.parametrize("law", ["pcmu", "pcma"])
async def test_telephone_audio_is_heard_as_its_levels(server, law):
    """G.711 by both of its names, cut at any byte, says what the same levels say as PCM16; times
    count bytes of one sample each."""
    telephone = soxr.resample(0.5 * speech(3, 1), RATE_HZ, 8_000)
    raw = {"samplerate": 8_000, "format": "RAW", "subtype": {"pcmu": "ULAW", "pcma": "ALAW"}[law]}
    file = io.BytesIO()
    soundfile.write(file, telephone, **raw)
    data = file.getvalue()
    as_pcm16 = (from_g711(data, law) * 32_768).astype("<i2").tobytes()
    texts = []
    old = {"input_audio_format": {"pcmu": "g711_ulaw", "pcma": "g711_alaw"}[law]}
    new = {"audio": {"input": {"format": {"type": f"audio/{law}"}, "turn_detection": None}}}
    for session, sent in ((new, data), (old | NO_VAD, data), (None, as_pcm16)):
        async with connect(server) as ws:
            update = {"type": "realtime", "streamer": {"binary": True, "acks": True}}
            await ws.send(
                session_update(rate=8_000, binary=True)
                if session is None
                else json.dumps({"type": "session.update", "session": update | session})
            )
            told = (await until(ws, "session.updated"))[-1]
            # pipecat's types know audio/pcm alone
            STRICT["session.updated"].model_validate(told, strict=True)
            assert told["session"]["streamer"]["rate"] == 8_000
            kind = "audio/pcm" if session is None else f"audio/{law}"
            assert told["session"]["audio"]["input"]["format"]["type"] == kind
            texts.append(text_of(await describe(ws, sent, seed=len(texts))))
    assert texts[0]
    assert texts == texts[:1] * 3


def test_rates_are_what_clients_declare(server):
    async def main():
        async with connect(server) as ws:
            for rate in (8_000, 44_100, 48_000):
                await ws.send(session_update(rate=rate, binary=True))
                updated = (await until(ws, "session.updated"))[-1]
                assert updated["session"]["streamer"]["rate"] == rate
                validate(updated)
                samples = np.interp(
                    np.arange(0, 3 * rate) * RATE_HZ / rate, np.arange(3 * RATE_HZ), speech(3, 1)
                )
                assert text_of(await describe(ws, pcm(samples)))

    asyncio.run(main())


async def test_cancel_means_the_response_that_is_asked_for(server):
    """One that has not begun, by its id or without; not another one, and not what is over."""
    async with connect(server) as ws:
        await ws.send(session_update(binary=True))
        for message in (
            pcm(speech(3, 5)),
            COMMIT,
            ANSWER,
            '{"type": "response.cancel", "response_id": "resp_other"}',
            '{"type": "response.cancel"}',
        ):
            await ws.send(message)
        events = await until(ws, "response.done")
        assert [event["error"]["code"] for event in events if event["type"] == "error"] == [
            "response_cancel_not_active"
        ]
        assert events[-1]["response"]["status"] == "cancelled"
        await ws.send('{"type": "response.cancel"}')
        assert (await until(ws, "error"))[-1]["error"]["code"] == "response_cancel_not_active"
        assert (text := text_of(await describe(ws, pcm(speech(3, 5)))))
        assert len(text) > 8, "the next answer is whole"


async def test_a_turn_is_not_lost_to_other_options(server):
    """Audio of a turn that the client ends itself: an update that would drop it is refused. Voice
    activity's ends."""
    async with connect(server) as ws:
        await ws.send(session_update(binary=True))
        await until(ws, "session.updated")
        await ws.send(pcm(speech(3, 5)))
        await ws.send(session_update(rate=8_000, binary=True))
        assert (await until(ws, "error"))[-1]["error"]["code"] == "session_busy"
        await ws.send(COMMIT)
        await ws.send(session_update(rate=8_000, binary=True))
        assert (await until(ws, "error"))[-1]["error"]["code"] == "session_busy"
        await ws.send(ANSWER)
        assert text_of(await until(ws, "response.done"))
        vad = {"type": "server_vad"}
        await ws.send(session_update(vad=vad, binary=True))
        await until(ws, "session.updated")
        await ws.send(pcm(speech(4, 1)))
        await until(ws, "input_audio_buffer.speech_started")
        await ws.send(session_update(vad=vad, binary=True, live_update_s=2.0))
        assert text_of(await until(ws, "response.done"))
        await ws.send(pcm(speech(4, 1)))
        started = (await until(ws, "input_audio_buffer.speech_started"))[-1]
        assert started["audio_start_ms"] >= 7_000, "times count from the session's first sample"


async def test_a_long_turn_that_the_client_ends_is_answered_in_parts(server):
    async with connect(server) as ws:
        await ws.send(session_update(binary=True))
        for seed in (1, 2):
            await ws.send(pcm(speech(30, seed)))
            await ws.send(pcm(speech(30, seed)))
        await ws.send(COMMIT)
        await ws.send(ANSWER)
        first = await until(ws, "response.done")
        second = await until(ws, "response.done")
        assert text_of(first)
        assert text_of(second)


async def test_cleared_comes_after_what_is_cleared(server):
    async with connect(server) as ws:
        await ws.send(session_update(vad={"type": "server_vad"}, binary=True))
        await ws.send(pcm(speech(3, 1)))
        await ws.send('{"type": "input_audio_buffer.clear"}')
        await ws.send(session_update(binary=True))
        kinds = [event["type"] for event in await until(ws, "input_audio_buffer.cleared")]
        kinds += [event["type"] for event in await until(ws, "session.updated")]
        assert (
            "input_audio_buffer.speech_started"
            not in kinds[kinds.index("input_audio_buffer.cleared") :]
        )
