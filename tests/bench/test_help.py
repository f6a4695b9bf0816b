"""Every bench says what it answers before it does anything."""

import importlib
import sys

import pytest
from places import ROOT

PROGRAMS = sorted(
    file.stem
    for file in (ROOT / "bench").glob("*.py")
    if "options_of(parser)" in file.read_text("utf-8")
)


@pytest.mark.parametrize("name", PROGRAMS)
def test_help_says_what_it_is(name, monkeypatch, capsys):
    module = importlib.import_module(f"bench.{name}")
    monkeypatch.setattr(sys, "argv", [f"bench.{name}", "--help"])
    with pytest.raises(SystemExit) as ended:
        module.main()
    assert ended.value.code == 0
    told = " ".join(capsys.readouterr().out.split())
    assert told.startswith("usage: bench.")
    assert module.__doc__.splitlines()[0] in told
