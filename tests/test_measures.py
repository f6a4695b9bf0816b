"""Measures in the public API: beside a recording's words, and while somebody speaks; nothing where
nobody asks."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from speech import RATE_HZ, recording, speech

from streamer import Describer, Description, Measures, SpeechMeasures
from streamer.cli import main
from streamer.commands.screen import table_of
from streamer.core.attributes import ATTRIBUTES
from streamer.core.audio.pcm import OffsetFilter
from streamer.core.decoding.plan import Counts
from streamer.model.audio.ear import measure


@pytest.fixture
def options(tiny_pair):
    return {"mode": "edge", "edge": str(tiny_pair[0]), "cloud": str(tiny_pair[1])}


def measured(samples):
    return measure(OffsetFilter().push(samples))


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


async def test_a_recording_in_parts_has_those_of_its_parts(options):
    samples = np.tile(recording(0), 30)  # more than 60 s
    async with Describer.open(**options) as describer:
        found = await describer.describe((samples, RATE_HZ), measures=True)
    assert len(found.parts) > 1
    parts = [part.measures for part in found.parts]
    assert found.measures.speech_s == pytest.approx(sum(part.speech_s for part in parts))
    assert found.measures.audio_s == pytest.approx(len(samples) / RATE_HZ, abs=0.05)


def test_the_command_line_shows_a_table_or_an_object(options, samples, capsys):
    models = ["--mode", "edge", "--edge", options["edge"], "--cloud", options["cloud"]]
    assert main(["describe", str(samples[1]), "--measures", *models]) == 0
    out, err = capsys.readouterr()
    found = measured(recording(1))
    rows = [line.split() for line in out.splitlines()[1:8]]
    assert [row[0] for row in rows] == list(ATTRIBUTES)
    assert f"{found.rate_syllables_per_s:.1f}" in rows[0]
    assert err == ""
    assert main(["describe", str(samples[1]), "--measures", "--json", *models]) == 0
    assert json.loads(capsys.readouterr().out)["measures"] == found.as_json()


def test_a_table_tells_words_units_errors_dashes_and_warnings():
    measures = SpeechMeasures(5.0, 120.4, 2.0, 6.5, -23.04, 20.0, 0.125, 3, 0.4, -9.0, 8, 9)
    names = {"rate": [{"zh": "很慢", "en": "very slow"}], "pitch": [{"zh": "偏低", "en": "low"}]}
    found = Description(
        text="x",
        attributes=dict.fromkeys(ATTRIBUTES) | {"rate": 0, "pitch": 0},
        measures=measures,
        confidence={"rate": 0.95, "pitch": 0.7, "variation": 0.1},
        audio_s=9.0,
        file="a",
        stop_reason="sentence",
        mode="edge",
        counts=Counts(),
        level_names=names,
    )
    lines = table_of(found).splitlines()
    assert re.fullmatch(r"  rate       很慢  5\.0 ±0\.\d syllables/s +sure", lines[0])
    assert re.fullmatch(r"  pitch      偏低  120 ±\d Hz +likely", lines[1])
    assert re.fullmatch(r"  variation  -     2\.0 ±0\.\d semitones +unsure", lines[2])
    assert re.fullmatch(r"  pauses     -     12 ±\d % of the time", lines[4])
    assert lines[6] == "  arousal    -     -"
    assert lines[7].startswith(
        "  8.0 s of speech in 9.0 s, 3 pauses, the longest 0.4 s, pitch spans"
    )
    once = table_of(replace(found, measures=replace(measures, pause_count=1)))
    assert ", 1 pause, the longest" in once
    english = table_of(replace(found, language="en"))
    assert "  rate       very slow  5.0" in english
    empty = table_of(replace(found, measures=SpeechMeasures(), confidence=None))
    assert "  rate       很慢  -\n" in empty
    assert "  ! only 0.0 s of speech" in empty
