"""README.md and docs/: links lead somewhere, code runs, tables list what the code has."""

import contextlib
import os
import re
import runpy
import shlex
import subprocess
import sys
import warnings
from typing import get_args

import pytest
from far import free_port
from places import PAGES, ROOT, SAMPLES, anchors_of, block_of, blocks, without_code
from processes import ended, started

import streamer
from streamer import LiveSession
from streamer.cli import build_parser
from streamer.core.attributes import ATTRIBUTES, ENGLISH
from streamer.core.description import JSON_FIELDS
from streamer.core.link import wire
from streamer.model.checkpoint.card import read_card
from streamer.model.thinker import resolve
from streamer.net.realtime.client_events import OPTIONS
from streamer.stages import events

ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)\)")
PATH = re.compile(r"`((?:streamer|tests|bench|clients|pipelines|docs|samples)/[\w./-]+\w/?)`")
MODEL_CARD = ROOT / "streamer/model/embedded/MODEL_CARD.md"
REPORT = ROOT / "pipelines/embedded/REPORT.md"


def name_of(page):
    """`docs/link.md`, for the name of a test."""
    return str(page.relative_to(ROOT))


def runnable(kind):
    """Blocks of this kind that no marker takes out."""
    found = [block for block in blocks(kind) if block.how is None]
    names = [f"{name_of(block.page)}-{i}" for i, block in enumerate(found)]
    return pytest.mark.parametrize("block", found, ids=names)


@pytest.mark.parametrize("page", [*PAGES, MODEL_CARD, REPORT], ids=name_of)
def test_links_lead_somewhere(page):
    for target in LINK.findall(without_code(page)):
        place, _, anchor = target.partition("#")
        assert "://" not in place, f"{target}: outside the repository"
        file = (page.parent / place).resolve() if place else page
        assert file.exists(), f"{target}: no such file"
        assert not anchor or anchor in anchors_of(file), f"{target}: no such heading"
    missing = [name for name in PATH.findall(without_code(page)) if not (ROOT / name).exists()]
    assert page not in PAGES or not missing


@runnable("python")
def test_python_runs_as_it_stands(block, tmp_path, monkeypatch, capfd):
    """The README's as programs of their own, the others in this process."""
    (tmp_path / "clip.wav").symlink_to(SAMPLES[0])
    (tmp_path / "samples").symlink_to(ROOT / "samples")
    monkeypatch.chdir(tmp_path)
    if name_of(block.page) == "README.md":
        subprocess.run([sys.executable, "-c", block.code], env=ENVIRONMENT, check=True)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            exec(block.code, {"__name__": "__main__"})
    out, err = capfd.readouterr()
    assert err == ""
    assert out.strip(), "it shows nothing"


@runnable("console")
def test_console_says_what_is_shown(block):
    """`$ command`, and below it what it writes to stdout."""
    for part in block.code.split("$ ")[1:]:
        command, _, shown = part.partition("\n")
        words = shlex.split(command)
        assert words[0] == "streamer", f"{command}: mark it, or let it begin with streamer"
        done = ended(sys.executable, "-m", *words, cwd=ROOT, env=ENVIRONMENT)
        assert (done.returncode, done.stdout) == (0, shown)


def commands_of(code):
    """The lines of a shell block that call streamer, as words after that name."""
    joined = code.replace("\\\n", " ")
    lines = [shlex.split(line.removeprefix("$ "), comments=True) for line in joined.splitlines()]
    for words in lines:
        while words and "=" in words[0]:  # a variable of the environment
            words = words[1:]
        if words and words[0] == "streamer":
            yield words[1:]


@pytest.mark.parametrize("kind", ["sh", "console"])
def test_every_command_has_the_options_that_there_are(kind, capsys):
    """Whether it is run or not: the parser takes it."""
    found = [(block.page, words) for block in blocks(kind) for words in commands_of(block.code)]
    for page, words in found:
        with contextlib.suppress(SystemExit):  # argparse has said why, which is read below
            _, unknown = build_parser().parse_known_args(words)
            assert not unknown, f"{name_of(page)}: {words}"
        assert capsys.readouterr().err == "", f"{name_of(page)}: {words}"
    assert found


def test_modules_that_are_called_are_there():
    """`python -m bench.quality` and the like; a paragraph may name a module of an older commit."""
    paragraphs = [part for page in PAGES for part in page.read_text("utf-8").split("\n\n")]
    now = " ".join(p for p in paragraphs if not re.search(r"At commit [0-9a-f]{7} ", p))
    called = set(re.findall(r"python -m ((?:bench|pipelines|streamer)\b[\w.]*)", now))
    missing = [name for name in called if not (ROOT / f"{name.replace('.', '/')}.py").exists()]
    assert called
    assert [name for name in missing if not (ROOT / name.replace(".", "/")).is_dir()] == []


