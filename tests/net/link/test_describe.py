"""`streamer describe` with a verifier elsewhere says what one process says; errors are one line. The
wire: messages arrive as sent, keep to their sizes, and garbage raises WireError only.
"""

import os
import re
import signal
import subprocess
import sys
import time

import anyio
import msgspec
import numpy as np
import pytest
import tiny
from far import free_port, verifying
from hypothesis import given
from hypothesis import strategies as st
from processes import PATIENCE_S, describe, ended, started, streamer
from processes import until as wait_until
from speech import RATE_HZ, SAMPLES, speech
from websockets.asyncio.client import connect
from wire import certificate, http, session_update, until
from wire import describe as describe_live

from bench.proxy import Proxy
from streamer import Describer, ModelError
from streamer.config import Config, ConfigError
from streamer.core.attributes import parse
from streamer.core.audio.pcm import from_pcm16
from streamer.core.audio.turn import trimmed
from streamer.core.decoding.plan import Verdict, VerifyRequest
from streamer.core.link import wire
from streamer.stages.events import TargetLost


@pytest.mark.parametrize("mode", ["exact", "cloud", "gated"])
def test_two_processes_say_what_one_says(verifier, wanted, mode):
    status, rows, told = describe(*SAMPLES, "--mode", mode, "--cloud", verifier)
    assert (status, told) == (0, "")
    for row in rows:
        one = wanted["gated" if mode == "gated" else "exact"][os.path.basename(row["file"])]
        for name in ("text", "ids", "stop_reason"):
            assert row[name] == one[name]
        assert row["mode"] == mode
    assert len(rows) == len(SAMPLES)


async def test_chance_and_the_form_are_the_same_on_both_sides(verifier):
    """Tokens that break the form are chosen again on both sides: at T 1.5 that is often."""
    texts = []
    for mode, cloud in (("cloud", "embedded"), ("exact", verifier), ("cloud", verifier)):
        async with Describer.open(mode=mode, cloud=cloud, temperature=1.5, seed=2) as d:
            texts.append((await d.describe((speech(4, 3), RATE_HZ))).text)
            assert None not in parse(texts[-1], d.attributes).values(), texts[-1]
    assert texts == texts[:1] * 3


async def test_each_turn_has_its_language(tmp_path):
    edge, cloud = tiny.save_bilingual(tmp_path)
    source, languages = (speech(4, 3), RATE_HZ), ("zh", "en", "zh")
    async with Describer.open(mode="cloud", edge=edge, cloud=cloud) as near:
        wanted = [await near.describe(source, language=each) for each in languages]
    with verifying("--cloud", cloud) as (url, _):
        async with Describer.open(mode="exact", edge=edge, cloud=url) as d:
            found = [await d.describe(source, language=each) for each in languages]
    assert [one.ids for one in found] == [one.ids for one in wanted]
    assert [one.text.isascii() for one in found] == [False, True, False]


async def test_lazy_audio_crosses_only_when_a_verdict_is_wanted(verifier, wanted):
    """Eager crosses during speech, lazy as a whole after the first request."""
    pcm = SAMPLES[0].read_bytes()[44:]
    heard = 2 * len(trimmed(from_pcm16(pcm)))  # bytes; silence at its ends stays here
    port = int(verifier.rsplit(":", 1)[1])
    ways = ("exact", "eager", 0.9), ("exact", "lazy", 0), ("gated", "lazy", 0)
    for mode, audio, before in ways:
        options = {"mode": mode, "cloud_audio": audio, "threshold": 0.0}
        async with (
            Proxy(port) as proxy,
            Describer.open(cloud=f"ws://127.0.0.1:{proxy.port}", **options) as describer,
            describer.session() as session,
        ):
            await session.feed(pcm)
            await session.catch_up(0)
            assert before * heard <= proxy.num_up < 2_000 + (1.1 * heard if before else 0)
            await session.commit()
            events = [event async for event in session]
            assert heard < events[-1].bytes_up < 1.1 * heard + 2_000
            assert events[-1].verified_share > 0.5
            if mode == "exact":
                assert list(events[-1].ids) == wanted["exact"][SAMPLES[0].name]["ids"]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """A verifier with a certificate and a key: (its address, the authority's certificate)."""
    chain, key, ca = certificate(tmp_path_factory.mktemp("tls"))
    with verifying("--cert", chain, "--key", key, "--api-key", "secret") as (url, _):
        yield url, str(ca)


