"""The recordings of bench/gate.py. In: a length, a number, a seed. Out: each at every threshold."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.common import progress
from streamer.assembly.models import Models
from streamer.commands.calibrate import hear_clip
from streamer.core.calibration import Paths

LENGTHS_S = (3, 10, 30, 60)
CACHE = Path(".cache/embedded")
CLIPS = {"fresh": ("gate_fresh", 5077), "seen": ("gate_test", 22)}  # folder and seed


@dataclass(frozen=True)
class Heard:
    """One recording: paths: preset -> signal -> its paths; levels: attribute -> true level."""

    file: Path
    seconds: int
    speaker: str  # an espeak-ng variant in several languages, or a voice of flite
    levels: dict[str, int]
    paths: dict[str, dict[str, Paths]]


def calibrate(num: int) -> None:
    """The shipped thresholds: these clips, this command."""
    files = [file for seconds in LENGTHS_S for file in recordings("gate", seconds, num, seed=21)]
    pipeline("thresholds", *files)


def pipeline(name: str, *arguments: object) -> None:
    """Run one of pipelines/embedded. Raises CalledProcessError."""
    command = [sys.executable, "-m", f"pipelines.embedded.{name}", *map(str, arguments)]
    subprocess.run(command, check=True)


def recordings(name: str, seconds: int, num: int, seed: int) -> list[Path]:
    """`num` held-out recordings, made where they are not there yet."""
    folder = CACHE / name / str(seconds)
    if not (folder / "labels.jsonl").exists():
        drawn = ("--num", num, "--seconds", seconds, "--seed", seed)
        pipeline("heldout", "--out", folder, *drawn)
    return sorted(folder.glob("*.wav"))[:num]


def hear_all(models: Models, num: int, folder: str, seed: int) -> list[Heard]:
    """Every clip with speech; those taken for silence are told."""
    wanted = [(s, file) for s in LENGTHS_S for file in recordings(folder, s, num, seed)]
    labels: dict[Path, dict[str, Any]] = {}
    for home in {file.parent for _, file in wanted}:
        for line in (home / "labels.jsonl").read_text().splitlines():
            row = json.loads(line)
            labels[home / row["file"]] = row
    found = []
    for seconds, file in progress(wanted, "hearing"):
        clip = hear_clip(models, str(file))
        if clip is None:
            print(f"{file}: taken for silence, left out")
            continue
        paths = {
            name: {signal: turns[0] for signal, turns in of.items()}
            for name, of in clip.paths.items()
        }
        row = labels[file]
        found.append(Heard(file, seconds, row["voice"].split("+")[1], row["levels"], paths))
    return found