def test_the_pictures_are_what_the_script_draws():
    script = ROOT / "docs/pictures/draw.py"
    for name, draw in runpy.run_path(str(script))["PICTURES"].items():
        assert (script.parent / name).read_text("utf-8") == draw(), f"{name}: run draw.py"


def test_the_site_builds_without_a_warning(tmp_path):
    """`make docs`, where the site's builder is installed: strict, so a broken link ends it."""
    pytest.importorskip("mkdocs")
    build = ("mkdocs", "build", "--strict", "--site-dir", tmp_path)
    done = ended(sys.executable, "-m", *build, cwd=ROOT, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    assert "speculat" in (tmp_path / "search/search_index.json").read_text("utf-8")


def rows(page, heading):
    """The cells of every row of the table whose head begins with `heading`, its head left out."""
    _, _, below = (ROOT / "docs" / page).read_text("utf-8").partition(f"| {heading} |")
    assert below, f"no table begins with {heading}"
    table = re.match(r"[^\n]*\n\|[-|]+\|\n((?:\|[^\n]*\n)+)", below)[1]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines()]


def first_names(page, heading):
    return {name for row in rows(page, heading) for name in re.findall(r"`([^`]+)`", row[0])}


def test_the_api_s_tables_are_complete():
    assert first_names("api.md", "field") == {*JSON_FIELDS, "counts", "curves"}
    told = {name.partition("(")[0] for name in first_names("api.md", "method")}
    public = {name for name, kind in vars(LiveSession).items() if callable(kind)}
    assert told == {name for name in public if not name.startswith("_")} - {"catch_up", "events"}
    own = {kind for kind in get_args(events.Event) if kind is not events.CoachEvent}
    kinds = own | {streamer.Nudge, streamer.CoachNews, streamer.BaselineKnown}
    assert first_names("api.md", "event") == {kind.__name__ for kind in kinds}
    assert first_names("realtime.md", "name") == set(OPTIONS)


@pytest.mark.parametrize(("end", "messages"), [("edge", wire.Up), ("verifier", wire.Down)])
def test_the_wire_is_that_of_the_code(end, messages):
    told = {
        (int(kind), name): fields_of.split(", ")
        for sender, kind, name, fields_of, _ in rows("link.md", "from")
        if sender == end
    }
    there = {
        (kind.__struct_config__.tag, kind.__name__): list(kind.__struct_fields__)
        for kind in get_args(messages)
    }
    assert told == there


@pytest.mark.parametrize("role", ["edge", "cloud"])
def test_the_table_of_attributes_is_that_of_the_models(role):
    shown = {
        re.search(r"`(\w+)`", name)[1]: [cell for cell in cells if cell]
        for name, *cells in rows("attributes.md", "attribute")
    }
    phrases = read_card(resolve("embedded", role)).attributes
    assert shown == {
        name: [
            f"**{level['name']}** {ENGLISH[name][level['name']]}: {' / '.join(level['phrases'])}"
            for level in levels
        ]
        for name, levels in phrases.items()
    }
    assert tuple(shown) == ATTRIBUTES


def test_the_way_over_tls_is_the_way(tmp_path):
    """The lines of docs/link.md. Mistakes: tests/net/link/test_mistakes.py."""
    block = block_of("docs/link.md", "openssl ").replace("\\\n", "")
    make, verifier, describe = block.replace("8766", str(free_port())).splitlines()
    port = re.search(r"wss://127.0.0.1:(\d+)", describe)[1]
    (tmp_path / "clip.wav").symlink_to(SAMPLES[0])
    command = tmp_path / "streamer"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m streamer "$@"\n')
    command.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    given = {"cwd": tmp_path, "env": ENVIRONMENT | {"PYTHONPATH": str(ROOT), "PATH": path}}

    def run(line):
        done = ended("sh", "-c", line, **given)
        return done.returncode, done.stdout, done.stderr

    assert run(make)[0] == 0
    verifier = f"exec env {verifier} --port {port}"
    with started(verifier, program=("sh", "-c"), stderr=subprocess.DEVNULL, **given) as far:
        assert far.stdout.readline().startswith(f"listening on wss://127.0.0.1:{port} ")
        status, out, err = run(describe)
        assert (status, out.count("\n")) == (0, 1), err
        assert out.startswith("说话人")
