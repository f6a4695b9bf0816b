"""A real `streamer serve` process: its sentences over the socket are those of `describe`. Clients of
other programs, unmodified, in environments of their own with their own versions.
"""

import asyncio
import base64
import io
import json
import os
import re
import shutil
import subprocess
import venv

import numpy as np
import openai
import pytest
import soundfile
import soxr
import tiny
import wire
from places import ROOT, SUPPORT, block_of
from processes import PATIENCE_S, ended
from processes import until as until_true
from speech import RATE_HZ, SAMPLES, pcm, speech
from websockets.asyncio.client import connect

from streamer.core.attributes import ATTRIBUTES
from streamer.core.audio.pcm import from_g711

VAD = {"type": "server_vad"}
PAGE = "docs/realtime.md"
ADDRESS = "http://127.0.0.1:8765/v1"
# the client's own, with websockets 17
own_warning = pytest.mark.filterwarnings("ignore:connect:DeprecationWarning")


def http_base(server):
    return server.replace("ws", "http", 1).removesuffix("/realtime")


def samples_of(file):
    return soundfile.read(file, dtype="int16")[0].tobytes()


async def test_streamed_over_the_socket_equals_described(server, wanted):
    """Id for id, in any pieces, turn after turn; with ids, verified flags and attributes.
    Prometheus hears of first texts, of times between deltas, and of the loop."""

    def counts():
        told = wire.http(server, "/metrics")[1]
        names = "ttft", "itl", "loop_lag"
        return [
            float(re.search(rf"^streamer_{n}_seconds_count (.+)", told, re.M)[1]) for n in names
        ]

    before, num_deltas = counts(), 0
    example = block_of(PAGE, '{"type": "session.update"')
    async with connect(server) as ws:
        await ws.send(wire.session_update())
        await ws.send(example)
        for _ in range(2):
            told = (await wire.until(ws, "session.updated"))[-1]["session"]["streamer"]
        assert json.loads(example)["session"]["streamer"].items() <= told.items()
        for seed, file in enumerate(SAMPLES):
            events = await wire.describe(ws, samples_of(file), seed)
            row = wanted[file.name]
            assert wire.text_of(events) == row["text"]
            deltas = [event for event in events if event["type"] == "streamer.delta"]
            num_deltas += len(deltas)
            assert [i for delta in deltas for i in delta["ids"]] == row["ids"]
            assert all(delta["verified"] for delta in deltas)
            found = json.loads(await ws.recv())["description"]
            assert found["attributes"] == row["attributes"]
            assert (found["warning"], found["is_cut"]) == (row["warning"], False)
            assert not {"measures", "confidence"} & found.keys(), "they need measures"
    firsts, between, _ = np.subtract(counts(), before)
    assert (firsts, between) == (len(SAMPLES), num_deltas - len(SAMPLES))
    await until_true(lambda: counts()[2] > before[2])


@pytest.mark.parametrize("law", ["pcmu", "pcma"])
async def test_telephone_audio_is_heard_as_its_levels(server, law):
    telephone = soxr.resample(0.5 * speech(3, 1), RATE_HZ, 8_000)
    raw = {"samplerate": 8_000, "format": "RAW", "subtype": {"pcmu": "ULAW", "pcma": "ALAW"}[law]}
    file = io.BytesIO()
    soundfile.write(file, telephone, **raw)
    data = file.getvalue()
    as_pcm16 = (from_g711(data, law) * 32_768).astype("<i2").tobytes()
    texts = []
    for kind, sent in ((law, data), ("pcm", as_pcm16)):
        async with connect(server) as ws:
            heard = {"format": {"type": f"audio/{kind}", "rate": 8_000}, "turn_detection": None}
            update = {"audio": {"input": heard}, "streamer": {"binary": True}}
            await ws.send(json.dumps({"type": "session.update", "session": update}))
            told = (await wire.until(ws, "session.updated"))[-1]
            wire.validate(told)
            assert told["session"]["streamer"]["rate"] == 8_000
            assert told["session"]["audio"]["input"]["format"]["type"] == f"audio/{kind}"
            texts.append(wire.text_of(await wire.describe(ws, sent, seed=len(texts))))
    assert texts[0]
    assert texts[0] == texts[1]


async def test_models_are_listed(server):
    async with openai.AsyncOpenAI(api_key="none", base_url=http_base(server)) as client:
        assert [model.id async for model in client.models.list()] == ["streamer"]
        assert (await client.models.retrieve("streamer")).owned_by == "streamer"
        with pytest.raises(openai.NotFoundError):
            await client.models.retrieve("another")


def test_the_page_s_files_are_served_with_their_policy(server):
    for _ in range(3):
        _, body, headers = wire.http(server, "/")
        assert headers.get_all("Server") == ["streamer"]
        (policy,) = headers.get_all("Content-Security-Policy")
        assert policy.startswith("default-src 'none'; script-src 'self';")
        assert "<title>" in body
    levels = json.loads(wire.http(server, "/server.json")[1])["levels"]["rate"]
    assert [level["zh"] for level in levels] == ["很慢", "偏慢", "适中", "偏快", "很快"]
    found = [wire.http(server, path)[0] for path in ("/app.js", "/../server.py", "/server.py")]
    assert found == [200, 404, 404]


