"""Options by keyword, in a file and on the command line; what is refused is one line."""

import argparse
import json
import os
import runpy

import pytest
from places import ROOT

from streamer import Config, Describer, ModelError
from streamer.cli import COMMANDS, build_parser, main
from streamer.config import ConfigError
from streamer.core.declare import options_of, taken
from streamer.core.decoding.plan import PRESETS
from streamer.extras import load


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
        ({"cloud": "none", "mode": "exact"}, "needs a cloud"),
        ({"cloud": "ws://"}, "names no host"),
        ({"cloud": "ws://a\nb:9"}, "names no host"),
        ({"cloud": "ws://a b:9"}, "names no host"),
        ({"mode": "\udcff"}, "choose one of"),
        ({"speed": 3}, "unknown option 'speed'"),
        ({"k": "four"}, "k is 'four'; give a whole number"),
        ({"edge": None}, "edge is None"),
        ({"mode": 3}, "choose one of"),
        ({"seed": -1}, "seed"),
        ({"max_new_tokens": 129}, "1 to 128"),
        ({"max_new_tokens": 8, "min_new_tokens": 9}, "0 to 8"),
        ({"draft": "generate", "temperature": 0.7}, "greedy"),
        ({"attributes": "tempo"}, "names 'tempo'; known are rate"),
        ({"attributes": "acoustic,rate"}, "names 'acoustic'; known are rate"),
        ({"draft": "generate", "attributes": "rate"}, "take draft incremental"),
    ],
)
def test_keywords_that_mean_nothing_are_refused(options, reason):
    with pytest.raises(ConfigError, match=reason) as error:
        Config.from_mapping(options)
    assert str(error.value).isprintable()


async def test_open_takes_keywords_a_config_or_a_file(tmp_path):
    (tmp_path / "pipeline.toml").write_text('mode = "exact"\nk = 6\n')
    async with Describer.open(tmp_path / "pipeline.toml") as describer:
        assert (describer.config.mode, describer.config.k) == ("exact", 6)
    with pytest.raises(ConfigError, match="not both"):
        Describer.open(Config(), mode="edge")
    async with Describer.open(Config(mode="edge", edge="./nowhere")) as describer:
        with pytest.raises(ModelError, match="nowhere"):
            await describer.load()


def test_presets_fill_in_options_that_are_not_given():
    for options, least in (({"max_new_tokens": 8}, 8), ({}, 16), ({"min_new_tokens": 3}, 3)):
        assert Config(**options).plan(PRESETS["fluent"]).rules.min_new_tokens == least
    assert Config(cloud="none").plan(PRESETS["fluent"]).mode == "edge"
    quality = Config(threshold=1.5, preset="quality").plan(PRESETS["quality"])
    assert (quality.gate.entropy, quality.k) == (1.5, 6)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"k = " + b"9" * 5000, "is not TOML"),  # errors of Python's own limits
        (b"a = " + b"[" * 100_000, "is not TOML"),
        ('mode = "gated" # Größe'.encode("latin-1"), "is not TOML"),
        (b"k = 4.5", "k is 4.5; give a whole number"),
        (b"mdoe = 1", "unknown option 'mdoe'; did you mean mode.; known are "),
    ],
)
def test_a_file_that_cannot_be_used_is_one_line(tmp_path, text, told):
    (tmp_path / "bad.toml").write_bytes(text)
    with pytest.raises(ConfigError, match=rf"bad\.toml: {told}") as error:
        Config.from_toml(tmp_path / "bad.toml")
    assert str(error.value).isprintable()


def test_a_file_without_end_is_one_line():
    with pytest.raises(ConfigError, match="/dev/zero: is larger than 1 MiB"):
        Config.from_toml("/dev/zero")


def test_pipeline_files_are_valid():
    files = [file for file in (ROOT / "pipelines").glob("*.toml") if file.name != "fleet.toml"]
    assert len([*map(Config.from_toml, files)]) >= 3
    with pytest.raises(ConfigError, match="cannot be read"):
        Config.from_toml("nowhere.toml")


def test_the_command_line_overrides_a_pipeline_file(models, samples, tmp_path, capsys):
    (tmp_path / "p.toml").write_text(
        f'mode = "edge"\nmax_new_tokens = 20\nedge = "{models[1]}"\ncloud = "{models[3]}"'
    )
    args = ["describe", str(samples[0]), "--json", "--pipeline", str(tmp_path / "p.toml")]
    for more, mode in (([], "edge"), (["--mode", "exact"], "exact")):
        assert main([*args, *more]) == 0
        row = json.loads(capsys.readouterr().out)
        assert (row["mode"], row["n_tokens"] <= 20) == (mode, True)


@pytest.mark.parametrize("command", [name for name, each in COMMANDS.items() if each.has_config])
def test_help_leaves_decoding_to_help_all(command):
    shown, whole = (
        build_parser(shows_all=shows_all)
        ._subparsers._group_actions[0]
        .choices[command]
        .format_help()
        for shows_all in (False, True)
    )
    for jargon in ("token", "--temperature", "--seed", "--mode", "draft", "verifier"):
        assert (jargon in shown, jargon in whole) == (False, True)


@pytest.mark.parametrize("command", ["describe", "serve", "verifier", "calibrate", "models"])
def test_help_names_the_true_default_of_every_option(command):
    (commands,) = (
        action
        for action in build_parser(shows_all=True)._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    for action in commands.choices[command]._actions:
        if not action.option_strings or action.nargs == 0 or action.required:
            continue
        told = " ".join(action.help.split())
        assert "default" in told, action.option_strings
        owner = COMMANDS[command].options
        counts = getattr(owner if hasattr(owner, action.dest) else Config, action.dest)
        if counts is not None and not isinstance(counts, bool | tuple):
            shown = f"{counts:g}" if isinstance(counts, int | float) else counts
            assert told.endswith(f"default {shown}"), told


def test_every_command_s_example_can_be_typed():
    parser = build_parser()
    for command in COMMANDS.values():
        given = vars(parser.parse_args(command.example.split()))
        assert command.options(**taken(command.options, given))


def test_there_are_few_options():
    """Each name of a flag, an operand, a keyword, a threshold of the coach or a key of fleet.toml
    counts once."""
    owners = (Config, load("coach"), *(each.options for each in COMMANDS.values()))
    owners += tuple(load("fleet.tables").values())
    names = {each.name for owner in owners for each in options_of(owner)}
    assert len(names) <= 70, sorted(names)


def test_the_page_of_options_is_current():
    page = runpy.run_path(os.fspath(ROOT / "docs/options_page.py"))["page"]
    assert (ROOT / "docs/options.md").read_text("utf-8") == page(), "`make options` writes it"
