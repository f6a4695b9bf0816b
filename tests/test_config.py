"""A describer's options: keywords, a Config, a pipeline's file; what is refused is one line."""

from __future__ import annotations

import pytest

from streamer import Config, Describer
from streamer.config import ConfigError
from streamer.model.checkpoint.weights import ModelError


@pytest.fixture
def options(tiny_pair):
    return {"edge": str(tiny_pair[0]), "cloud": str(tiny_pair[1])}


async def test_models_that_cannot_be_used_raise(options):
    async with Describer.open(mode="edge", edge="./nowhere") as describer:
        with pytest.raises(ModelError, match="nowhere"):
            await describer.load()


async def test_open_takes_keywords_a_config_or_a_file(tmp_path):
    file = tmp_path / "pipeline.toml"
    file.write_text('mode = "exact"\nk = 6\n')
    async with Describer.open(file) as describer:
        assert (describer.config.mode, describer.config.k) == ("exact", 6)
    async with Describer.open(Config(mode="edge")) as describer:
        assert describer.config.mode == "edge"
    with pytest.raises(ConfigError, match="not both"):
        async with Describer.open(Config(), mode="edge"):
            pass


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"mode": "fast"}, "mode is 'fast'"),
        ({"edge": ""}, "edge is ''; give embedded"),  # `--edge "$UNSET"` is no directory
        ({"cloud": " "}, "cloud is ' '; give embedded"),
        ({"temperature": float("inf")}, "temperature .* not inf"),
        ({"temperature": 9e-7}, "0 .greedy. or 0.000001 to 1000000, not 9e-07"),
        ({"top_p": 1.1}, "top_p must be above 0 and at most 1, not 1.1"),
        ({"max_new_tokens": None}, "max_new_tokens is None; give a whole number"),
        ({"draft": "magic"}, "draft"),
        ({"k": 0}, "k is 0; it may be 1 to 64"),
        ({"threshold": float("nan")}, "threshold"),
        ({"top_p": 0.0}, "top_p"),
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"num_slots": 0}, "num_slots"),
        ({"cloud": "none", "mode": "exact"}, "needs a cloud"),
        ({"cloud": "ws://"}, "names no host"),
        ({"speed": 3}, "unknown option 'speed'"),
        ({"k": "four"}, "k is 'four'; give a whole number"),
        ({"edge": None}, "edge is None"),
        ({"mode": 3}, "choose one of"),
        ({"rules": {}}, "Rules"),
        ({"seed": -1}, "seed"),
        ({"max_new_tokens": 129}, "1 to 128"),
        ({"max_new_tokens": 8, "min_new_tokens": 9}, "0 to 8"),
        ({"draft": "generate", "temperature": 0.7}, "greedy"),
        ({"attributes": "tempo"}, "names 'tempo'; known are rate"),
        ({"attributes": "rate,arousal", "profile": "acoustic"}, "left out"),
        ({"profile": "quiet"}, "choose one of full, acoustic"),
        ({"draft": "generate", "attributes": "rate"}, "take draft incremental"),
    ],
)
def test_options_that_mean_nothing_are_told(options, reason):
    with pytest.raises(ConfigError, match=reason) as error:
        Config.from_mapping(options)
    assert str(error.value).isprintable()


def test_a_short_maximum_brings_the_minimum_down():
    from streamer.core.decoding.plan import PRESETS

    for most, least in ((8, 8), (16, 16), (96, 16)):
        assert Config(max_new_tokens=most).plan(PRESETS["fluent"]).rules.min_new_tokens == least
    assert Config(min_new_tokens=3).plan(PRESETS["fluent"]).rules.min_new_tokens == 3


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"k = " + b"9" * 5000, "is not TOML"),
        (b"a = " + b"[" * 100_000, "is not TOML"),
        ('mode = "gated" # Größe'.encode("latin-1"), "is not TOML"),
        (b"k = 4.5", "k is 4.5; give a whole number"),
        (b'mode = "edge"\n[rules]\nngram = 3', "rules is no key of a file; give max_new"),
    ],
)
def test_a_file_that_cannot_be_is_one_line(tmp_path, text, told):
    """tomllib also raises errors of Python's own limits."""
    (tmp_path / "bad.toml").write_bytes(text)
    with pytest.raises(ConfigError, match=rf"bad\.toml: {told}") as error:
        Config.from_toml(tmp_path / "bad.toml")
    assert str(error.value).isprintable()


def test_a_file_without_end_is_one_line():
    with pytest.raises(ConfigError, match="/dev/zero: is larger than 1 MiB"):
        Config.from_toml("/dev/zero")


def test_gated_without_a_cloud_is_the_edge():
    from streamer.core.decoding.plan import PRESETS

    assert Config(cloud="none").plan(PRESETS["fluent"]).mode == "edge"
    assert Config(threshold=1.5).plan(PRESETS["quality"]).gate.entropy == 1.5
    assert Config(preset="quality").plan(PRESETS["quality"]).k == 6


def test_pipeline_files_are_valid():
    from places import ROOT

    files = [file for file in (ROOT / "pipelines").glob("*.toml") if file.name != "fleet.toml"]
    assert len(files) >= 3
    for file in files:
        Config.from_toml(file)
    with pytest.raises(ConfigError, match="cannot be read"):
        Config.from_toml("nowhere.toml")
