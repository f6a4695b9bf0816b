"""What other programs' clients expect of the protocol, in both of its generations, against scripted
sessions."""

import json

import numpy as np
import pytest
from fake_session import opening
from speech import speech
from websockets.asyncio.client import connect
from wire import ANSWER, COMMIT, pcm, running, session_update, text_of, until, validate

MINE = {"client_event_id": "mine"}
CREATE = json.dumps({"type": "response.create", "response": {"metadata": MINE}})
BETA = {"OpenAI-Beta": "realtime=v1"}


def update(**session):
    return json.dumps({"type": "session.update", "session": session})


def item(kind="input_text", **more):
    content = [{"type": kind, "text": "hello"} if kind == "input_text" else {"type": kind}]
    made = {"type": "message", "role": "user", "content": content, **more}
    return json.dumps({"type": "conversation.item.create", "item": made, "event_id": "made"})


async def exchange(ws, *messages, end="response.done"):
    """All events up to `end`, each valid for strict clients."""
    for message in messages:
        await ws.send(message)
    events = await until(ws, end)
    for event in events:
        validate(event)
    return events


async def test_metadata_of_a_request_are_those_of_its_response():
    async with running(opening(waits=True)) as (url, _), connect(url) as ws:
        events = await exchange(ws, session_update(binary=True), bytes(320), COMMIT, CREATE)
        created, done = (e["response"] for e in events if "response" in e)
        assert created["metadata"] == done["metadata"] == MINE
        assert text_of(events) == "320"
        events = await exchange(ws, bytes(64), COMMIT, ANSWER)
        assert [e["response"]["metadata"] for e in events if "response" in e] == [None, None]


async def test_each_item_names_the_one_before():
    async with running(opening()) as (url, _), connect(url) as ws:
        events = await exchange(ws, session_update(binary=True), bytes(320), COMMIT, ANSWER)
        events += await exchange(ws, item(id="text"), bytes(320), COMMIT, ANSWER)
        added = [e for e in events if e["type"] == "conversation.item.added"]
        names = [e["item"]["id"] for e in added]
        assert [e["previous_item_id"] for e in added] == [None, *names[:-1]]
        assert [e["item"]["role"] for e in added] == [
            "user",
            "assistant",
            "user",
            "user",
            "assistant",
        ]
        assert names[2] == "text"
        done = {
            e["item"]["id"]: e["previous_item_id"]
            for e in events
            if e["type"] == "conversation.item.done"
        }
        assert done == dict(zip(names, [None, *names[:-1]], strict=True))
        committed = [e for e in events if e["type"] == "input_audio_buffer.committed"]
        assert [e["previous_item_id"] for e in committed] == [None, "text"]


async def test_where_there_is_nothing_to_answer_an_empty_response_says_so():
    """The receive loops of some clients end with any error."""
    async with running(opening()) as (url, _), connect(url) as ws:
        events = await exchange(ws, session_update(binary=True), item(), CREATE)
        assert [e["type"] for e in events[-4:]] == [
            "conversation.item.added",
            "conversation.item.done",
            "response.created",
            "response.done",
        ]
        done = events[-1]["response"]
        assert (done["status"], done["output"], done["metadata"]) == ("completed", [], MINE)


async def test_a_forgotten_commit_is_told_by_the_response():
    async with running(opening()) as (url, _), connect(url) as ws:
        events = await exchange(ws, session_update(binary=True), bytes(320), CREATE)
        done = events[-1]["response"]
        assert (done["status"], done["metadata"]) == ("failed", MINE)
        assert done["status_details"]["error"]["code"] == "input_audio_not_committed"
        assert "commit it" in done["status_details"]["error"]["message"]
        assert text_of(await exchange(ws, COMMIT, ANSWER)) == "320", "it can still be mended"


async def test_an_item_of_audio_is_refused():
    async with running(opening()) as (url, _), connect(url) as ws:
        told = (await exchange(ws, item("input_audio"), end="error"))[-1]["error"]
        assert (told["code"], told["event_id"]) == ("unsupported", "made")
        assert "append audio, and commit it" in told["message"]


async def test_a_cancel_of_nothing_begins_as_clients_match_it():
    async with running(opening()) as (url, _), connect(url) as ws:
        told = (await exchange(ws, '{"type": "response.cancel"}', end="error"))[-1]["error"]
        assert told["message"].startswith("Cancellation failed: ")
        assert told["code"] == "response_cancel_not_active"


async def test_a_commit_after_the_answer_is_empty(server):
    """Voice activity ended the turn, and it is answered; only its silence is left."""
    async with connect(server) as ws:
        await ws.send(session_update(vad={"type": "server_vad"}, binary=True))
        await ws.send(pcm(np.concatenate([speech(3, 1), np.zeros(24_000, np.float32)])))
        assert text_of(await exchange(ws))
        told = (await exchange(ws, COMMIT, end="error"))[-1]["error"]
        assert told["code"] == "input_audio_buffer_commit_empty"
        done = (await exchange(ws, ANSWER))[-1]["response"]
        assert (done["status"], done["output"]) == ("completed", [])


