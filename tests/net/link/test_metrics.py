"""The metrics of a server's link to a verifier, and the table of all metrics in docs/realtime.md."""

import re

import anyio
import numpy as np
from far import FIRST, finish, hear, honest, linked, lying, sound
from patience import until
from places import ROOT
from wire import all_metrics, link_gauges

from streamer.core.description import TextDelta
from streamer.net.link.client import watch_link
from streamer.net.service.metrics import Metrics

PAGE = (ROOT / "docs/realtime.md").read_text("utf-8")


async def test_blocks_in_flight_are_counted():
    """By a verifier that never answers."""
    metrics = Metrics()
    async with lying(honest) as port:
        async with linked(port) as link, anyio.create_task_group() as group:
            watch_link(link, metrics)
            found = link_gauges(metrics.text().decode())
            assert np.isnan(found["rtt_seconds"]), "nothing was measured yet"
            target = link.listen()
            await hear(target, sound(1.0))
            await finish(target)
            group.start_soon(target.verify, FIRST)
            found = {}

            def are_there():  # either may be there first
                found.update(link_gauges(metrics.text().decode()))
                return (found["up"], found["blocks_in_flight"]) == (1, 1)

            await until(are_there)
            assert found["reconnects"] == 0, "a connection for each turn is no reconnect"
            group.cancel_scope.cancel()
        assert link_gauges(metrics.text().decode())["blocks_in_flight"] == 0


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


def test_times_are_counted_in_seconds():
    metrics = Metrics()
    for at_ms in (250.0, 280.0):
        metrics.heard(1, TextDelta("a", (1,), True, at_ms))
    text = metrics.text().decode()
    assert "streamer_ttft_seconds_sum 0.25\n" in text
    assert re.search(r"^streamer_itl_seconds_sum 0\.03", text, re.M)
