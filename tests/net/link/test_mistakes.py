"""Permanent mistakes in --cloud end at once in one line; others are tried again, and told."""

import signal
import time

import anyio
import pytest
from far import free_port, verifying
from patience import PATIENCE_S
from patience import until as wait_until
from processes import started, streamer
from speech import SAMPLES
from tls import certificate
from websockets.asyncio.client import connect
from wire import describe as describe_live
from wire import http, link_gauges, session_update, until

from streamer import Describer, ModelError
from streamer.config import Config, ConfigError
from streamer.net.service.logs import EVERY_S, StateNotices
from streamer.stages.ports import TargetLost


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


async def test_tls_and_keys(guarded, monkeypatch):
    url, ca = guarded
    line = await told(cloud=url)
    assert "not verify (unable to get local issuer certificate); name the PEM" in line
    assert "SSL_CERT_FILE" in line
    monkeypatch.setenv("SSL_CERT_FILE", ca)
    line = await told(cloud=url.replace("127.0.0.1", "localhost"))
    assert "not valid for 'localhost'" in line
    async with Describer.open(mode="exact", cloud=url.replace("wss:", "ws:")) as describer:
        with anyio.fail_after(15), pytest.raises(TargetLost, match="at once; give wss:// if"):
            await describer.describe(SAMPLES[0])
    line = await told(cloud=url, cloud_key="wrong")
    assert line.startswith(f"the verifier at {url}: HTTP 401 (wrong or missing API key")
    assert "give its key with --cloud-key or STREAMER_CLOUD_KEY" in line
    for wrong in ("quokka\nlines", "quokka x"):  # with characters that no key has
        monkeypatch.setenv("STREAMER_CLOUD_KEY", wrong)
        assert "quokka" not in await told(cloud=url)


async def test_tls_where_there_is_none():
    with verifying() as (url, _):
        line = await told(cloud=url.replace("ws:", "wss:"))
    assert "does not speak TLS" in line
    assert "or take ws://" in line


NO_HOSTS = ("ws://", "ws://:8766", "wss:///x", "ws://host:port", "ws://h:99999", "ws://h:0")


@pytest.mark.parametrize("url", [*NO_HOSTS, "ws://a..b:1", "ws://" + 70 * "h"])
def test_an_address_without_a_host_is_refused(url):
    with pytest.raises(ConfigError, match="names no host"):
        Config(cloud=url)


def test_notices_are_few_and_the_last_state_is_told(caplog):
    now = [0.0]
    notices = StateNotices(lambda: now[0])
    notices.state(True, "there")
    for _ in range(100):
        notices.state(False, "gone")
        notices.state(True, "back")
    assert caplog.messages == ["gone"], "flapping is no flood"
    now[0] += EVERY_S
    notices.state(True, "back")
    notices.state(True, "back")
    assert caplog.messages == ["gone", "back"]


def test_gated_says_once_that_no_verifier_was_there(tmp_path):
    """Though no block needed it; and only where no recording's own line says so."""
    cloud = f"ws://127.0.0.1:{free_port()}"
    told = f"streamer: the verifier at {cloud} was not reached (Connection refused): "
    told += "nothing was verified\n"
    files = SAMPLES[1], SAMPLES[3]
    status, out, err = streamer("describe", *files, "--cloud", cloud)
    assert (status, out.count("说话人"), err) == (0, 2, told)
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
            return link_gauges(http(url, "/metrics")[1])

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