FLAT = [
    ({"turn_detection": None}, ("turn_detection", None)),
    ({"turn_detection": {"type": "server_vad", "threshold": 0.7}}, ("threshold", 0.7)),
    (
        {"turn_detection": {"type": "semantic_vad", "silence_duration_ms": 900}},
        ("silence_duration_ms", 900),
    ),
    ({"input_audio_format": "g711_ulaw"}, ("format", "audio/pcmu")),
    ({"input_audio_format": None}, ("format", "audio/pcm")),
    ({"audio": {"input": {"format": None}}}, ("format", "audio/pcm")),
    ({"audio": {"input": {"turn_detection": None}}}, ("turn_detection", None)),
]


@pytest.mark.parametrize(("session", "wanted"), FLAT)
async def test_a_field_of_either_generation_is_obeyed(session, wanted):
    async with running(opening()) as (url, _), connect(url) as ws:
        await ws.send(update(input_audio_format="g711_alaw"))
        await until(ws, "session.updated")
        await ws.send(update(**session))
        heard = (await until(ws, "session.updated"))[-1]["session"]["audio"]["input"]
        detection = heard["turn_detection"]
        found = {
            "format": heard["format"]["type"],
            "turn_detection": detection,
            **(detection or {}),
        }
        assert found[wanted[0]] == wanted[1]


# every field of a session in either generation, and what becomes of it
INERT = {
    "instructions": "be kind",
    "audio.output": {"voice": "marin"},
    "audio.input.noise_reduction": {"type": "near_field"},
    "audio.input.transcription": {"model": "whisper-1"},
    "audio.input.turn_detection.eagerness": "high",
    "audio.input.turn_detection.idle_timeout_ms": 5_000,
    "tools": [{"type": "function", "name": "f"}],
    "tool_choice": "auto",
    "max_output_tokens": 100,
    "truncation": "auto",
    "tracing": "auto",
    "prompt": {"id": "p"},
    "include": ["item.input_audio_transcription.logprobs"],
    "reasoning": {"effort": "low"},
    "parallel_tool_calls": True,
    "voice": "alloy",
    "output_audio_format": "pcm16",
    "input_audio_transcription": {"model": "whisper-1"},
    "input_audio_noise_reduction": {"type": "near_field"},
    "temperature": 0.8,
    "max_response_output_tokens": "inf",
    "speed": 1.5,
}


@pytest.mark.parametrize("name", INERT)
async def test_a_field_that_changes_nothing_is_named(name):
    *path, last = name.split(".")
    session = inner = {"type": "realtime"}
    for part in path:
        inner[part] = {}
        inner = inner[part]
    inner[last] = INERT[name]
    async with running(opening()) as (url, _), connect(url) as ws:
        found = (await exchange(ws, update(**session), end="session.updated"))[-1]["session"]
        assert found["streamer"]["ignored"] == [name]
        await exchange(ws, update(**found), end="session.updated")  # as it came


@pytest.mark.parametrize(
    "session",
    [
        {"turn_detection": {"type": "none"}},
        {"turn_detection": "server_vad"},
        {"input_audio_format": "mp3"},
        {"audio": None},
        {"audio": {"input": None}},
        {"audio": {"input": {"format": {"type": "audio/opus"}}}},
        {"audio": {"input": {"format": {"type": "audio/pcm", "rate": "24000"}}}},
        {"type": "translation"},
        {"streamer": None},
    ],
)
async def test_a_value_that_cannot_take_effect_is_refused(session):
    async with running(opening()) as (url, _), connect(url) as ws:
        told = (await exchange(ws, update(**session), end="error"))[-1]["error"]
        assert told["code"] in ("invalid_event", "invalid_value")


async def test_fields_of_a_request_that_change_nothing_are_named():
    asked = {"instructions": "be kind", "metadata": MINE, "output_modalities": ["text"]}
    async with running(opening(waits=True)) as (url, _), connect(url) as ws:
        create = json.dumps({"type": "response.create", "response": asked})
        events = await exchange(ws, session_update(binary=True), bytes(320), COMMIT, create)
        for response in (e["response"] for e in events if "response" in e):
            assert response["streamer"] == {"ignored": ["instructions"]}


async def beta_events(url, **how):
    async with connect(url, **how) as ws:
        for message in (update(turn_detection=None), update(streamer={"binary": True}), bytes(320)):
            await ws.send(message)
        await ws.send(COMMIT)
        await ws.send(ANSWER)
        return await until(ws, "response.done")


@pytest.mark.parametrize(
    "how",
    [
        {"additional_headers": BETA},
        {"subprotocols": ["realtime", "openai-insecure-api-key.x", "openai-beta.realtime-v1"]},
    ],
    ids=["header", "subprotocol"],
)
async def test_clients_of_the_beta_hear_its_names(how):
    async with running(opening()) as (url, _):
        events = await beta_events(url, **how)
    kinds = [event["type"] for event in events]
    assert kinds == [
        "session.created",
        "session.updated",
        "session.updated",
        "input_audio_buffer.committed",
        "conversation.item.created",
        "response.created",
        "response.output_item.added",
        "conversation.item.created",
        "response.content_part.added",
        *["response.text.delta"] * 3,
        "response.text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.done",
    ]
    session = events[1]["session"]
    assert (session["turn_detection"], session["input_audio_format"]) == (None, "pcm16")
    assert (session["modalities"], "audio" in session) == (["text"], False)
    response = events[-1]["response"]
    assert response["output"][0]["content"] == [{"type": "text", "text": "320"}]
    assert (response["modalities"], "output_modalities" in response) == (["text"], False)