async def test_voice_activity_answers_the_official_client_with_strict_types(server):
    """Valid events in order; then a commit of silence is an error, a request empty."""
    client = openai.AsyncOpenAI(api_key="none", base_url=http_base(server))
    quiet = np.zeros(24_000, np.float32)
    data = pcm(np.concatenate([quiet, np.repeat(speech(3, 1), 3)[::2], quiet, quiet]))
    kinds = []
    async with client.realtime.connect(model="streamer") as connection:

        async def receive(end):
            while kinds[-1:] != [end]:
                raw = json.loads(await asyncio.wait_for(connection.recv_bytes(), PATIENCE_S))
                kinds.append(raw["type"])
                wire.validate(raw)
            return raw

        audio = {"input": {"turn_detection": VAD}}
        await connection.session.update(session={"type": "realtime", "audio": audio})
        for at in range(0, len(data), 9_600):
            piece = base64.b64encode(data[at : at + 9_600]).decode()
            await connection.input_audio_buffer.append(audio=piece)
        await receive("response.done")
        order = [
            *("session.created", "session.updated"),
            *("input_audio_buffer.speech_started", "input_audio_buffer.speech_stopped"),
            *("input_audio_buffer.committed", "response.created", "response.done"),
        ]
        places = [kinds.index(kind) for kind in order]
        assert places == sorted(places)
        await connection.input_audio_buffer.commit()
        assert (await receive("error"))["error"]["code"] == "input_audio_buffer_commit_empty"
        await connection.response.create()
        assert (await receive("response.done"))["response"]["output"] == []


async def test_an_update_ends_the_turn_of_voice_activity(server):
    async with connect(server) as ws:
        await ws.send(wire.session_update(vad=VAD, binary=True))
        await ws.send(pcm(speech(4, 1)))
        await wire.until(ws, "input_audio_buffer.speech_started")
        await ws.send(wire.session_update(vad=VAD, binary=True, live_update_s=2.0))
        assert wire.text_of(await wire.until(ws, "response.done"))
        await ws.send(pcm(speech(4, 1)))
        started = (await wire.until(ws, "input_audio_buffer.speech_started"))[-1]
        assert started["audio_start_ms"] >= 3_700
        await ws.send('{"type": "input_audio_buffer.clear"}')
        await wire.until(ws, "input_audio_buffer.cleared")
        await ws.send(wire.session_update(binary=True))
        kinds = [event["type"] for event in await wire.until(ws, "session.updated")]
        assert kinds == ["session.updated"]


async def test_measures_and_live_updates_come_where_they_are_asked_for(server):
    data = pcm(speech(6, 2))
    async with connect(server) as ws:
        await ws.send(
            wire.session_update(events=True, binary=True, measures=True, live_update_s=1.0)
        )
        await ws.send(data[:160_000])
        events = []
        for kind in ("streamer.measures", "streamer.live_update"):  # while the turn goes on
            if kind not in {event["type"] for event in events}:
                events += await wire.until(ws, kind)
        for message in (data[160_000:], wire.COMMIT, wire.ANSWER):
            await ws.send(message)
        events += await wire.until(ws, "streamer.description")
    by_kind = {event["type"]: event for event in events}
    told, found = by_kind["streamer.live_update"], events[-1]["description"]
    assert told["text"]
    assert told["attributes"].keys() == set(ATTRIBUTES)
    assert None not in told["attributes"].values()
    assert told["heard_s"] <= 6
    assert by_kind["streamer.measures"]["last_s"].keys() == {"2", "7", "20"}
    assert 80 < found["measures"]["pitch_median_hz"] < 300
    assert found["measures"]["audio_s"] == pytest.approx(6, abs=0.02)
    assert "confidence" in found


async def test_the_language_is_the_session_s_and_changes_between_turns(tmp_path):
    edge, cloud = tiny.save_bilingual(tmp_path)
    options = ("--mode", "exact", "--edge", edge, "--cloud", cloud, "--language", "en")
    with wire.serving(*options) as (url, _):
        told = json.loads(wire.http(url, "/server.json")[1])
        assert told["languages"] == ["en", "zh"]
        assert told["levels"]["rate"][0] == {"zh": "很慢", "en": "very slow"}
        async with connect(url) as ws:
            (created,) = await wire.until(ws, "session.created")
            ours = created["session"]["streamer"]
            assert (ours["language"], ours["languages"]) == ("en", ["en", "zh"])
            for asked in ({}, {"language": "zh"}, {"language": None}):
                await ws.send(wire.session_update(events=True, binary=True, **asked))
                language = asked.get("language") or "en"
                told = (await wire.until(ws, "session.updated"))[-1]["session"]["streamer"]
                assert told["language"] == language
                text = wire.text_of(await wire.describe(ws, pcm(speech(3, 1))))
                assert text.isascii() == (language == "en")
                found = json.loads(await ws.recv())["description"]
                assert (found["language"], found["text"]) == (language, text)
                assert found["levels"]["rate"]["level"] == found["attributes"]["rate"]
            await ws.send(wire.session_update(language="de"))
            refused = (await wire.until(ws, "error"))[-1]["error"]
            assert refused["message"] == "language is 'de'; it may be en, zh"


