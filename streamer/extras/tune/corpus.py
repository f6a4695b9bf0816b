"""A folder of recordings in; its turns out, labelled. In as many processes as there are cores.

A run that was ended goes on where it was: a row is appended for each recording that was heard.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from typing import Any

from streamer.audio.directory import recordings_in
from streamer.commands.process import fail
from streamer.extras.tune.listen import listen, stamp_of
from streamer.extras.tune.turn import LearntTurn, TuneError
from streamer.progress import Bar
from streamer.workers import Workers, each_done

LEAST = 8  # turns: with fewer of them nothing can be learnt and judged


def turns_of(paths: Sequence[str], turn_s: float, work: Path, jobs: int) -> list[LearntTurn]:
    """Every turn that can be learnt from, by file. Raises TuneError where there are too few."""
    files = list(dict.fromkeys(file for path in paths for file in recordings_in(path)))
    files = [file for file in files if not os.path.isdir(file)]
    if not files:
        raise TuneError(f"{paths[0]}: no recording there; give a folder that holds some")
    rows = _rows(work)
    try:
        _hear_all([file for file in files if file not in rows], turn_s, work, jobs, rows)
    except BrokenProcessPool:
        told = "a process ended while it listened (too little memory?); run it again to go on"
        raise TuneError(told) from None
    except OSError as error:
        told = f"{work} cannot be written ({error.strerror}); make room, run it again to go on"
        raise TuneError(told) from None
    found = [LearntTurn(**turn) for file in files for turn in rows[file]["turns"]]
    _tell(files, rows)
    if len(found) < LEAST:
        told = f"{len(found)} turns with speech in {len(files)} recordings"
        raise TuneError(f"{told}: {LEAST} are needed, some hundred are useful; give more")
    return found


def _tell(files: Sequence[str], rows: dict[str, dict[str, Any]]) -> None:
    """What was left out is counted; of what cannot be read, the first is named."""
    broken = [rows[file] for file in files if rows[file]["error"]]
    if broken:
        first = f"the first is {broken[0]['file']}: {broken[0]['error']}"
        fail(f"{len(broken)} of {len(files)} recordings cannot be read and are left out; {first}")
    if silent := sum(rows[file]["num_silent"] for file in files):
        fail(f"{silent} turns hold less than 1.5 s of speech and are left out")


def _rows(work: Path) -> dict[str, dict[str, Any]]:
    """What an earlier run heard. A line that was cut off is heard again, and so is a recording that
    changed, or whose log-mel is gone."""
    found: dict[str, dict[str, Any]] = {}
    path = work / "turns.jsonl"
    if path.exists():
        for line in path.read_text("ascii", errors="replace").splitlines():
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if row["error"] is None:
                found[row["file"]] = row
    return {file: row for file, row in found.items() if _stands(row, work / "features")}


def _stands(row: dict[str, Any], folder: Path) -> bool:
    has_all = all((folder / turn["features"]).exists() for turn in row["turns"])
    return has_all and row.get("stamp") == stamp_of(row["file"])


def _hear_all(
    todo: Sequence[str], turn_s: float, work: Path, jobs: int, rows: dict[str, dict[str, Any]]
) -> None:
    """Puts the rows into `rows` and behind turns.jsonl. Raises OSError, BrokenProcessPool."""
    folder = work / "features"
    folder.mkdir(exist_ok=True)
    hear = partial(listen, turn_s=turn_s, folder=folder)
    jobs = min(jobs, len(todo))
    with (
        Bar("listening", len(todo)) as bar,
        (work / "turns.jsonl").open("a", encoding="ascii") as out,
        Workers(jobs) as pool,
    ):
        out.write("\n")  # behind a line that was cut off
        done = each_done(pool, jobs, hear, iter(todo), {})
        for num_done, row in enumerate(done, 1):
            rows[row["file"]] = row
            out.write(json.dumps(row) + "\n")
            out.flush()
            bar.show(num_done, f"{num_done} of {len(todo)}")
