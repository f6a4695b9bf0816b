"""Options: declarations, contradictions, and the errors of wrong ones."""

from __future__ import annotations

import argparse
import json
import runpy

import pytest
from places import ROOT

from streamer.cli import COMMANDS, build_parser, main
from streamer.config import Config
from streamer.core.declare import taken


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("--cloud-key k", "--cloud-key is for a verifier elsewhere"),
        ("--mode edge --cloud-audio lazy", "--cloud-audio is for a verifier elsewhere"),
        ("--cloud ws://127.0.0.1:9 --cloud-ca chain.pem", "--cloud-ca is for wss://"),
    ],
)
def test_options_that_cannot_both_be_meant_are_told(options, told, samples, capsys):
    """One line, before any model is loaded, for both commands that take them."""
    commands = [["describe", str(samples[0]), *options.split()], ["serve", *options.split()]]
    for command in commands:
        assert main(command) == 2
        said = capsys.readouterr()
        assert (said.out, said.err.count("\n")) == ("", 1)
        assert told in said.err


@pytest.mark.parametrize(
    "args",
    [
        ("describe",),
        ("describe", "x.wav", "--mode", "fast"),
        ("describe", "x.wav", "--k", "0"),
        ("dance",),
        ("describe", "x.wav", "--k", "4.5"),
        ("describe", "x.wav", "--k", "6", "--k", "7"),
        ("describe", "x.wav", "--temperature", "-1"),
        ("describe", "x.wav", "--cloud", "none", "--mode", "exact"),
    ],
)
def test_bad_usage_is_one_line_and_status_2(here, args):
    status, out, err = here(*args)
    assert (status, out) == (2, "")
    assert len(err.splitlines()) == 1, err


def test_a_pipeline_file_gives_options_and_the_command_line_wins(models, samples, tmp_path, capsys):
    (tmp_path / "p.toml").write_text(
        f'mode = "edge"\nmax_new_tokens = 20\nedge = "{models[1]}"\ncloud = "{models[3]}"'
    )
    args = ["describe", str(samples[0]), "--json", "--pipeline", str(tmp_path / "p.toml")]
    assert main(args) == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["mode"], row["n_tokens"] <= 20) == ("edge", True)
    assert main([*args, "--mode", "exact"]) == 0
    assert json.loads(capsys.readouterr().out)["mode"] == "exact"
    (tmp_path / "p.toml").write_text("mdoe = 1")
    assert main(args) == 2
    told = f"streamer: {tmp_path}/p.toml: unknown option 'mdoe'; did you mean mode?; known are "
    assert capsys.readouterr().err.startswith(told)


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (
            "describe a.wav --mdoe exact",
            "unrecognized arguments: --mdoe exact; did you mean --mode?; see",
        ),
        ("describe a.wav --quie", "unrecognized arguments: --quie; did you mean --quiet?; see"),
        ("serve --max-session=3", "--max-session=3; did you mean --max-sessions?; see"),
        ("descibe a.wav", "did you mean describe?; see streamer --help"),
        (
            "describe a.wav --mode gatd",
            "--mode is 'gatd'; did you mean gated?; choose one of gated, exact, edge, cloud; see",
        ),
    ],
)
def test_a_typo_is_told_with_what_was_meant(command, told, capsys):
    """And no option may be shortened: what is short today means two things tomorrow."""
    with pytest.raises(SystemExit) as ended:
        main(command.split())
    assert ended.value.code == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert told in err


@pytest.mark.parametrize("command", ["describe", "serve", "verifier", "calibrate", "models"])
def test_every_option_s_help_names_its_default(command):
    """And the number or name there is the true one."""
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
        owner = owner if hasattr(owner, action.dest) else Config
        counts = getattr(owner, action.dest)
        if counts is not None and not isinstance(counts, bool | tuple):
            shown = f"{counts:g}" if isinstance(counts, int | float) else counts
            assert told.endswith(f"default {shown}"), told


def test_every_command_s_example_can_be_typed():
    parser = build_parser()
    for command in COMMANDS.values():
        given = vars(parser.parse_args(command.example.split()))
        assert command.options(**taken(command.options, given))


def test_the_page_of_options_is_current():
    page = runpy.run_path(str(ROOT / "docs/options_page.py"))["page"]
    assert (ROOT / "docs/options.md").read_text("utf-8") == page(), "`make options` writes it"
