"""How many levels change where the speech is the same? In: clips. Out: rows.

The clean clip's own description is what counts, not the truth: a change that a listener would not
call another way of speaking should leave every level as it is.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.common import mean, progress
from bench.people_changes import CHANGES, Heard
from bench.people_clips import Clip, read
from bench.people_table import is_no_speech, rightness
from pipelines.embedded.labels import ATTRIBUTES
from streamer import Description

Row = dict[str, Any]
Say = Callable[
    [str, Sequence[np.ndarray], str], list[Description]
]  # (mode, sounds, what for) -> descriptions
SOUNDS = (".wav", ".ogg", ".flac", ".mp3")
NUM_VOICES = 5  # in the babble


def robust_rows(
    clips: Sequence[Clip], modes: Sequence[str], say: Say, changes: Sequence[str] = tuple(CHANGES)
) -> list[Row]:
    """A row for every mode and change: how many of seven levels differ from the clean clip's."""
    changed = {
        name: [CHANGES[name](heard_of(clips, i, name)) for i in progress(range(len(clips)), name)]
        for name in changes
    }
    rows = []
    for mode in modes:
        clean = say(mode, [clip.samples for clip in clips], f"{mode}, clean")
        rows.append(
            {"mode": mode, "change": "none", "clips": len(clips), **against(clips, clean, clean)}
        )
        for name, sounds in changed.items():
            found = say(mode, sounds, f"{mode}, {name}")
            rows.append(
                {"mode": mode, "change": name, "clips": len(clips), **against(clips, clean, found)}
            )
    return rows


def heard_of(clips: Sequence[Clip], index: int, name: str) -> Heard:
    """A clip to be changed; its chance depends on its place and the change alone."""
    clip = clips[index]
    chance = np.random.default_rng([index, zlib.crc32(name.encode())])
    others = [c.samples for c in clips if (c.source, c.speaker) != (clip.source, clip.speaker)]
    picked = chance.permutation(len(others))[:NUM_VOICES]
    # Where nobody else is, the clip itself babbles, from its middle on.
    voices = [others[i] for i in picked] or [np.roll(clip.samples, len(clip.samples) // 2)]
    return Heard(clip.samples, clip.measures.loudness, voices, chance)


def against(
    clips: Sequence[Clip], clean: Sequence[Description], found: Sequence[Description]
) -> Row:
    shares = {
        name: mean(
            float(a.attributes[name] != b.attributes[name])
            for a, b in zip(clean, found, strict=True)
        )
        for name in ATTRIBUTES
    }
    return {
        "levels changed": sum(shares.values()),
        **shares,
        "mean exact": mean(rightness(clip, f) for clip, f in zip(clips, found, strict=True)),
        "called no speech": sum(map(is_no_speech, found)),
    }


def noise_rows(folder: Path, modes: Sequence[str], say: Say) -> list[Row]:
    """Sounds that hold no speech: how many are told so, by mode and the folder that they lie in."""
    files = sorted(file for file in folder.rglob("*") if file.suffix.lower() in SOUNDS)
    if not files:
        raise SystemExit(
            f"{folder} holds no {', '.join(SOUNDS)}; --noise takes a folder of recorded noises"
        )
    sounds = [read(file) for file in progress(files, "reading the noises")]
    rows = []
    for mode in modes:
        told = [is_no_speech(found) for found in say(mode, sounds, f"{mode}, noises")]
        kinds = sorted({file.parent.name for file in files})
        for kind in ("all", *(kinds if len(kinds) > 1 else ())):
            own = [
                t for t, file in zip(told, files, strict=True) if kind in ("all", file.parent.name)
            ]
            rows.append(
                {
                    "mode": mode,
                    "noise": kind,
                    "clips": len(own),
                    "called no speech": mean(map(float, own)),
                }
            )
    return rows
