"""The lines about a verifier that is not there, gives no verdict, or refuses: each is one line, and
they are few."""

import re
import signal

from far import free_port, verifying
from patience import PATIENCE_S
from patience import until as wait_until
from processes import started, streamer
from speech import SAMPLES
from websockets.asyncio.client import connect
from wire import describe as describe_live
from wire import http, link_gauges, session_update, until

from streamer.net.service.notices import EVERY_S, Notices


def test_notices_are_few_and_the_last_state_is_told(caplog):
    now = [0.0]
    notices = Notices(lambda: now[0])
    notices.state(True, "there")
    for _ in range(100):
        notices.state(False, "gone")
        notices.state(True, "back")
    assert caplog.messages == ["gone"], "flapping is no flood"
    now[0] += EVERY_S
    notices.state(True, "back")
    notices.state(True, "back")
    assert caplog.messages == ["gone", "back"]
    events = Notices(lambda: now[0])
    for i in range(5):
        events.event(f"event {i}")
    now[0] += EVERY_S
    events.event("event 5")
    assert caplog.messages[2:] == ["event 0", "event 5; 4 more before it"]


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
        unverified = " blocks that the gate wanted verified went unverified\n"
        assert server.stderr.readline().endswith(unverified)
        assert (gauges()["up"], gauges()["breaker_open"]) == (0, 1)
        with verifying(port=port) as (_, process):
            assert server.stderr.readline() == f"{named} there again\n"
            await wait_until(lambda: not gauges()["breaker_open"])
            found = gauges()
            assert (found["up"], found["blocks_in_flight"]) == (1, 0)
            assert 0 < found["rtt_seconds"] < 10
            process.kill()
            await wait_until(lambda: not gauges()["up"])
            assert gauges()["breaker_open"] == 1
            gone = rf"{named} not there \(.+\); it is tried again\n"
            assert re.fullmatch(gone, server.stderr.readline())
        with verifying(port=port):
            assert server.stderr.readline() == f"{named} there again\n"
            await wait_until(lambda: not gauges()["breaker_open"])
            assert (gauges()["up"], gauges()["reconnects"] > found["reconnects"]) == (1, True)
            server.send_signal(signal.SIGTERM)
            assert server.communicate(timeout=PATIENCE_S)[1] == ""
