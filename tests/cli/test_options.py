"""Options by keyword, in a file and on the command line; what is refused is one line."""

import json
import os
import runpy

import pytest
from places import ROOT, SAMPLES
from processes import run_here

from streamer import Config, Describer, ModelError
from streamer.cli import COMMANDS, build_parser, main, options_class
from streamer.config import ConfigError
from streamer.core.declare import options_of, taken
from streamer.core.decoding.plan import PRESETS
from streamer.extras import load
from streamer.model.thinker import resolve


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"mode": "fast"}, "mode is 'fast'"),
        ({"temperature": float("inf")}, "temperature .* not inf"),
        ({"temperature": 9e-7}, "0 .greedy. or 0.000001 to 1000000, not 9e-07"),
        ({"top_p": 1.1}, "top_p must be above 0 and at most 1, not 1.1"),
        ({"k": 0}, "k is 0; it may be 1 to 64"),
        ({"threshold": float("nan")}, "threshold"),
        ({"cloud": "none", "mode": "exact"}, "needs a cloud"),
        ({"mode": "\udcff"}, "choose one of"),
        ({"max_new_tokens": 8, "min_new_tokens": 9}, "0 to 8"),
        ({"draft": "generate", "temperature": 0.7}, "greedy"),
        ({"attributes": "tempo"}, "names 'tempo'; known are rate"),
        ({"draft": "generate", "attributes": "rate"}, "take draft incremental"),
    ],
)
def test_keywords_that_mean_nothing_are_refused(options, reason):
    with pytest.raises(ConfigError, match=reason) as error:
        Config.of(None, options)
    assert str(error.value).isprintable()


async def test_open_takes_keywords_a_config_or_a_file(tmp_path):
    (tmp_path / "pipeline.toml").write_text('mode = "exact"\nk = 6\n')
    async with Describer.open(tmp_path / "pipeline.toml") as describer:
        assert (describer.config.mode, describer.config.k) == ("exact", 6)
    async with Describer.open(Config(mode="edge", edge="./nowhere")) as describer:
        with pytest.raises(ModelError, match="nowhere"):
            await describer.load()


def test_presets_fill_in_options_that_are_not_given():
    for options, least in (({"max_new_tokens": 8}, 8), ({}, 16), ({"min_new_tokens": 3}, 3)):
        assert Config(**options).plan(PRESETS["fluent"]).rules.min_new_tokens == least
    assert Config(cloud="none").plan(PRESETS["fluent"]).mode == "edge"
    quality = Config(threshold=1.5, preset="quality").plan(PRESETS["quality"])
    assert (quality.threshold, quality.k) == (1.5, 6)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('mode = "gated" # Größe'.encode("latin-1"), "is not TOML"),
        (b"k = 4.5", "k is 4.5; it may be 1 to 64"),
        (b"mdoe = 1", "unknown option 'mdoe'; known are "),
    ],
)
def test_a_file_that_cannot_be_used_is_one_line(tmp_path, text, told):
    (tmp_path / "bad.toml").write_bytes(text)
    with pytest.raises(ConfigError, match=rf"bad\.toml: {told}") as error:
        Config.from_toml(tmp_path / "bad.toml")
    assert str(error.value).isprintable()


def test_pipeline_files_are_valid():
    files = [file for file in (ROOT / "pipelines").glob("*.toml") if file.name != "fleet.toml"]
    assert len([*map(Config.from_toml, files)]) >= 3
    with pytest.raises(ConfigError, match="cannot be read"):
        Config.from_toml("nowhere.toml")


def test_the_command_line_overrides_a_pipeline_file(tiny_models, samples, tmp_path, capsys):
    lines = ['mode = "edge"', "max_new_tokens = 20"]
    lines += [f'{side} = "{path}"' for side, path in tiny_models.items()]
    (tmp_path / "p.toml").write_text("\n".join(lines))
    args = ["describe", str(samples[0]), "--json", "--pipeline", str(tmp_path / "p.toml")]
    for more, mode in (([], "edge"), (["--mode", "exact"], "exact")):
        assert main([*args, *more]) == 0
        row = json.loads(capsys.readouterr().out)
        assert (row["mode"], row["n_tokens"] <= 20) == (mode, True)


def test_every_command_s_example_can_be_typed():
    parser = build_parser()
    for name, (_, example) in COMMANDS.items():
        given = vars(parser.parse_args(example.split()))
        assert options_class(name)(**taken(options_class(name), given))


def test_there_are_few_options():
    """A flag, operand, keyword, threshold of the coach or key of fleet.toml counts once."""
    owners = (Config, load("coach"), *map(options_class, COMMANDS))
    owners += tuple(load("fleet.tables").values())
    names = {each.name for owner in owners for each in options_of(owner)}
    assert len(names) <= 70, sorted(names)