async def told(**options):
    """The one line, and that it came at once."""
    started = time.perf_counter()
    with pytest.raises(ModelError) as refused:
        async with Describer.open(mode="exact", **options) as describer:
            await describer.load()
    assert time.perf_counter() - started < 15, "half of what exact mode waits for a verdict"
    assert "\n" not in str(refused.value)
    return str(refused.value)


async def test_tls_and_keys(guarded, verifier, monkeypatch):
    url, ca = guarded
    line = await told(cloud=url)
    assert "not verify (unable to get local issuer certificate); name the PEM" in line
    assert "SSL_CERT_FILE" in line
    monkeypatch.setenv("SSL_CERT_FILE", ca)
    assert "not valid for 'localhost'" in await told(cloud=url.replace("127.0.0.1", "localhost"))
    async with Describer.open(mode="exact", cloud=url.replace("wss:", "ws:")) as describer:
        with anyio.fail_after(15), pytest.raises(TargetLost, match="at once; give wss:// if"):
            await describer.describe(SAMPLES[0])
    line = await told(cloud=url, cloud_key="wrong")
    assert line.startswith(f"the verifier at {url}: HTTP 401 (wrong or missing API key")
    assert "give its key with --cloud-key or STREAMER_CLOUD_KEY" in line
    line = await told(cloud=verifier.replace("ws:", "wss:"))
    assert "does not speak TLS" in line
    assert "or take ws://" in line
    for wrong in ("quokka\nlines", "quokka x"):  # with characters that no key has
        monkeypatch.setenv("STREAMER_CLOUD_KEY", wrong)
        assert "quokka" not in await told(cloud=url)


NO_HOSTS = ("ws://", "ws://:8766", "wss:///x", "ws://host:port", "ws://h:99999", "ws://h:0")


@pytest.mark.parametrize("url", [*NO_HOSTS, "ws://a..b:1", "ws://" + 70 * "h"])
def test_an_address_without_a_host_is_refused(url):
    with pytest.raises(ConfigError, match="names no host"):
        Config(cloud=url)


def test_gated_says_once_that_no_verifier_was_there(tmp_path):
    """Though no block needed it; and only where no recording's own line says so."""
    cloud = f"ws://127.0.0.1:{free_port()}"
    told = f"streamer: the verifier at {cloud} was not reached (Connection refused): "
    told += "nothing was verified\n"
    files = SAMPLES[1], SAMPLES[3]
    status, out, err = streamer("describe", *files, "--cloud", cloud)
    assert (status, out.count("说话人"), err) == (0, 2, told)
    words = sys.executable, "-m", "streamer", "describe", files[0], "--cloud", cloud
    assert ended(*words, stderr=subprocess.STDOUT).stdout.endswith(f"。\n{told}")
    table = tmp_path / "rows.jsonl"
    status, _, err = streamer("label", *files, "--out", table, "--jobs", 2, "--cloud", cloud)
    assert (status, err.count(told), err.count("\n")) == (0, 1, 2)
    status, _, err = streamer("describe", files[0], "--cloud", cloud, "--threshold", 0)
    assert (status, "gave no verdict" in err, told in err) == (0, True, False)


async def test_a_server_says_that_its_verifier_is_gone_and_is_back():
    """One line each, on stderr, and in what it tells Prometheus; it serves all the while."""
    port = free_port()
    cloud = f"ws://127.0.0.1:{port}"
    with started("serve", "--port", 0, "--cloud", cloud, "--threshold", 0) as server:
        url = server.stdout.readline().split()[2]
        assert server.stderr.readline().startswith("loading ")
        named = f"streamer: the verifier at {cloud} is"

        def gauges():
            found = re.findall(r"^streamer_link_(\w+) (\S+)$", http(url, "/metrics")[1], re.M)
            return {name: float(value) for name, value in found}

        # --threshold replaces what it was made for
        told = next(line for line in server.stderr if "promise" not in line)
        assert told == f"{named} not there (Connection refused); it is tried again\n"
        async with connect(url) as ws:
            await ws.send(session_update(binary=True))
            await until(ws, "session.updated")
            assert await describe_live(ws, SAMPLES[0].read_bytes()[44:])
        assert (gauges()["up"], gauges()["breaker_open"]) == (0, 1)
        with verifying(port=port) as (_, process):
            assert server.stderr.readline() == f"{named} there again\n"
            await wait_until(lambda: not gauges()["breaker_open"])
            found = gauges()
            assert found["up"] == 1
            assert 0 < found["rtt_seconds"] < 10
            process.kill()
            await wait_until(lambda: not gauges()["up"])
            assert f"{named} not there" in server.stderr.readline()
            server.send_signal(signal.SIGTERM)
            assert server.communicate(timeout=PATIENCE_S)[1] == ""


