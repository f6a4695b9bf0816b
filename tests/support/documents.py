"""README.md, the pages beside it, and docs/*.md, with their markers (CONTRIBUTING.md, Docs)."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from places import ROOT

BESIDE = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"]
PAGES = [ROOT / name for name in BESIDE] + sorted((ROOT / "docs").glob("*.md"))

_BLOCK = re.compile(
    r"(?:^<!-- (?P<how>not run|run by): [^\n]+? -->\n)?"
    r"^```(?P<kind>[a-z]*)\n(?P<code>.*?)^```$",
    re.M | re.S,
)
_LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.+?) *$", re.M)


def name_of(page):
    """`docs/link.md`, for the name of a test."""
    return str(page.relative_to(ROOT))


@dataclass(frozen=True)
class Block:
    """A block of code; its marker says `how`: "not run", "run by" or None."""

    page: Path
    kind: str
    code: str
    how: str | None


@cache
def blocks_of(page):
    return [
        Block(page, found["kind"], found["code"], found["how"])
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
