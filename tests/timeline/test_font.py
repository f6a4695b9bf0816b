"""A font that is installed after matplotlib's list was made, which it keeps for good."""

import pytest

font_manager = pytest.importorskip("matplotlib.font_manager")

from streamer.timeline.font import USUAL, font_for  # noqa: E402


def test_a_font_is_found_that_came_after_the_list(monkeypatch, tmp_path):
    file = font_manager.findfont(USUAL)
    (tmp_path / "broken.ttf").write_bytes(b"no font")
    monkeypatch.setattr(font_manager.fontManager, "ttflist", [])
    monkeypatch.setattr(font_manager, "findSystemFonts", list)
    assert font_for("abc") is None
    files = [str(tmp_path / "broken.ttf"), file]
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: files)
    assert font_for("abc") == USUAL
