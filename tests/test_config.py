"""Options at their edges: what is refused says option, value and what is allowed, in one line."""

import contextlib
import io

import pytest

from streamer.cli import build_parser
from streamer.config import Config, ConfigError


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        # `--edge "$UNSET"` would take the current directory
        ({"edge": ""}, "edge is ''; give embedded"),
        ({"cloud": " "}, "cloud is ' '; give embedded"),
        (
            {"draft": "generate", "temperature": 0.7},
            "temperature is 0.7.* greedy.* draft incremental",
        ),
        ({"temperature": float("inf")}, "temperature .* not inf"),
        ({"temperature": 9e-7}, "0 .greedy. or 0.000001 to 1000000, not 9e-07"),
        ({"temperature": True}, "temperature is True; give a number"),
        ({"top_p": 1.1}, "top_p must be above 0 and at most 1, not 1.1"),
        ({"top_p": float("nan")}, "top_p .* not nan"),
        ({"min_new_tokens": True}, "min_new_tokens is True; give a whole number"),
        ({"max_new_tokens": None}, "max_new_tokens is None; give a whole number"),
    ],
)
def test_what_is_refused_names_option_value_and_way_out(options, reason):
    with pytest.raises(ConfigError, match=reason) as error:
        Config.from_mapping(options)
    assert str(error.value).isprintable()


def test_the_least_temperature_and_a_greedy_generate_are_taken():
    assert Config(temperature=1e-6).sampling().temperature == 1e-6
    assert Config(draft="generate", temperature=0).draft == "generate"


@pytest.mark.parametrize("text", ["k = " + "9" * 5000, "a = " + "[" * 100_000, "k = "])
def test_a_file_that_is_not_toml_is_one_line(tmp_path, text):
    """tomllib passes on what Python's own limits raise: no error of TOML, and so a traceback."""
    (tmp_path / "bad.toml").write_text(text)
    with pytest.raises(ConfigError, match=r"bad\.toml: is not TOML") as error:
        Config.from_toml(tmp_path / "bad.toml")
    assert str(error.value).isprintable()


def test_an_option_that_is_wrong_in_a_file_is_no_error_of_toml(tmp_path):
    (tmp_path / "k.toml").write_text("k = 4.5")
    with pytest.raises(ConfigError, match=r"k\.toml: k is 4.5; give a whole number"):
        Config.from_toml(tmp_path / "k.toml")


def test_what_the_generate_drafter_ignores_is_said():
    with pytest.raises(SystemExit), contextlib.redirect_stdout(io.StringIO()) as shown:
        build_parser(shows_all=True).parse_args(["describe", "--help"])
    for text in (shown.getvalue(), Config.__doc__):
        said = " ".join(text.split())
        for fact in ("greedy", "none of our rules", "verified ids still follow them"):
            assert fact in said
