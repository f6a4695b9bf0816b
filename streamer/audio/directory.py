"""A directory of recordings. In: a path. Out: the recordings in it, by name."""

from __future__ import annotations

import os
from pathlib import Path

# Names of formats that libsndfile reads, and of containers that ffmpeg opens.
SUFFIXES = frozenset(
    (
        *(".wav", ".w64", ".rf64", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".aif", ".aiff"),
        *(".aifc", ".au", ".snd", ".caf", ".m4a", ".m4b", ".mp4", ".mov", ".webm", ".mkv"),
        *(".mka", ".aac", ".wma", ".amr", ".3gp"),
    )
)


def recordings_in(path: str) -> list[str]:
    """`path` itself unless it is a directory; else the recordings in it and below, sorted.

    Names that begin with a dot are left out. A directory without one stays, and is refused when it
    is opened.
    """
    if not os.path.isdir(path):
        return [path]
    found = []
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        shown = [name for name in sorted(names) if not name.startswith(".")]
        found += [os.path.join(folder, n) for n in shown if Path(n).suffix.lower() in SUFFIXES]
    return found or [path]
