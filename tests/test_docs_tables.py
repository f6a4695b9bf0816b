"""Tables of docs/ that list what the code has: nothing is missing there, and nothing is too much."""

import ast
import re
from typing import get_args

import pytest
from places import ROOT

import streamer
from streamer import LiveSession
from streamer.core.description import JSON_FIELDS
from streamer.core.link import wire
from streamer.net.realtime.client_events import OPTIONS
from streamer.stages import events

CODE = re.compile(r"`([^`]+)`")


def page(name):
    return (ROOT / "docs" / name).read_text("utf-8")


def rows(text, heading):
    """The cells of every row of the table whose head begins with `heading`, its head left out."""
    _, _, below = text.partition(f"| {heading} |")
    assert below, f"no table begins with {heading}"
    table = re.match(r"[^\n]*\n\|[-|]+\|\n((?:\|[^\n]*\n)+)", below)[1]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines()]


def first_names(text, heading):
    return {name for row in rows(text, heading) for name in CODE.findall(row[0])}


def test_a_description_s_fields_are_all_there():
    assert first_names(page("api.md"), "field") == {*JSON_FIELDS, "counts", "curves"}


def test_a_session_s_methods_are_all_there():
    told = {name.partition("(")[0] for name in first_names(page("api.md"), "method")}
    public = {name for name, kind in vars(LiveSession).items() if callable(kind)}
    assert told == {name for name in public if not name.startswith("_")} - {"catch_up", "events"}


def test_a_session_s_events_are_all_there():
    own = {kind for kind in get_args(events.Event) if kind is not events.CoachEvent}
    kinds = own | {streamer.Nudge, streamer.CoachNews, streamer.BaselineKnown}
    assert first_names(page("api.md"), "event") == {kind.__name__ for kind in kinds}


@pytest.mark.parametrize(("end", "messages"), [("edge", wire.Up), ("verifier", wire.Down)])
def test_the_wire_is_that_of_the_code(end, messages):
    """Kind, name and fields of every message, in their order."""
    told = {
        (int(kind), name): fields_of.split(", ")
        for sender, kind, name, fields_of, _ in rows(page("link.md"), "from")
        if sender == end
    }
    there = {
        (kind.__struct_config__.tag, kind.__name__): list(kind.__struct_fields__)
        for kind in get_args(messages)
    }
    assert told == there


def calls_of(name):
    """Every call of this function in the realtime server."""
    for file in sorted((ROOT / "streamer/net/realtime").glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call):
                called = getattr(node.func, "id", None) or getattr(node.func, "attr", None)
                if called == name:
                    yield node


def test_every_code_of_an_error_is_told():
    calls = (call for name in ("error", "_refused") for call in calls_of(name))
    told = [call.args[1] for call in calls if len(call.args) > 2]
    codes = {code.value for code in told if isinstance(code, ast.Constant)}
    assert [code.id for code in told if isinstance(code, ast.Name)] == ["code"], "of _refused"
    assert first_names(page("realtime.md"), "code") == codes


def test_every_close_code_is_told():
    """Those of the server's own; 1009 is the websocket library's, for a message too long."""
    sources = [file.read_text("utf-8") for file in (ROOT / "streamer/net").rglob("*.py")]
    codes = {
        int(code) for text in sources for code in re.findall(r"\((1\d{3}|4\d{3}), *\n? *\"", text)
    }
    codes |= {int(code) for text in sources for code in re.findall(r"\.close\(\s*(\d{4}),", text)}
    told = {int(row[0]) for row in rows(page("realtime.md"), "close code")}
    # 1008 is the verifier's, told in link.md
    assert told - {1009} == codes - {1008}
    assert "1008" in page("link.md")


def test_every_extension_is_told():
    assert first_names(page("realtime.md"), "name") == set(OPTIONS)
