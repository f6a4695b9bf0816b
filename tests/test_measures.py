"""Measures in the public API: beside a recording's words, and while somebody speaks; nothing where
nobody asks."""

import json
import subprocess
import sys

import anyio
import numpy as np
import pytest
from places import ROOT
from speech import RATE_HZ, recording, speech

from streamer import Describer, Description, Measures, SpeechMeasures
from streamer.cli import main
from streamer.commands.screen import table_of
from streamer.core.audio.pcm import OffsetFilter
from streamer.model.audio.ear import TurnMeasurer


@pytest.fixture
def options(tiny_pair):
    return {"mode": "edge", "edge": str(tiny_pair[0]), "cloud": str(tiny_pair[1])}


def measured(samples):
    measurer = TurnMeasurer()
    measurer.push(OffsetFilter().push(samples))
    return measurer.finish()


async def test_a_recording_has_its_measures_where_they_are_asked_for(options, samples):
    async with Describer.open(**options) as describer:
        plain = await describer.describe(samples[0])
        found = await describer.describe(samples[0], measures=True)
    assert plain.measures is None
    assert plain.as_json()["measures"] is None
    assert found.ids == plain.ids
    assert found.measures == measured(recording(0))
    row = found.as_json()["measures"]
    assert row["pitch_median_hz"] == pytest.approx(found.measures.pitch_median_hz, abs=1e-4)
    assert row["warnings"] == []


async def test_a_live_turn_has_what_the_recording_has(options):
    data = (speech(4, 2) * 32767).astype("<i2")
    async with Describer.open(**options) as describer, describer.session(measures=True) as session:
        for turn in range(2):
            for at in range(0, len(data), 1_600):
                await session.feed(data[at : at + 1_600].tobytes())
            await session.commit()
            events = [event async for event in session]
            found = events[-1]
            assert isinstance(found, Description)
            assert found.measures == measured(data.astype(np.float32) / 32768)
            news = [event for event in events if isinstance(event, Measures)]
            assert {event.turn for event in news} <= {turn}
            assert [event.heard_s for event in news] == sorted(event.heard_s for event in news)


async def test_news_come_while_somebody_speaks(options):
    """Before the turn is committed; what a client reads first is the first of them."""
    async with Describer.open(**options) as describer, describer.session(measures=True) as session:
        await session.feed((speech(4, 2) * 32767).astype("<i2").tobytes())
        with anyio.fail_after(60):
            news = await anext(aiter(session))
        assert isinstance(news, Measures)
        assert news.so_far.audio_s == news.heard_s > 0
        assert json.loads(json.dumps(news.as_json()))["last_s"]["2"]["audio_s"] <= 2


async def test_voice_activity_and_clear_leave_no_measures_behind(options):
    quiet = np.zeros(RATE_HZ, np.float32)
    data = np.concatenate([quiet, speech(3, 1), quiet, quiet])
    async with (
        Describer.open(**options) as describer,
        describer.session(vad=True, measures=True) as session,
    ):
        await session.feed((recording(0) * 32767).astype("<i2").tobytes())
        await session.clear()
        await session.feed((data * 32767).astype("<i2").tobytes())
        await session.end()
        found = [event async for event in session if isinstance(event, Description)]
    assert len(found) == 1
    assert found[0].measures.audio_s == pytest.approx(found[0].audio_s, abs=0.011)


async def test_a_recording_in_parts_has_those_of_its_parts(options):
    samples = np.tile(recording(0), 15)
    async with Describer.open(**options) as describer:
        found = await describer.describe((samples, RATE_HZ), measures=True)
    assert len(found.parts) > 1
    parts = [part.measures for part in found.parts]
    assert found.measures.speech_s == pytest.approx(sum(part.speech_s for part in parts))
    assert found.measures.audio_s == pytest.approx(len(samples) / RATE_HZ, abs=0.05)


def test_nothing_is_computed_where_nobody_asks(options):
    """There is no measurer."""
    code = f"""import streamer
from streamer.model.audio import turns as part_cutter
part_cutter.TurnMeasurer = None
found = streamer.describe({str(ROOT / "samples" / "plain.wav")!r}, **{options!r})
print(found.measures)"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["None"]


def test_the_command_line_shows_a_table_or_an_object(options, samples, capsys):
    models = ["--mode", "edge", "--edge", options["edge"], "--cloud", options["cloud"]]
    assert main(["describe", str(samples[1]), "--measures", *models]) == 0
    out, err = capsys.readouterr()
    found = measured(recording(1))
    table = out.partition("\n")[2]
    assert err == ""
    for line, plain in zip(table.splitlines(), table_of(found).splitlines(), strict=True):
        assert line.split()[0] == plain.split()[0]
        assert " ".join(plain.split()[2:]) in " ".join(line.split())
    assert main(["describe", str(samples[1]), "--measures", "--json", *models]) == 0
    assert json.loads(capsys.readouterr().out)["measures"] == found.as_json()


def test_a_table_tells_units_dashes_and_warnings(tmp_path):
    shown = table_of(SpeechMeasures(5.0, 120.4, 2.0, 6.5, -23.04, 20.0, 0.125, 3, 0.4, -9.0, 8, 9))
    assert "rate       -  5.0 syllables/s, 300/min\n" in shown
    assert "pitch      -  120 Hz\n" in shown
    assert "variation  -  SD 2.0 semitones, 5-95 % 6.5\n" in shown
    assert "pauses     -  12 % in 3, longest 0.40 s\n" in shown
    both = table_of(SpeechMeasures(5.0), {"rate": "very slow 很慢", "pitch": "low 偏低"})
    assert "rate       very slow 很慢  5.0 syllables/s" in both
    assert "pitch      low 偏低        -\n" in both, "a Chinese character takes two columns"
    empty = table_of(SpeechMeasures())
    assert "rate       -  -\n" in empty
    assert "  ! only 0.0 s of speech" in empty
