"""Where things stand in a checkout: paths, for tests in any folder; README.md, the pages beside it, and
docs/*.md, with their markers (CONTRIBUTING.md, Docs).
"""

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SUPPORT = ROOT / "tests" / "support"
SAMPLES = sorted((ROOT / "samples").glob("*.wav"))

BESIDE = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"]
PAGES = [ROOT / name for name in BESIDE] + sorted((ROOT / "docs").glob("*.md"))
BLOCK = re.compile(
    r"(?:^<!-- (?P<how>not run|run by): [^\n]+? -->\n)?"
    r"^```(?P<kind>[a-z]*)\n(?P<code>.*?)^```$",
    re.M | re.S,
)


class Block(NamedTuple):
    """A block of code; its marker says `how`: "not run", "run by" or None."""

    page: Path
    how: str | None
    kind: str
    code: str


@cache
def blocks_of(page):
    return [Block(page, *found.groups()) for found in BLOCK.finditer(page.read_text("utf-8"))]


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
    return re.sub(r"<!--.*?-->", "", BLOCK.sub("", page.read_text("utf-8")), flags=re.S)


@cache
def anchors_of(page):
    """The anchors of a page: each heading as a browser's address has it."""
    titles = re.findall(r"^#+ +(.+?) *$", without_code(page), re.M)
    return {re.sub(r"[^\w\- ]", "", each.lower()).strip().replace(" ", "-") for each in titles}
