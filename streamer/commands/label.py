"""`streamer label`: a table with a row for each recording, made by one process for each core.

Rows are appended as they come to a file of JSON lines (label_table.py). A run that was interrupted
goes on there. Rows that were made with other options, or that hold an error, are made again.
"""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from streamer.audio.source import AudioError, recordings_in
from streamer.commands.label_table import (
    INTERVAL_NAMES,
    NAMES,
    OF_VOICE,
    Row,
    Rows,
    row_of,
    rows_of_intervals,
)
from streamer.commands.options import LabelOptions, reference_of
from streamer.commands.process import (
    Failed,
    Workers,
    each_done,
    fail,
    interrupted_by_sigterm,
    pass_over,
    status_of,
    tell,
)
from streamer.config import Config, ConfigError, combined
from streamer.core.measures.speech_measures import PitchReference
from streamer.intervals import measured_with_warning, read_intervals
from streamer.progress import Bar

WORDS = (
    *("preset", "k", "threshold", "draft", "edge", "cloud", "engine"),
    *("temperature", "top_p", "seed", "min_new_tokens", "max_new_tokens", "language"),
)
UNUSED = {"edge": "cloud", "cloud": "edge"}  # mode -> the model that it does not use
MAX_SHOWN = 5  # errors on stderr; the table holds all
ENDED = "its process ended (a defect of a library, or too little memory)"
Labelled = tuple[Sequence[Row], Sequence[str]]  # rows of a recording, and warnings about the run
Work = Callable[[str], Labelled]
RowsOf = Callable[[str, PitchReference, str], Sequence[Row]]


def run(options: LabelOptions, given: Mapping[str, Any]) -> int:
    """The exit status: 1 if a recording failed, or the work cannot go on. Raises ConfigError."""
    if options.intervals is not None and (unused := [*given, *filter(None, [options.pipeline])]):
        name = "pipeline" if options.pipeline else unused[0].replace("_", "-")
        why = "whose rows are measures alone"
        raise ConfigError(f"--{name} has no effect with --intervals, {why}; leave it out")
    config = combined(options.pipeline, given)
    if not any(map(os.path.exists, options.files)):
        fail(f"{options.files[0]}: no such file")
        return 1
    found = (file for path in options.files for file in recordings_in(path, pass_over))
    files = list(dict.fromkeys(found))
    names = (
        *(NAMES if options.intervals is None else INTERVAL_NAMES),
        *(OF_VOICE if options.pitch_reference else ()),
    )
    rows = Rows.open(Path(options.out), names)
    work, made = _work(options, config)
    todo = rows.left_of(files, made)
    if num_other := sum(map(rows.has, todo)):
        tell(f"{num_other} in {rows.path} were made with other options; they are made anew")
    if len(todo) < len(files):
        tell(f"{len(files) - len(todo)} of {len(files)} are in {rows.path} already")
    try:
        with interrupted_by_sigterm():
            _label_all(todo, work, min(options.jobs or _cores(), len(todo)), rows)
            rows.publish(files)
    except BrokenProcessPool:
        told = "processes end as they work (too little memory?); take fewer --jobs to go on"
        raise Failed(told) from None
    except KeyboardInterrupt as error:
        there = sum(map(rows.has, files))
        fail(f"interrupted: {there} of {len(files)} are in {rows.path}; run it again to go on")
        return status_of(error)
    except OSError as error:
        told = f"{options.out} cannot be written ({error.strerror})"
        fail(f"{told}; make room, run it again to go on")
        return 1
    finally:
        rows.close()
    return _report(rows, files, options.out)


def _work(options: LabelOptions, config: Config) -> tuple[Work, str]:
    """The function that labels one recording, and `made_with` of its rows."""
    reference = reference_of(options.pitch_reference)
    kind = options.intervals
    made = made_with(config) if kind is None else f"intervals {kind}"
    if reference is not None:
        made += f", pitch_reference {options.pitch_reference}"
    rows_of = partial(_describe, config) if kind is None else partial(_measure, kind)
    return partial(_label, rows_of, reference, made), made


