"""A link in log lines and metrics: few lines, each whole, about a verifier that is not there, gives
no verdict, or refuses; and the table of all metrics in docs/realtime.md."""

import re
import signal

from far import free_port, verifying
from patience import PATIENCE_S
from patience import until as wait_until
from places import ROOT
from processes import started, streamer
from speech import SAMPLES
from websockets.asyncio.client import connect
from wire import all_metrics, http, link_gauges, session_update, until
from wire import describe as describe_live

from streamer.net.service.notices import EVERY_S, Notices

PAGE = (ROOT / "docs/realtime.md").read_text("utf-8")


def test_the_table_names_all_of_them():
    names = set(re.findall(r"^# TYPE streamer_(\w+?)(?:_total)? ", "".join(all_metrics()), re.M))
    # and that of a service that runs
    names = {name for name in names if not name.endswith("_created")} | {"tasks"}
    table = re.findall(r"^\| (?:both|serve|verifier)[^|]*\| ([^|]+) \|", PAGE, re.M)
    assert {name for row in table for name in re.findall(r"`(\w+)", row)} - {"process_"} == names


def test_units_are_base_units_and_series_are_there_before_the_first_event():
    for text in all_metrics():
        assert not re.search(r"^# TYPE \w+_(ms|mb|kb|minutes)\b", text, re.M)
        assert "streamer_sessions_limit 7.0\n" in text
        assert re.search(r'^streamer_build_info{.*version="1.2.3".*} 1.0$', text, re.M)
        assert re.search(r"^process_resident_memory_bytes [1-9]", text, re.M)
        assert 'streamer_refusals_total{status="503"} 0.0\n' in text
    serve, verifier = all_metrics()
    assert 'streamer_turns_total{stop_reason="sentence"} 0.0\n' in serve
    assert "streamer_ttft_seconds_count 0.0\n" in serve
    assert 'streamer_requests_refused_total{reason="prefix"} 0.0\n' in verifier


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
