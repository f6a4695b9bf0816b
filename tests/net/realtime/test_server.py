"""A real `streamer serve` process: what is said over the socket is what `describe` says of the
file."""

import asyncio
import base64
import contextlib
import io
import itertools
import json
import random
import signal
import socket
import subprocess
import sys

import numpy as np
import openai
import pytest
import soundfile
import soxr
import websockets
from documents import block_of
from processes import ENVIRONMENT
from speech import RATE_HZ, SAMPLES, recording, speech
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

from streamer.core.audio.g711 import from_g711
from streamer.core.coach.baseline import Baseline

KINDS = ("nudge", "baseline", "coach")
NO_VAD = {"audio": {"input": {"turn_detection": None}}}


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
        known = (
            "; known are events, binary, acks, live_update_s, measures, attributes, profile, coach"
        )
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
            raw = json.loads(await asyncio.wait_for(connection.recv_bytes(), 30))
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


async def test_measures_come_where_they_are_asked_for(server):
    """Of the turn in hand, and in its description; not from a session that did not ask."""
    data = (speech(6, 2) * 32767).astype("<i2").tobytes()
    audio = {"input": {"format": {"type": "audio/pcm", "rate": 16_000}, "turn_detection": None}}
    for asked in (True, False):
        async with connect(server) as ws:
            extensions = {"events": True, "binary": True, "measures": asked}
            await ws.send(
                json.dumps(
                    {
                        "type": "session.update",
                        "session": {"type": "realtime", "audio": audio, "streamer": extensions},
                    }
                )
            )
            await until(ws, "session.updated")
            events = []
            await ws.send(data[:160_000])
            if asked:  # while the turn goes on
                events += await until(ws, "streamer.measures")
                assert events[-1]["last_s"].keys() == {"2", "7", "20"}
            await ws.send(data[160_000:])
            await ws.send(COMMIT)
            await ws.send(ANSWER)
            events += await until(ws, "streamer.description")
            kinds = [event["type"] for event in events]
            assert ("streamer.measures" in kinds) is asked
            found = events[-1]["description"]
            assert ("measures" in found) is ("confidence" in found) is asked
            if asked:
                assert 80 < found["measures"]["pitch_median_hz"] < 300
                assert found["measures"]["audio_s"] == pytest.approx(6, abs=0.02)


async def test_a_coach_speaks_where_it_is_asked_for(server):
    """Nudges, the baseline and what it hears, at most 5 times a second; nothing of it unasked, and
    then every event is valid under the official client's types."""
    quiet = np.zeros(24_000, np.float32)
    data = (np.concatenate([recording(2) * 0.05, quiet]) * 32767).astype("<i2").tobytes()
    audio = {"input": {"format": {"type": "audio/pcm", "rate": 16_000}, "turn_detection": None}}
    usual = Baseline(5, 120, 2.0, -20, 0.1, 30, 0.3, 0.04, -25, 2.5, 0.9, 0.1).as_json()
    for asked in ({"coach": {"baseline": usual, "silence_s": 1, "gap_s": 0}}, {}):
        async with connect(server) as ws:
            extensions = {"binary": True, **asked}
            update = {"type": "realtime", "audio": audio, "streamer": extensions}
            await ws.send(json.dumps({"type": "session.update", "session": update}))
            await ws.send(data)
            await ws.send(COMMIT)
            await ws.send(ANSWER)
            events = await until(ws, "response.done")
            wanted = {"too_soft", "long_silence"} if asked else set()
            while not wanted <= {event.get("kind") for event in events}:
                events.append(json.loads(await asyncio.wait_for(ws.recv(), 60)))
        ours = [event for event in events if event["type"].startswith("streamer.")]
        for event in events:
            if event not in ours:
                validate(event)
        if not asked:
            assert ours == []
            continue
        by_kind = {name: [e for e in ours if e["type"] == f"streamer.{name}"] for name in KINDS}
        assert [e["baseline"] for e in by_kind["baseline"]] == [usual]
        assert {"too_soft", "long_silence"} <= {e["kind"] for e in by_kind["nudge"]}
        times = [e["t_s"] for e in by_kind["coach"]]
        assert all(b - a >= 0.199 for a, b in itertools.pairwise(times))
        assert by_kind["coach"][-1]["last"]["level_dbfs"] < -40


@pytest.mark.parametrize(
    ("coach", "told"),
    [
        ({"fast_ration": 1.2}, "did you mean fast_ratio?"),
        ({"silence_s": -1}, "silence_s is -1; it may be 0 to 600"),
        ({"baseline": {}}, "no rate_syllables_per_s in the baseline"),
        ({"baseline": 3}, "baseline is 3, the wrong type"),
    ],
)
async def test_a_coach_that_cannot_be_is_refused(server, coach, told):
    async with connect(server) as ws:
        update = {"type": "realtime", "streamer": {"coach": coach}}
        await ws.send(json.dumps({"type": "session.update", "session": update}))
        (event,) = [e for e in await until(ws, "error") if e["type"] == "error"]
        assert event["error"]["code"] == "invalid_value"
        assert told in event["error"]["message"]


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


