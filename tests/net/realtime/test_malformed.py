"""Messages and clients that are wrong: an error each, and the session goes on."""

from __future__ import annotations

import asyncio
import base64
import json
import random

import pytest
import soundfile
import websockets
from speech import SAMPLES
from websockets.asyncio.client import connect
from wire import describe, http, serving, session_update, text_of, until, validate

MALFORMED = [
    "",
    "{",
    "[]",
    "null",
    '"text"',
    "{}",
    '{"type": 3}',
    '{"type": "no.such.event"}',
    '{"type": "input_audio_buffer.append", "audio": "***"}',
    '{"type": "input_audio_buffer.append", "audio": NaN}',
    '{"type": "session.update", "session": {"audio": {"input": {"format": {"rate": 1e999}}}}}',
    "[" * 100_000,
    '{"type": "session.update", "event_id": ' + "9" * 5_000 + "}",
    "\ud800".encode("utf-8", "surrogatepass"),
]


async def test_malformed_messages_are_errors_and_the_session_goes_on(server, wanted):
    async with connect(server) as ws:
        await until(ws, "session.created")
        for message in MALFORMED:
            await ws.send(message)
            (event,) = await until(ws, "error")
            validate(event)
            assert len(event["error"]["message"]) < 300
        await ws.send(session_update(binary=True))
        events = await describe(ws, soundfile.read(SAMPLES[0], dtype="int16")[0].tobytes())
        assert text_of(events) == wanted[SAMPLES[0].name]["text"]


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        ({"type": "session.update", "event_id": "e1", "session": {"streamer": {"coach": 1}}}, "e1"),
        ({"type": "no.such.event", "event_id": "e2"}, "e2"),
        ({"type": "response.create", "event_id": 3}, None),
        (["e4"], None),
        ({"type": "input_audio_buffer.append", "event_id": "e5"}, "e5"),
    ],
)
async def test_an_error_quotes_the_event_that_it_is_about(server, message, cause):
    async with connect(server) as ws:
        await until(ws, "session.created")
        await ws.send(json.dumps(message))
        *_, event = await until(ws, "error")
        assert event["error"]["code"] == "invalid_event"
        assert event["error"]["event_id"] == cause


def memory_mib(process, line="VmRSS"):
    with open(f"/proc/{process.pid}/status") as status:
        return next(int(row.split()[1]) / 1024 for row in status if row.startswith(line))


def update_with(**extensions):
    return json.dumps({"type": "session.update", "session": {"streamer": extensions}})


LARGE = "x" * 900_000
QUOTED = {
    "a coach": update_with(coach={"baseline": LARGE}),
    "a coach's baseline": update_with(coach={"baseline": {"form": LARGE}}),
    "a deep coach": update_with(coach={"baseline": [[]] * 300_000}),
    "a name": update_with(**{LARGE: 1}),
    "an attribute": update_with(attributes=[LARGE]),
    "a type": json.dumps({"type": LARGE}),
    "an event's id": json.dumps({"type": "response.create", "event_id": LARGE}),
    "an event beyond a MiB": update_with(coach={"baseline": LARGE * 4}),
}


@pytest.mark.parametrize("what", QUOTED)
async def test_no_error_is_larger_for_what_it_quotes(server, what):
    async with connect(server) as ws:
        await ws.send(QUOTED[what])
        event = (await until(ws, "error"))[-1]
        assert len(json.dumps(event)) < 1_000
        validate(event)


async def test_wrong_values_do_not_fill_the_memory():
    """44 of them took 2,300 MB, of which 821 stayed."""
    with serving("--mode", "edge", "--resume-s", 0) as (url, process):
        async with connect(url) as ws:
            await ws.send(update_with(coach={"baseline": ""}))
            await until(ws, "error")
            before, peak = memory_mib(process), memory_mib(process, "VmHWM")
            for _ in range(22):
                for message in (QUOTED["a coach"], QUOTED["an event beyond a MiB"]):
                    await ws.send(message)
                    await until(ws, "error")
        assert memory_mib(process, "VmHWM") - peak < 150
        assert memory_mib(process) - before < 60