def test_the_page_of_options_is_current():
    page = runpy.run_path(os.fspath(ROOT / "docs/options_page.py"))["page"]
    assert (ROOT / "docs/options.md").read_text("utf-8") == page(), "`make options` writes it"


EDGE = resolve("embedded", "edge")
# words -> exit status, a part of the line. Eight recordings stand for `clips`
CALLS = [
    ("describe", 2, "FILE"),
    ("describe x.wav --k 0", 2, "--k is '0'; it may be 1 to 64"),
    ("describe x.wav --seed x", 2, "--seed is 'x'; Expected `int`"),
    # no option may be shortened: a short one today means two things tomorrow
    ("describe a.wav --quie", 2, "unrecognized arguments: --quie; see streamer describe --help"),
    ("describe here.wav --language fr", 2, "'fr', but this model speaks zh and en; leave it out"),
    ("describe here.wav --timeline s.svg", 2, "give a name in .json, .vtt, .TextGrid or .png"),
    ("describe a.wav b.wav --timeline s.json", 2, "2 are given: give one recording"),
    ("describe a.wav --timeline nowhere/s.json", 2, "cannot be written there"),
    ("compare here.wav", 2, "compare takes two recordings, not 1"),
    ("label a.wav --out labels.txt", 2, "give a name in .jsonl, .csv or .parquet"),
    ("label - --out labels.csv", 2, "label reads files"),
    ("label here.wav --out nowhere/labels.csv", 2, "give a file that can be written"),
    ("mcp ./nowhere", 2, "nowhere is no folder"),
    ("director --replicas ftp://h", 2, "give ws://HOST:PORT of a replica"),
    ("serve --host 0.0.0.0", 2, "set --api-key"),
    ("serve --cert x.pem", 2, "needs both"),
    ("serve --cert x.pem --key y.pem", 2, "cannot be used"),
    ("serve --port 0 --coach fast", 2, "give FILE.toml, or NAME=VALUE"),
    ("serve --port 0 --coach fast_ratio=quick", 2, "fast_ratio is 'quick'; it may be 0 to 5"),
    ("serve --port 0 --coach fast_ration=1.2", 2, "unknown option 'fast_ration'; known are"),
    ("serve --port 0 --coach fast_ratio=0.9", 2, "give more than 1, or 0 for off"),
    ("serve --port 0 --coach silence_s=-1", 2, "silence_s is -1.0; it may be 0 to 600"),
    ("serve --port 0 --coach none.toml", 2, "none.toml: cannot be read"),
    ("serve --port 0 --coach baseline=none.json", 2, "none.json: cannot be read"),
    ("serve --port 0 --edge ./nowhere", 1, "no such model directory"),
    ("calibrate clips --risk 0", 2, "--risk is '0'; it may be above 0 and below 1"),
    ("calibrate clips --risk 0.5 --cloud none", 2, "--cloud is none; calibration needs the model"),
    ("calibrate clips --risk 0.02", 1, "8 clips cannot certify a risk of 0.02: 49 are needed;"),
    ("calibrate clips --risk 0.5 --out /sys/streamer.json", 1, "/sys/streamer.json: cannot be"),
    ("calibrate clips --risk 0.5 --out .", 1, ".: is a directory that exists; name one"),
    ("calibrate clips --risk 0.5", 2, "thresholds come with streamer; --out myedge makes"),
    (f"calibrate clips --risk 0.5 --edge {EDGE}", 2, "(then --edge myedge)"),
    ("tune nothing --cloud embedded --out here", 1, "here exists"),
    ("tune empty --cloud embedded --out new", 1, "no recording there"),
    ("tune empty --cloud embedded --out new --speakers no", 2, "as a table"),
    ("tune empty --cloud embedded --out new --device cuda", 1, "no GPU"),
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current one: two recordings by name, a folder of eight, and two empty ones."""
    monkeypatch.chdir(tmp_path)
    for name in ("clips", "empty", "here"):
        (tmp_path / name).mkdir()
    (tmp_path / "here.wav").symlink_to(SAMPLES[0])
    for i in range(8):
        (tmp_path / "clips" / f"{i}.wav").symlink_to(SAMPLES[i % len(SAMPLES)])


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("words", "status", "told"), CALLS)
def test_a_call_that_cannot_be_is_one_line(words, status, told):
    found, out, err = run_here(*words.split())
    lines = [line for line in err.splitlines() if not line.startswith("loading ")]
    assert (found, out, len(lines)) == (status, "", 1)
    assert told in lines[0]