async def test_empty_commits_and_early_answers_are_errors(server):
    async with connect(server) as ws:
        await ws.send(session_update(binary=True))
        for message, code in (
            (
                '{"type": "input_audio_buffer.commit", "event_id": "mine"}',
                "input_audio_buffer_commit_empty",
            ),
            ('{"type": "response.create"}', "response_create_nothing_to_answer"),
            ('{"type": "response.cancel"}', "response_cancel_not_active"),
            (session_update(rate=4_000), "invalid_value"),
            (session_update(attributes=["tempo"]), "invalid_value"),
            (
                '{"type": "session.update", "session": {"audio": {"input": {"format": '
                '{"type": "audio/pcmu", "rate": 16000}}}}}',
                "invalid_value",
            ),
            ('{"type": "conversation.item.retrieve", "item_id": "x"}', "unsupported"),
        ):
            await ws.send(message)
            event = (await until(ws, "error"))[-1]
            assert event["error"]["code"] == code
        assert http(server, "/healthz")[0] == 200


def test_http_and_admission():
    with serving("--api-key", "secret", "--max-sessions", 1) as (url, _):
        assert http(url, "/healthz")[:2] == (200, "ok\n")
        assert http(url, "/readyz")[0] == 200
        assert "streamer_sessions 0.0" in http(url, "/metrics")[1]
        assert http(url, "/v1/other")[0] == 404
        assert http(url, "/v1/realtime")[0] == 401
        assert http(url, "/v1/realtime", {"Authorization": "Bearer secreT"})[0] == 401
        good = {"Authorization": "Bearer secret"}
        assert http(url, "/v1/realtime", good | {"Origin": "http://evil.example"})[0] == 403

        async def main():
            protocols = ["realtime", "openai-insecure-api-key.secret"]
            async with connect(url, subprotocols=protocols) as ws:  # as a browser does
                assert ws.subprotocol == "realtime"
                status, text, headers = http(url, "/v1/realtime", good)
                assert (status, headers["Retry-After"]) == (503, "5")
                assert "taken" in text
            await until_left(url)
            async with connect(url, additional_headers=good) as ws:
                assert ws.subprotocol is None

        asyncio.run(main())
        assert 'streamer_refusals_total{status="401"} 2.0' in http(url, "/metrics")[1]


def test_a_turn_in_flight_is_answered_before_the_server_goes():
    """SIGTERM: not ready, nobody new, the turn gets its sentence, close 1012, exit 0."""
    with serving() as (url, process):

        async def main():
            async with connect(url) as ws:
                await ws.send(session_update(vad={"type": "server_vad"}, binary=True))
                await until(ws, "session.updated")
                await ws.send(pcm(speech(4, 1)))
                await until(ws, "input_audio_buffer.speech_started")
                process.send_signal(signal.SIGTERM)
                events = await until(ws, "response.done")
                with contextlib.suppress(websockets.ConnectionClosed):
                    async for _ in ws:
                        pass
                assert ws.close_code == 1012
                return text_of(events)

        assert asyncio.run(main())
        assert process.wait(10) == 0


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--host", "0.0.0.0"], "set --api-key"),
        (["--cert", "x.pem"], "needs both"),
        (["--cert", "x.pem", "--key", "y.pem"], "cannot be used"),
        (["--max-sessions", "0"], "1 to 1024"),
        (["--port", "99999"], "0 to 65535"),
        (["--mode", "exact", "--cloud", "none"], "needs a cloud"),
        (["--pipeline", "nowhere.toml"], "cannot be read"),
        (["--edge", "./nowhere"], "no such model directory"),
    ],
)
def test_what_cannot_be_served_is_told_in_one_line(options, told):
    command = [sys.executable, "-m", "streamer", "serve", "--port", "0", *options]
    done = subprocess.run(
        command, capture_output=True, text=True, env=ENVIRONMENT, timeout=60, check=False
    )
    assert done.returncode in (1, 2)
    (line,) = complaints(done.stderr)
    assert told in line


def complaints(stderr):
    """Its lines, but for the one that says what is being loaded."""
    return [line for line in stderr.splitlines() if not line.startswith("loading ")]


def test_a_port_that_is_taken_is_told():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        command = [sys.executable, "-m", "streamer", "serve", "--port", str(taken.getsockname()[1])]
        done = subprocess.run(
            command, capture_output=True, text=True, env=ENVIRONMENT, timeout=60, check=False
        )
    (line,) = complaints(done.stderr)
    assert done.returncode == 1
    assert "choose another --port" in line


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