IDS = st.lists(st.integers(0, 151_935), max_size=40).map(tuple)


def over_the_wire(message):
    decode = wire.decode_up if isinstance(message, wire.Up) else wire.decode_down
    return decode(wire.encode(message))


PREFIXES = st.binary(min_size=8, max_size=8)


@given(st.integers(1, 255), st.integers(0, 127), PREFIXES, IDS, IDS, st.booleans())
def test_a_request_has_24_bytes_and_5_per_id(number, base, prefix, unverified, draft, runs_on):
    request = VerifyRequest(number, base, prefix, unverified, draft, runs_on)
    assert len(wire.encode(request)) <= 24 + 5 * (len(unverified) + len(draft))
    assert over_the_wire(request) == request


def test_a_verdict_is_a_few_bytes_and_2_for_each_id_that_stands():
    told = np.array([-0.001, -2.5, 0.0, -7.7, -1e4], "<f2")
    verdict = Verdict(20, 4, 151_000, told.tobytes())
    assert len(wire.encode(verdict)) <= 11 + 2 * len(told)
    assert over_the_wire(verdict).log_probs == tuple(told.tolist())


@pytest.mark.parametrize(
    "data",
    [
        *(b"", "text", b"\x91" * 5_000, wire.encode(wire.Finish(4, {})) + b"1", [4, 0, 1]),
        *([4, 1, 0, bytes(9), [], []], [4, 1, 0, bytes(8), [1 << 24], []]),
        *([4, 1, 0, bytes(8), [-1], []], [4, 1, 0, bytes(8), [], [0] * 321]),
        *([3, 16_000, {"rate": weights}] for weights in ((0, 1), (-1024, 0), (0,) * 33)),
        *([3, 16_000, {"x" * 201: (0, -1)}], [3, 16_000, {str(i): (0, -1) for i in range(17)}]),
    ],
)
def test_known_garbage_of_an_edge(data):
    with pytest.raises(wire.WireError):
        wire.decode_up(msgspec.msgpack.encode(data) if isinstance(data, list) else data)


@pytest.mark.parametrize("verdict", [[1, 0, -1], [1, 0, 1 << 24], [1, -1, 5], [-1, 0, 5]])
def test_ids_and_numbers_that_cannot_be_are_garbage_of_a_verifier(verdict):
    with pytest.raises(wire.WireError):
        wire.decode_down(msgspec.msgpack.encode([3, *verdict]))


@pytest.mark.parametrize("told", [[-1.0], [-1.0, 0.5], [-1.0, np.nan], [-np.inf, 0.0], [0.0] * 3])
def test_log_probabilities_that_cannot_be_are_garbage(told):
    data = msgspec.msgpack.encode([3, 20, 1, 9, np.array(told, "<f2").tobytes()])
    with pytest.raises(wire.WireError, match="log-probabilities"):
        wire.decode_down(data)


@given(st.lists(st.integers(-32_768, 32_767), max_size=50), st.booleans())
def test_samples_arrive_bit_for_bit(values, is_loud):
    """On PCM16's grid as 2 bytes each; beyond full scale or off the grid as 4."""
    samples = np.array(values, np.float32) / 32_768
    if is_loud:
        samples = np.concatenate([samples, np.array([1.5, 1e-9], np.float32)])
    message = wire.Audio.of(7, samples)
    assert message.is_float == is_loud
    assert len(message.data) == (4 if is_loud else 2) * len(samples)
    assert np.array_equal(over_the_wire(message).samples(), samples)