def random_event(chance):
    """A client event, right or wrong, in the shape a fuzzer would draw."""
    junk = [None, True, -1, 3.5, "", "x" * 50, [], {}, {"a": [1]}, 10**20]
    fields = {
        "session.update": lambda: {
            "session": chance.choice(
                [
                    {
                        "audio": {
                            "input": {
                                "format": {
                                    "type": "audio/pcm",
                                    "rate": chance.choice([0, 8_000, 24_000, 48_000, 10**9]),
                                }
                            }
                        }
                    },
                    {
                        "audio": {
                            "input": {
                                "turn_detection": chance.choice(
                                    [
                                        None,
                                        {"type": "server_vad", "threshold": chance.uniform(-1, 2)},
                                    ]
                                )
                            }
                        }
                    },
                    {"streamer": {"live_update_s": chance.choice([None, 0, 0.5, -3])}},
                    chance.choice(junk),
                ]
            )
        },
        "input_audio_buffer.append": lambda: {
            "audio": base64.b64encode(chance.randbytes(chance.randrange(2_000))).decode()
        },
        "input_audio_buffer.commit": dict,
        "input_audio_buffer.clear": dict,
        "response.create": dict,
        "response.cancel": dict,
        "conversation.item.create": lambda: {"item": chance.choice(junk)},
        "conversation.item.delete": lambda: {"item_id": "x"},
        "nonsense": dict,
    }
    kind = chance.choice(list(fields))
    event = {"type": kind, **fields[kind]()}
    if chance.random() < 0.1:
        event[chance.choice([*event, "event_id"])] = chance.choice(junk)
    return json.dumps(event)


@pytest.mark.parametrize("n", [400, pytest.param(5_000, marks=pytest.mark.long)])
async def test_random_events_never_end_anything(server, wanted, n):
    """Whatever comes in whatever order: errors, never a close; a healthy session beside it is not
    touched."""
    chance = random.Random(n)
    async with connect(server) as fuzzed, connect(server) as healthy:
        await healthy.send(session_update(binary=True))

        # judged afterwards: who reads slowly is cut off, and thousands of strict checks are
        # slow
        async def drain():
            async for message in fuzzed:
                said.append(message)

        said = []
        draining = asyncio.create_task(drain())
        for i in range(n):
            await fuzzed.send(random_event(chance))
            if i % (n // 4) == n // 8:
                events = await describe(
                    healthy, soundfile.read(SAMPLES[1], dtype="int16")[0].tobytes(), i
                )
                assert text_of(events) == wanted[SAMPLES[1].name]["text"]
        await (await fuzzed.ping())
        assert fuzzed.state is websockets.State.OPEN
        draining.cancel()
    assert len(said) > n / 4
    for message in said:
        validate(json.loads(message))


async def test_empty_commits_and_early_answers_are_errors(server):
    async with connect(server) as ws:
        await ws.send(session_update(binary=True))
        for message, code in (
            (
                '{"type": "input_audio_buffer.commit", "event_id": "mine"}',
                "input_audio_buffer_commit_empty",
            ),
            ('{"type": "response.cancel"}', "response_cancel_not_active"),
            (session_update(rate=4_000), "invalid_value"),
            (session_update(attributes=["tempo"]), "invalid_value"),
            (session_update(language="en"), "invalid_value"),
            (
                '{"type": "session.update", "session": {"audio": {"input": {"format": '
                '{"type": "audio/pcmu", "rate": 16000}}}}}',
                "invalid_value",
            ),
            (
                '{"type": "conversation.item.retrieve", "item_id": "x"}',
                "item_retrieve_invalid_item_id",
            ),
        ):
            await ws.send(message)
            event = (await until(ws, "error"))[-1]
            assert event["error"]["code"] == code
        assert http(server, "/healthz")[0] == 200
