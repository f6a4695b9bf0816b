"""Clients as people write them: the docs' examples, the official library, transcription."""

from __future__ import annotations

import asyncio
import base64
import json

import numpy as np
import openai
import pytest
import soundfile
from documents import block_of
from patience import PATIENCE_S
from speech import SAMPLES, speech
from websockets.asyncio.client import connect
from wire import describe, pcm, until, validate


# the client's own, with websockets 17
@pytest.mark.filterwarnings("ignore:connect:DeprecationWarning")
def test_the_page_s_example_runs_as_it_stands(server, wanted, capsys, tmp_path):
    """The official client, sync and unmodified; only the address is another. Any rate that is
    taken, any channels; for one that is not it says why, and no sentence."""
    code = block_of("docs/realtime.md", "import base64, openai")
    address = server.replace("ws", "http", 1).removesuffix("/realtime")
    assert "http://127.0.0.1:8765/v1" in code
    code = code.replace("http://127.0.0.1:8765/v1", address)
    exec(code.replace("clip.wav", str(SAMPLES[1])), {})
    assert capsys.readouterr().out == wanted[SAMPLES[1].name]["text"]
    samples, rate = soundfile.read(SAMPLES[1], dtype="int16")
    soundfile.write(tmp_path / "stereo.wav", np.stack([samples, samples], 1), rate)
    exec(code.replace("clip.wav", str(tmp_path / "stereo.wav")), {})
    assert capsys.readouterr().out == wanted[SAMPLES[1].name]["text"]
    soundfile.write(tmp_path / "fast.wav", samples, 96_000)
    with pytest.raises(SystemExit, match=r"audio rate 96000 is outside 8000\.\.48000 Hz"):
        exec(code.replace("clip.wav", str(tmp_path / "fast.wav")), {})
    assert capsys.readouterr().out == ""


@pytest.mark.filterwarnings("ignore:connect:DeprecationWarning")
def test_the_readme_s_client_connects(server, capsys):
    code = block_of("README.md", "import openai\n")
    assert "http://127.0.0.1:8765/v1" in code
    address = server.replace("ws", "http", 1).removesuffix("/realtime")
    exec(code.replace("http://127.0.0.1:8765/v1", address), {})
    assert capsys.readouterr().out == "session.created\n"


async def test_the_page_s_extensions_are_those_that_there_are(server):
    """Its message, as it stands; the description comes after response.done; an unknown name is
    refused in one line."""
    message = block_of("docs/realtime.md", '{"type": "session.update"').strip()
    async with connect(server) as ws:
        await ws.send(message)
        events = await until(ws, "session.updated")
        asked = json.loads(message)["session"]["streamer"]
        assert asked.items() <= events[-1]["session"]["streamer"].items()
        await ws.send(message.replace('"events"', '"evnts"'))
        (event,) = await until(ws, "error")
        assert "unknown field `evnts`" in event["error"]["message"]
        known = "; known are events, binary, acks, live_update_s, measures, attributes, profile, language, coach"
        assert event["error"]["message"].endswith(known)
        session = events[-1]["session"]
        await ws.send(json.dumps({"type": "session.update", "session": session}))  # as it came
        assert (await until(ws, "session.updated"))[-1]["session"] == session
        audio = {"input": {"format": {"type": "audio/pcm", "rate": 16_000}, "turn_detection": None}}
        await ws.send(
            json.dumps({"type": "session.update", "session": {"type": "realtime", "audio": audio}})
        )
        await describe(ws, soundfile.read(SAMPLES[0], dtype="int16")[0].tobytes())
        found = json.loads(await ws.recv())
        assert found["type"] == "streamer.description"
        assert (found["description"]["warning"], found["description"]["is_cut"]) == (None, False)


async def test_models_are_listed(server):
    """Clients that let people choose one ask first."""
    client = openai.AsyncOpenAI(
        api_key="none", base_url=server.replace("ws", "http", 1).removesuffix("/realtime")
    )
    async with client:
        assert [model.id async for model in client.models.list()] == ["streamer"]
        assert (await client.models.retrieve("streamer")).owned_by == "streamer"
        with pytest.raises(openai.NotFoundError):
            await client.models.retrieve("another")


async def test_the_official_async_client_with_voice_activity_and_strict_types(server):
    """Every event is valid under the client's own types; voice activity commits and answers."""
    client = openai.AsyncOpenAI(
        api_key="none", base_url=server.replace("ws", "http", 1).removesuffix("/realtime")
    )
    quiet = np.zeros(24_000, np.float32)
    data = pcm(np.concatenate([quiet, np.repeat(speech(3, 1), 3)[::2], quiet, quiet]))
    kinds = []
    async with client.realtime.connect(model="streamer") as connection:
        await connection.session.update(
            session={
                "type": "realtime",
                "audio": {"input": {"turn_detection": {"type": "server_vad"}}},
            }
        )
        for at in range(0, len(data), 9_600):
            await connection.input_audio_buffer.append(
                audio=base64.b64encode(data[at : at + 9_600]).decode()
            )
        while "response.done" not in kinds:
            raw = json.loads(await asyncio.wait_for(connection.recv_bytes(), PATIENCE_S))
            kinds.append(raw["type"])
            validate(raw)
    assert kinds[:2] == ["session.created", "session.updated"]
    order = [
        "input_audio_buffer.speech_started",
        "input_audio_buffer.speech_stopped",
        "input_audio_buffer.committed",
        "conversation.item.added",
        "conversation.item.done",
        "response.created",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.done",
    ]
    places = [kinds.index(kind) for kind in order]
    assert places == sorted(places)


async def test_a_transcription_session(server, wanted):
    async with connect(server + "?intent=transcription") as ws:
        audio = {"input": {"format": {"type": "audio/pcm", "rate": 16_000}, "turn_detection": None}}
        await ws.send(
            json.dumps(
                {
                    "type": "session.update",
                    "session": {
                        "type": "transcription",
                        "audio": audio,
                        "streamer": {"binary": True},
                    },
                }
            )
        )
        await ws.send(soundfile.read(SAMPLES[0], dtype="int16")[0].tobytes())
        await ws.send('{"type": "input_audio_buffer.commit"}')
        events = await until(ws, "conversation.item.input_audio_transcription.completed")
    for event in events:
        validate(event)
    assert events[-1]["transcript"] == wanted[SAMPLES[0].name]["text"]
