"""A font of this machine that has a text's characters: matplotlib's own has no Chinese."""

from __future__ import annotations

import contextlib
import functools

from matplotlib import font_manager
from matplotlib.ft2font import FT2Font

USUAL = "DejaVu Sans"  # matplotlib's own
# The usual ones of Linux, macOS and Windows, the nicest first.
FAMILIES = (
    "Noto Sans CJK SC",
    "Source Han Sans SC",
    "Noto Sans SC",
    "Noto Sans CJK JP",  # a collection of fonts is known by its first one
    "PingFang SC",
    "Hiragino Sans GB",
    "Heiti TC",
    "Microsoft YaHei",
    "SimHei",
    "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei",
    "Arial Unicode MS",
    "Droid Sans Fallback",
    "SimSun",
)


def font_for(text: str) -> str | None:
    """A family that has all characters of `text`: USUAL, one of FAMILIES, or another one with the
    word CJK in its name; None where there is none."""
    wanted = {ord(c) for c in text if not c.isspace()}
    found = _known_for(wanted)
    return found if found or not _look_again() else _known_for(wanted)


def _known_for(wanted: set[int]) -> str | None:
    known = {font.name for font in font_manager.fontManager.ttflist}
    others = sorted(name for name in known if "CJK" in name or "Han S" in name)
    for name in (USUAL, *FAMILIES, *others):
        if name in known and wanted <= _characters(font_manager.findfont(name)):
            return name
    return None


def _look_again() -> bool:
    """Whether there are fonts that came after matplotlib had made its list, which it keeps."""
    manager = font_manager.fontManager
    known = {font.fname for font in manager.ttflist}
    fresh = [file for file in font_manager.findSystemFonts() if file not in known]
    for file in fresh:
        with contextlib.suppress(OSError, RuntimeError):  # one that FreeType cannot read
            manager.addfont(file)
    return bool(fresh)


@functools.lru_cache(maxsize=4)
def _characters(file: str) -> frozenset[int]:
    try:
        return frozenset(FT2Font(file).get_charmap())
    except (OSError, RuntimeError):  # a font that was removed, or that FreeType cannot read
        return frozenset()
