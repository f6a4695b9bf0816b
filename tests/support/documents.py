"""The repository's pages as tests read them: README.md, the pages beside it, and docs/*.md.

A marker is a comment above a block of code: `<!-- not run: why -->` leaves the block out of the
tests, and `<!-- run by: tests/file.py -->` names the test that runs it in its own way.
"""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from places import ROOT

BESIDE = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"]
PAGES = [ROOT / name for name in BESIDE] + sorted((ROOT / "docs").glob("*.md"))
MIN_WORDS_OF_A_CELL = 8  # a shorter cell of a table is a name or a figure, no sentence

_BLOCK = re.compile(
    r"(?:^<!-- (?P<how>not run|run by): (?P<why>[^\n]+?) -->\n)?"
    r"^```(?P<kind>[a-z]*)\n(?P<code>.*?)^```$",
    re.M | re.S,
)
_LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.+?) *$", re.M)
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')*]* +")


def name_of(page):
    """`docs/link.md`, for the name of a test."""
    return str(page.relative_to(ROOT))


@dataclass(frozen=True)
class Block:
    """A block of code, and what its marker says: `how` is "not run", "run by" or None."""

    page: Path
    kind: str
    code: str
    how: str | None
    why: str | None


@cache
def blocks_of(page):
    return [
        Block(page, found["kind"], found["code"], found["how"], found["why"])
        for found in _BLOCK.finditer(page.read_text("utf-8"))
    ]


def blocks(kind):
    """Every block of this kind on every page."""
    return [block for page in PAGES for block in blocks_of(page) if block.kind == kind]


def block_of(page, start):
    """The one block of a page that begins so."""
    (code,) = [b.code for b in blocks_of(ROOT / page) if b.code.startswith(start)]
    return code


@cache
def without_code(page):
    """The page's text, its blocks and comments left out."""
    return re.sub(r"<!--.*?-->", "", _BLOCK.sub("", page.read_text("utf-8")), flags=re.S)


def links_of(page):
    """The target of every link and picture."""
    return [found["target"] for found in _LINK.finditer(without_code(page))]


@cache
def anchors_of(page):
    """What a link may name behind #: each heading as a browser's address has it."""
    plain = (
        re.sub(r"[^\w\- ]", "", title.lower()) for title in _HEADING.findall(without_code(page))
    )
    return {title.strip().replace(" ", "-") for title in plain}


def sentences_of(page):
    """Every sentence of the page's prose, lists and longer cells, as a list of its words. A path
    or a command in backticks is one word."""
    return [
        words
        for unit in _units(without_code(page))
        for sentence in _SENTENCE_END.split(_plain(unit))
        if (words := [word for word in sentence.split() if re.search(r"\w", word)])
    ]


def _units(text):
    """Paragraphs, items of lists, and those cells of tables that hold a sentence."""
    unit = []
    for line in [*text.splitlines(), ""]:
        is_row = line.startswith("|")
        begins = not line.strip() or is_row or re.match(r" *([-*]|\d+\.) |#|>", line)
        if begins and unit:
            yield " ".join(unit)
            unit = []
        if is_row:
            cells = (cell.strip() for cell in line.strip("|").split("|"))
            yield from (cell for cell in cells if len(_plain(cell).split()) >= MIN_WORDS_OF_A_CELL)
        elif line.strip() and not line.startswith("#"):
            unit.append(re.sub(r"^ *([-*>]|\d+\.) ", "", line.strip()))


def _plain(text):
    """Without marks: a link is its words, code is one word, a picture is nothing."""
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", text)
    text = re.sub(r"`[^`]+`", "Code", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return text.replace("**", "").strip()
