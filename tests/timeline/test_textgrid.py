"""`--timeline s.TextGrid`, read back by Praat."""

import parselmouth
import pytest
from parselmouth.praat import call
from places import SAMPLES

import streamer


@pytest.fixture(scope="module")
def found():
    return streamer.describe(SAMPLES[-1], mode="edge", measures=True)


@pytest.fixture(scope="module")
def grid(found, tmp_path_factory):
    path = tmp_path_factory.mktemp("grids") / "s.TextGrid"
    assert streamer.write_timeline(found, path) is None
    return parselmouth.read(str(path))


def labels(grid, tier):
    num = call(grid, "Get number of intervals", tier)
    return [call(grid, "Get label of interval", tier, i + 1) for i in range(num)]


def test_tiers_hold_what_was_measured(grid, found):
    assert call(grid, "Get number of tiers") == 3
    speech = labels(grid, 1)
    assert speech.count("pause") == found.measures.pause_count
    assert speech.count("speech") == found.measures.pause_count + 1
    assert found.text in labels(grid, 3)
    assert call(grid, "Get total duration") == pytest.approx(found.audio_s, abs=1e-3)


def test_points_are_the_syllables_of_the_rate(grid, found):
    num = call(grid, "Get number of points", 2)
    wanted = found.measures.rate_syllables_per_s * found.measures.speech_s
    assert num == pytest.approx(wanted, abs=1)
    times = [call(grid, "Get time of point", 2, i + 1) for i in range(num)]
    assert times == sorted(set(times))


def test_a_quote_in_a_sentence_is_doubled(found):
    from dataclasses import replace

    from streamer.timeline.textgrid import textgrid

    timeline = found.timeline
    turns = [replace(turn, text='so "loud"') for turn in timeline.turns]
    assert 'text = "so ""loud"""' in textgrid([replace(timeline, turns=turns)])
