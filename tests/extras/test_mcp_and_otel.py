"""`streamer mcp` by the official client: its tools, and the fence around the allowed folders. Turns as
OpenTelemetry spans, by its own in-memory exporter.
"""

import shutil
import subprocess
import sys

import pytest
from mcp import StdioServerParameters
from mcp.client import Client
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from places import SAMPLES
from speech import RATE_HZ, pcm, recording
from websockets.asyncio.client import connect
from wire import describe, running, session_update, text_of

import streamer
from streamer import Describer, TurnCommitted, TurnFailed
from streamer.commands.serve import COLLECTORS, FOR_TRACES, tracing_of_turns
from streamer.config import ConfigError
from streamer.core.attributes import ATTRIBUTES
from streamer.extras.mcp.server import server
from streamer.extras.otel.spans import MAX_OPEN, telling, traced, tracing
from streamer.net.service.metrics import EVERY_S, StateNotices

FAST, SLOW = (next(s for s in SAMPLES if s.stem == name) for name in ("fast_loud", "slow_soft"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """With two recordings, what is none, a link that leads out, and a playlist that does."""
    found = tmp_path_factory.mktemp("allowed")
    for sample in (FAST, SLOW):
        shutil.copy(sample, found)
    (found / "out.wav").symlink_to(SAMPLES[0])
    (found / "notes.wav").write_text("not a recording")
    outside = tmp_path_factory.mktemp("outside") / "outside.ts"
    subprocess.run(["ffmpeg", "-v", "error", "-i", FAST, outside], check=True)
    head = "#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,"
    (found / "list.m3u8").write_text(f"{head}\n{outside}\n#EXT-X-ENDLIST\n")
    return found


async def test_tools_say_what_the_api_says(folder):
    profile = streamer.voice_profile(streamer.describe(FAST, mode="edge", measures=True))
    async with Describer.open(mode="edge") as d, Client(server([folder], d)) as client:
        told = (await client.list_tools()).tools
        assert [tool.name for tool in told] == ["describe", "measure", "compare"]
        found = (await client.call_tool("describe", {"path": "fast_loud.wav"})).structured_content
        assert found["attributes"] == profile
        assert found["in_english"].startswith("The user speaks very fast")
        measured = await client.call_tool("measure", {"path": str(folder / "fast_loud.wav")})
        rate = measured.structured_content["rate_syllables_per_s"]
        assert rate == pytest.approx(profile["rate"]["value"], abs=0.01)
        paths = {"first": "slow_soft.wav", "second": "fast_loud.wav"}
        both = (await client.call_tool("compare", paths)).structured_content
        assert both["rate"]["difference"] > 2
        assert both["rate"]["verdict"] == "faster"
        asked = {"path": "fast_loud.wav", "language": "zh"}
        found = (await client.call_tool("describe", asked)).structured_content["attributes"]
        assert all(not row["label"].isascii() for row in found.values())
        wanted = {n: row["level"] for n, row in profile.items()}
        assert {n: row["level"] for n, row in found.items()} == wanted


async def test_nothing_outside_is_heard_and_each_error_is_one_line(folder):
    """FFmpeg could decode the recording outside that a playlist names."""
    outside = "no recording in the allowed folders"
    async with Describer.open(mode="edge") as d, Client(server([folder], d)) as client:
        for path, told in {
            **dict.fromkeys(("out.wav", str(SAMPLES[0]), "../x.wav", "", ".", "a\0b.wav"), outside),
            "notes.wav": "notes.wav",
            "list.m3u8": "no recording that can be read",
        }.items():
            refused = await client.call_tool("describe", {"path": path})
            assert refused.is_error
            assert told in refused.content[0].text
            assert "\n" not in refused.content[0].text


async def test_the_command_serves_over_stdio(folder):
    arguments = ["-m", "streamer", "mcp", str(folder), "--mode", "edge"]
    async with Client(StdioServerParameters(command=sys.executable, args=arguments)) as client:
        found = await client.call_tool("describe", {"path": "slow_soft.wav"})
    assert found.structured_content["sentence"].endswith("。")


SPEECH = recording(0)


def provider():
    exporter, found = InMemorySpanExporter(), TracerProvider()
    found.add_span_processor(SimpleSpanProcessor(exporter))
    return found, exporter.get_finished_spans


async def test_each_turn_is_a_span_with_seven_levels():
    spans_to, spans = provider()
    async with Describer.open(mode="edge") as d, d.session(measures=True) as session:
        for _ in range(2):
            await session.feed(pcm(SPEECH))
            await session.commit()
            events = [event async for event in traced(session, spans_to)]
    found, (first, second) = events[-1], spans()
    assert [span.attributes["streamer.turn"] for span in (first, second)] == [0, 1]
    told = second.attributes
    levels = {name: told[f"streamer.{name}.level"] for name in ATTRIBUTES}
    assert levels == found.attributes
    assert told["streamer.rate.name"] == found.levels["rate"].name
    assert told["streamer.rate.value"] == found.measures.rate_syllables_per_s
    assert told["streamer.arousal.confidence"] == found.confidence["arousal"]
    assert told["streamer.n_tokens"] == found.n_tokens
    assert found.text not in map(str, told.values())
    assert [event.name for event in second.events] == ["first text"]
    assert (first.end_time - first.start_time) / 1e9 >= len(SPEECH) / RATE_HZ


async def test_a_server_s_sessions_are_traced_and_end(caplog):
    spans_to, spans = provider()
    async with Describer.open(mode="edge") as d:
        await d.load()
        async with running(tracing(d.stream, spans_to)) as (url, _):
            for _ in range(2):
                async with connect(url) as ws:
                    await ws.send(session_update(binary=True))
                    assert text_of(await describe(ws, pcm(SPEECH)))
    assert len(spans()) == 2
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


class Away(InMemorySpanExporter):
    """A collector that is away for a while."""

    is_there = True

    def export(self, spans):
        return super().export(spans) if self.is_there else SpanExportResult.FAILURE


def test_a_collector_that_is_away_is_one_line(caplog):
    now, away = [0.0], Away()
    sends = TracerProvider()
    sends.add_span_processor(SimpleSpanProcessor(telling(away, StateNotices(lambda: now[0]))))

    def lines(is_there, at):
        caplog.clear()
        away.is_there, now[0] = is_there, at
        for _ in range(3):
            sends.get_tracer("test").start_span("turn").end()
        return [record.getMessage() for record in caplog.records]

    assert lines(True, 0) == []
    (told,) = lines(False, 1)
    assert told.startswith("the collector takes no spans")
    assert lines(True, 2) == lines(False, 30) == []
    (told,) = lines(True, 2 + EVERY_S)
    assert told == "the collector takes spans again"
    assert len(away.get_finished_spans()) == 9


async def test_a_failed_turn_is_an_error_and_open_ones_are_bounded():
    spans_to, spans = provider()

    async def events():
        for turn in range(MAX_OPEN + 3):
            yield TurnCommitted(turn, 1.0)
        yield TurnFailed(3, "no verdict")

    async for event in traced(events(), spans_to):
        if isinstance(event, TurnFailed):
            assert [span.attributes["streamer.turn"] for span in spans()] == [0, 1, 2, 3]
            assert spans()[-1].status.status_code == StatusCode.ERROR
    assert len(spans()) == MAX_OPEN + 3


def test_a_collector_s_address_turns_spans_on(monkeypatch):
    """Without the exporter one line says which package is missing, before any model is loaded."""
    for name in COLLECTORS:
        monkeypatch.delenv(name, raising=False)
    assert tracing_of_turns()("stream") == "stream"
    for name in COLLECTORS:
        monkeypatch.setenv(name, "http://127.0.0.1:9")
        monkeypatch.setitem(sys.modules, FOR_TRACES[1], None)
        with pytest.raises(ConfigError, match=r"needs .*; .*pip install '\.\[otel\]'"):
            tracing_of_turns()
        monkeypatch.delenv(name)