def _report(rows: Rows, files: Sequence[str], out: str) -> int:
    failed = [file for file in files if rows.error_of(file) is not None]
    for file in failed[:MAX_SHOWN]:
        fail(f"{file}: {rows.error_of(file)}")
    told = f"{len(files) - len(failed)} of {len(files)} recordings are labelled in {out}"
    if num_silent := sum(map(rows.is_silent, files)):
        told += f", {num_silent} of them without speech and so without a sentence"
    if rows.path.name != Path(out).name:
        told += f" (a later run goes on from {rows.path.name} beside it)"
    tell(f"{told}; {len(failed)} could not be: their rows have `error`" if failed else told)
    num_single = sum(rows.lacks_voice(file) for file in files)
    if OF_VOICE[0] in rows.names and num_single:
        why = "auto needs two turns or more (a recording over 60 s, or --intervals)"
        tell(f"{num_single} have no voice_pitch: {why}, or give HZ")
    return 1 if failed else 0


def made_with(config: Config) -> str:
    """The options that a row's words depend on: the mode, and others that are not the default. The
    address of a verifier is left out: it may be a secret."""
    told = {name: getattr(config, name) for name in WORDS if name != UNUSED.get(config.mode)}
    default = {field.name: field.default for field in fields(config)}
    if config.is_away and "cloud" in told:
        told["cloud"] = "elsewhere"
    named = [f"{name} {value}" for name, value in told.items() if value != default[name]]
    says = [] if config.said == Config().said else [f"says {config.said}"]
    return ", ".join([f"mode {config.mode}", *named, *says])


def _cores() -> int:
    from streamer.model.devices import num_cores

    return num_cores()


def _label_all(files: Sequence[str], work: Work, jobs: int, rows: Rows) -> None:
    """A recording that ends its process is tried once more, alone; the others go on. Raises
    BrokenProcessPool if each of several does so: then the recordings are not the cause."""
    num_done = itertools.count(1)
    told: set[str] = set()
    with Bar("labelling", len(files)) as bar:

        def add(labelled: Labelled) -> None:
            found, warned = labelled
            rows.add(*found)
            for line in set(warned) - told:  # each process warns
                told.add(line)
                bar.hide()
                fail(line)
            bar.show(num := next(num_done), f"{num} of {len(files)}")

        todo = iter(files)
        while in_hand := _in_processes(todo, work, jobs, add):
            ended = [file for file in in_hand if _in_processes(iter([file]), work, 1, add)]
            if len(ended) == len(in_hand) > 1:
                raise BrokenProcessPool(ENDED)
            for file in ended:
                add(([{"file": file, "error": ENDED}], []))


def _in_processes(
    todo: Iterator[str], work: Work, jobs: int, add: Callable[[Labelled], None]
) -> list[str]:
    """Label all. If a process ends: the recordings that were in progress."""
    in_hand: dict[Future[Labelled], str] = {}
    with Workers(jobs) as pool, suppress(BrokenProcessPool):
        for found in each_done(pool, jobs, work, todo, in_hand):
            add(found)
    return list(in_hand.values())


def _label(rows_of: RowsOf, reference: PitchReference, made: str, file: str) -> Labelled:
    with warnings.catch_warnings(record=True) as warned:
        rows = _rows_or_error(rows_of, reference, made, file)
    return rows, [str(each.message) for each in warned]


def _rows_or_error(
    rows_of: RowsOf, reference: PitchReference, made: str, file: str
) -> Sequence[Row]:
    """The rows of a recording, or one with its error. Raises Failed if none can be described."""
    try:
        return rows_of(file, reference, made)
    except AudioError as error:
        return [{"file": file, "error": error.reason}]
    except Failed:
        raise
    except Exception as error:
        is_told = isinstance(error, ConfigError | ValueError)
        told = str(error) if is_told else f"{type(error).__name__}: {error}"
        return [{"file": file, "error": told}]


def _describe(config: Config, file: str, reference: PitchReference, made: str) -> Sequence[Row]:
    from streamer.blocking import describe
    from streamer.model.checkpoint.weights import ModelError

    try:
        return [row_of(describe(file, config, pitch_reference=reference), made)]
    except (ConfigError, ModelError) as error:
        raise Failed(str(error)) from None


def _measure(kind: str, file: str, reference: PitchReference, made: str) -> Sequence[Row]:
    """A row for each interval in the file beside the recording."""
    intervals = read_intervals(Path(file).with_suffix(f".{kind}"))
    found, warning = measured_with_warning(file, intervals)
    return rows_of_intervals(file, intervals, found, made, reference, warning)
