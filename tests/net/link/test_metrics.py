"""The metrics of a server's link to a verifier, and the table of all metrics in docs/realtime.md."""

import re

from places import ROOT
from wire import all_metrics

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