@own_warning
def test_examples_run_as_they_stand(server, wanted, capsys, tmp_path):
    codes = block_of("README.md", "import openai\n"), block_of(PAGE, "import base64, openai")
    assert all(ADDRESS in code for code in codes)
    readme, code = (code.replace(ADDRESS, http_base(server)) for code in codes)
    exec(readme, {})
    assert capsys.readouterr().out == "session.created\n"
    samples, rate = soundfile.read(SAMPLES[1], dtype="int16")
    soundfile.write(tmp_path / "stereo.wav", np.stack([samples, samples], 1), rate)
    soundfile.write(tmp_path / "fast.wav", samples, 500_000)
    for file in (SAMPLES[1], tmp_path / "stereo.wav"):
        exec(code.replace("clip.wav", str(file)), {})
        assert capsys.readouterr().out == wanted[SAMPLES[1].name]["text"]
    with pytest.raises(SystemExit, match="is 500000; it may be 1000 to 384000"):
        exec(code.replace("clip.wav", str(tmp_path / "fast.wav")), {})
    assert capsys.readouterr().out == ""


async def test_a_client_of_the_beta_is_known_before_its_first_message(server):
    protocols = {"subprotocols": ["realtime", "openai-beta.realtime-v1"]}
    for how in ({"additional_headers": {"OpenAI-Beta": "realtime=v1"}}, protocols):
        async with connect(server, **how) as ws:
            session = (await wire.until(ws, "session.created"))[-1]["session"]
            assert session["input_audio_format"] == "pcm16"


PACKAGES = ("livekit-plugins-openai>=1.8,<2", "openai-agents>=0.24,<0.30", "pipecat-ai>=1.14,<2")
OF_NPM = ("openai@7.57.0", "openai-realtime-api@1.0.8", "ws@8")
CACHE = ROOT / ".cache"
SCRIPTS = SUPPORT / "other_clients"
WITHIN_S = 600
long = pytest.mark.long


def installed(home, *command):
    """The folder, in which this command has run once."""
    if not (home / "is_ready").exists():
        home.mkdir(parents=True, exist_ok=True)
        subprocess.run(command, cwd=home, check=True, timeout=WITHIN_S)
        (home / "is_ready").touch()
    return home


def run(command, **environment):
    """The object that a client's script prints."""
    done = ended(*command, timeout=WITHIN_S, env=os.environ | environment)
    assert done.returncode == 0, done.stderr[-4_000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["errors"] == []
    assert all(found["texts"])
    return found


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    """A sentence at 24 kHz, and silence after it."""
    samples, rate = soundfile.read(SAMPLES[0], dtype="float32")
    spoken = np.pad(soxr.resample(samples, rate, 24_000), (0, 36_000))
    file = tmp_path_factory.mktemp("clients") / "speech.wav"
    soundfile.write(file, spoken, 24_000, subtype="PCM_16")
    return file


@pytest.fixture(scope="module")
def python(recording):
    """Runs a client in an environment with PACKAGES."""
    home = CACHE / "clients"
    if not home.exists():
        venv.create(home, with_pip=True)
    program = home / "bin" / "python"
    installed(home, program, "-m", "pip", "install", "--quiet", *PACKAGES)
    return lambda name, server: run([program, SCRIPTS / f"{name}_client.py", server, recording])


@pytest.fixture(scope="module")
def node(recording):
    """Runs a client with OF_NPM."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    npm = ("npm", "install", "--silent", "--no-audit", "--no-fund", *OF_NPM)
    home = installed(CACHE / "npm", *npm)

    def run_node(name, server, **environment):
        script = shutil.copy(SCRIPTS / f"{name}_client.mjs", home)  # beside its packages
        return run(["node", script, server, recording], **environment)

    return run_node


@long
def test_livekit(python, server):
    found = python("livekit", server)
    first, second = found["texts"]
    assert (first, found["empty"]) == (second, [])
    items = [item for _, item in found["chain"]]
    assert [previous for previous, _ in found["chain"]] == [None, *items[:-1]]
    assert len(items) == 4


@long
@pytest.mark.parametrize(("name", "empty"), [("pipecat", [""]), ("agents", [])])
def test_a_turn_by_voice_activity(python, server, name, empty):
    found = python(name, server)
    assert (len(found["texts"]), found["empty"]) == (1, empty)


@long
def test_npm_openai(node, tmp_path):
    chain, key, authority = wire.certificate(tmp_path)
    with wire.serving("--mode", "edge", "--cert", chain, "--key", key) as (url, _):
        assert len(node("openai", url, NODE_EXTRA_CA_CERTS=str(authority))["texts"]) == 1


@long
def test_npm_openai_realtime_api(node, server):
    """It speaks the beta of the protocol."""
    assert len(node("beta", server)["texts"]) == 2
