"""The recordings in a directory, by their names."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

# Names of formats that libsndfile reads, and of containers that ffmpeg opens.
SUFFIXES = frozenset(
    (
        *(".wav", ".w64", ".rf64", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".aif", ".aiff"),
        *(".aifc", ".au", ".snd", ".caf", ".m4a", ".m4b", ".mp4", ".mov", ".webm", ".mkv"),
        *(".mka", ".aac", ".wma", ".amr", ".3gp"),
    )
)


def recordings_in(path: str, on_other: Callable[[str], None] = lambda path: None) -> list[str]:
    """`path` itself unless it is a directory; else the recordings in it and below, sorted.

    Names that begin with a dot are left out, and pipes and devices, which might never end:
    `on_other` gets their paths. A directory without a recording stays, and is refused when it is
    opened.
    """
    if not os.path.isdir(path):
        return [path]
    found = []
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        shown = [name for name in sorted(names) if not name.startswith(".")]
        for name in shown:
            file = os.path.join(folder, name)
            if Path(name).suffix.lower() in SUFFIXES:
                is_other = os.path.exists(file) and not os.path.isfile(file)
                on_other(file) if is_other else found.append(file)
    return found or [path]
