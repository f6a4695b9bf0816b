"""`streamer label`: recordings in; a table with a row for each out, by a process on each core.

A run that was ended goes on where it was: rows are appended as they come to a file of JSON lines,
which is the table itself, or stands beside it as FILE.rows.jsonl. What was made with other options
is made anew.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from streamer.audio.directory import recordings_in
from streamer.audio.file import AudioError
from streamer.commands.label_rows import Row, Rows, label_of
from streamer.commands.options import LabelOptions
from streamer.commands.process import fail, interrupted_by_sigterm, status_of, tell
from streamer.config import Config, ConfigError, combined
from streamer.progress import Bar
from streamer.workers import Workers, each_done

WORDS = (
    *("preset", "k", "threshold", "draft", "edge", "cloud", "engine"),
    *("temperature", "top_p", "seed", "min_new_tokens", "max_new_tokens"),
)
UNUSED = {"edge": "cloud", "cloud": "edge"}  # of the models
MOST_TOLD = 5  # recordings that failed: the others stand in the table
ENDED = "its process ended (a defect of a library, or too little memory)"


class CannotLabel(Exception):
    """No recording can be described: the models cannot be loaded. One line."""


def run(options: LabelOptions, given: Mapping[str, Any]) -> int:
    """The exit status: 1 when a recording failed, or the work cannot go on. Raises ConfigError."""
    config = combined(options.pipeline, given)
    if not any(map(os.path.exists, options.files)):
        fail(f"{options.files[0]}: no such file")
        return 1
    files = list(dict.fromkeys(file for path in options.files for file in recordings_in(path)))
    rows = Rows.open(Path(options.out))
    todo = rows.left_of(files, made_with(config))
    if num_other := sum(file in rows.done for file in todo):
        tell(f"{num_other} in {rows.path} were made with other options; they are made anew")
    if len(todo) < len(files):
        tell(f"{len(files) - len(todo)} of {len(files)} are in {rows.path} already")
    try:
        with interrupted_by_sigterm():
            _label_all(todo, config, min(options.jobs or _cores(), len(todo)), rows)
            rows.publish(files)
    except BrokenProcessPool:
        fail("processes end as they work (too little memory?); take fewer --jobs to go on")
        return 1
    except CannotLabel as error:
        fail(str(error))
        return 1
    except KeyboardInterrupt as error:
        there = sum(file in rows.done for file in files)
        fail(f"interrupted: {there} of {len(files)} are in {rows.path}; run it again to go on")
        return status_of(error)
    except OSError as error:
        told = f"{options.out} cannot be written ({error.strerror})"
        fail(f"{told}; make room, run it again to go on")
        return 1
    finally:
        rows.close()
    failed = rows.failed(files)
    told = f"{len(files) - len(failed)} of {len(files)} recordings are labelled in {options.out}"
    for file in failed[:MOST_TOLD]:
        fail(f"{file}: {rows.done[file]['error']}")
    tell(f"{told}; {len(failed)} could not be: their rows have `error`" if failed else told)
    return 1 if failed else 0


def made_with(config: Config) -> str:
    """What a row's words depend on: the mode, and what is not the default. A verifier elsewhere is
    told as that: where it is may be a secret."""
    told = {name: getattr(config, name) for name in WORDS if name != UNUSED.get(config.mode)}
    default = {field.name: field.default for field in fields(config)}
    if config.is_away and "cloud" in told:
        told["cloud"] = "elsewhere"
    named = [f"{name} {value}" for name, value in told.items() if value != default[name]]
    says = [] if config.said == Config().said else [f"says {config.said}"]
    return ", ".join([f"mode {config.mode}", *named, *says])


def _cores() -> int:
    from streamer.model.kernels.threads import num_cores

    return num_cores()


def _label_all(files: Sequence[str], config: Config, jobs: int, rows: Rows) -> None:
    """A recording that ends its process (by a defect of a library, or for want of memory) is tried
    once more, with no other beside it; the others go on. Raises BrokenProcessPool where each of
    several does so: then it is not the recordings."""
    num_done = itertools.count(1)
    with Bar("labelling", len(files)) as bar:

        def add(row: Row) -> None:
            rows.add(row)
            bar.show(num := next(num_done), f"{num} of {len(files)}")

        todo = iter(files)
        while in_hand := _in_processes(todo, config, jobs, add):
            ended = [file for file in in_hand if _in_processes(iter([file]), config, 1, add)]
            if len(ended) == len(in_hand) > 1:
                raise BrokenProcessPool(ENDED)
            for file in ended:
                add(Row(file=file, error=ENDED))


def _in_processes(
    todo: Iterator[str], config: Config, jobs: int, add: Callable[[Row], None]
) -> list[str]:
    """Label as many as there are. What was in hand when a process ended, or nothing."""
    in_hand: dict[Future[Row | str], str] = {}
    with Workers(jobs) as pool:
        try:
            for found in each_done(pool, jobs, partial(_label, config), todo, in_hand):
                if isinstance(found, str):
                    raise CannotLabel(found)
                add(found)
        except BrokenProcessPool:
            pass
    return list(in_hand.values())


def _label(config: Config, file: str) -> Row | str:
    """The recording's row, or why none can be had of any recording."""
    from streamer.blocking import describe
    from streamer.model.checkpoint.weights import ModelError

    try:
        return label_of(describe(file, config, measures=True), made_with(config))
    except AudioError as error:
        return Row(file=file, error=error.reason)
    except (ConfigError, ModelError) as error:
        return str(error)
    except Exception as error:
        return Row(file=file, error=f"{type(error).__name__}: {error}")
