"""Profiles on disk and thresholds: what is kept comes back, what cannot be is one line."""

import json

import pytest

from streamer.core.declare import ConfigError
from streamer.extras.coach.network import FORM
from streamer.extras.coach.options import Baseline, BaselineError, Coach

USUAL = Baseline(4.8123, 118.25, 2.5, -21.0, 0.125, 30.5, -27.0, 1.75, 0.25, 0.2, -0.1, 0.22)

SAVED = USUAL.as_json()
OTHER = "another version of streamer saved this baseline; leave it out"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "is no baseline (Expecting value"),
        ("[" * 9_000, "is no baseline ("),
        (3, OTHER),
        ({}, OTHER),
        (SAVED | {"form": FORM - 1}, OTHER),
        ({"form": FORM}, "missing required field `rate_syllables_per_s`"),
        (SAVED | {"level_dbfs": 10**400}, "level_dbfs"),
        (SAVED | {"level_dbfs": 3.0}, "level_dbfs is 3.0; it may be -120 to 0"),
        (SAVED | {"level_dbfs": "x"}, "Expected `float`, got `str` - at `$.level_dbfs`"),
        (SAVED | {"pause_share": float("nan")}, "pause_share is nan"),
    ],
)
def test_a_profile_that_cannot_be_is_told_in_one_line(tmp_path, content, told):
    text = content if isinstance(content, str) else json.dumps(content)
    (tmp_path / "me.json").write_text(text)
    with pytest.raises(BaselineError) as error:
        Baseline.load(tmp_path / "me.json")
    assert str(error.value).startswith(f"{tmp_path / 'me.json'}: ")
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_a_coach_comes_from_keywords_text_and_a_file(tmp_path):
    (tmp_path / "coach.toml").write_text("fast_ratio = 1.3\nsilence_s = 8\n")
    wanted = Coach(fast_ratio=1.3, silence_s=8.0)
    assert Coach.of({"fast_ratio": 1.3, "silence_s": 8}) == wanted
    assert Coach.parse("fast_ratio=1.3, silence_s=8") == wanted
    assert Coach.parse(str(tmp_path / "coach.toml")) == wanted
    assert Coach.of({"silence_s": 8}, Coach(fast_ratio=1.3)) == wanted
    assert Coach.of({"baseline": USUAL.as_json()}).baseline == USUAL
    USUAL.save(tmp_path / "me.json")
    assert Coach.parse(f"baseline={tmp_path / 'me.json'}").baseline == USUAL


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("fast", "give FILE.toml, or NAME=VALUE"),
        ("fast_ratio=quick", "fast_ratio is 'quick'; it may be 0 to 5"),
        ("fast_ration=1.2", "unknown option 'fast_ration'; known are"),
        ("fast_ratio=0.9", "give more than 1, or 0 for off"),
        ("silence_s=-1", "silence_s is -1.0; it may be 0 to 600"),
        ("none.toml", "none.toml: cannot be read"),
        ("baseline=none.json", "none.json: cannot be read"),
    ],
)
def test_a_coach_that_cannot_be_is_told_in_one_line(text, told):
    with pytest.raises(ConfigError) as error:
        Coach.parse(text)
    assert told in str(error.value)
    assert "\n" not in str(error.value)
