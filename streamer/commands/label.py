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
from contextlib import closing, suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from streamer.audio.source import AudioError
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
    each_done,
    fail,
    interrupted_by_sigterm,
    recordings_of,
    tell,
)
from streamer.config import Config, ConfigError, combined
from streamer.core.measures.speech_measures import PitchReference
from streamer.intervals import measured_with_warning, read_intervals
from streamer.model.devices import num_cores
from streamer.progress import Bar

# options that a row's words do not depend on
FREE = ("device", "cloud_key", "cloud_audio", "verify_budget_s", "num_slots")
UNUSED = {"edge": "cloud", "cloud": "edge"}  # mode -> the model that it does not use
MAX_SHOWN = 5  # errors on stderr; the table holds all
ENDED = "its process ended (a defect of a library, or too little memory)"
Labelled = tuple[Sequence[Row], Sequence[str]]  # rows of a recording, and warnings about the run


@dataclass(frozen=True)
class Work:
    """Labels one recording, in a process of its own. kind: of the file of intervals beside it."""

    config: Config
    kind: str | None
    reference: PitchReference
    made_with: str

    def __call__(self, file: str) -> Labelled:
        """Its rows, or one with its error. Raises Failed if none can be described."""
        with warnings.catch_warnings(record=True) as warned:
            try:
                rows = self._described(file) if self.kind is None else self._measured(file)
            except Failed:
                raise
            except (AudioError, ConfigError) as error:  # of an AudioError: without its file
                rows = [{"file": file, "error": getattr(error, "reason", str(error))}]
            except Exception as error:
                rows = [{"file": file, "error": f"{type(error).__name__}: {error}"}]
        return rows, [str(each.message) for each in warned]

    def _described(self, file: str) -> Sequence[Row]:
        from streamer.blocking import describe
        from streamer.model.checkpoint.weights import ModelError

        try:
            found = describe(file, self.config, pitch_reference=self.reference)
        except (ConfigError, ModelError) as error:
            raise Failed(str(error)) from None
        return [row_of(found, self.made_with)]

    def _measured(self, file: str) -> Sequence[Row]:
        """A row for each interval in the file beside the recording."""
        intervals = read_intervals(Path(file).with_suffix(f".{self.kind}"))
        found, warning = measured_with_warning(file, intervals)
        return rows_of_intervals(file, intervals, found, self.made_with, self.reference, warning)


def run(options: LabelOptions, given: Mapping[str, Any]) -> int:
    """The exit status: 1 if a recording failed, or the work cannot go on. Raises ConfigError."""
    config = combined(options.pipeline, given)
    if not any(map(os.path.exists, options.files)):
        raise Failed(f"{options.files[0]}: no such file")
    files = list(dict.fromkeys(recordings_of(options.files)))
    kind, reference = options.intervals, reference_of(options.pitch_reference)
    names = NAMES if kind is None else INTERVAL_NAMES
    made = made_with(config) if kind is None else f"intervals {kind}"
    if reference is not None:
        names = (*names, *OF_VOICE)
        made += f", pitch_reference {options.pitch_reference}"
    work, rows = Work(config, kind, reference, made), Rows(Path(options.out), names)
    jobs = options.jobs or num_cores()
    todo = rows.left_of(files, work.made_with)
    if num_other := sum(map(rows.has, todo)):
        tell(f"{num_other} in {rows.path} were made with other options; they are made anew")
    if len(todo) < len(files):
        tell(f"{len(files) - len(todo)} of {len(files)} are in {rows.path} already")
    try:
        with interrupted_by_sigterm():
            _label_all(todo, work, min(jobs, len(todo)), rows)
            rows.publish(files)
    except BrokenProcessPool:
        told = "processes end as they work (too little memory?); take fewer --jobs to go on"
        raise Failed(told) from None
    except KeyboardInterrupt:
        there = sum(map(rows.has, files))
        fail(f"interrupted: {there} of {len(files)} are in {rows.path}; run it again to go on")
        raise
    except OSError as error:
        told = f"{options.out} cannot be written ({error.strerror}); make room, run it again"
        raise Failed(told) from None
    finally:
        rows.close()
    return _report(rows, files, options.out)


def _report(rows: Rows, files: Sequence[str], out: str) -> int:
    failed = [file for file in files if rows.error_of(file) is not None]
    for file in failed[:MAX_SHOWN]:
        fail(f"{file}: {rows.error_of(file)}")
    told = f"{len(files) - len(failed)} of {len(files)} recordings are labelled in {out}"
    if rows.path.name != Path(out).name:
        told += f" (a later run goes on from {rows.path.name} beside it)"
    tell(f"{told}; {len(failed)} could not be: their rows have `error`" if failed else told)
    return 1 if failed else 0


def made_with(config: Config) -> str:
    """The options that a row's words depend on: the mode, and others that are not the default. The
    address of a verifier is left out: it may be a secret."""
    if config.is_away:
        config = replace(config, cloud="elsewhere")
    left_out = ("mode", "attributes", *FREE, UNUSED.get(config.mode))
    named = [
        f"{each.name} {value}"
        for each in fields(config)
        if each.name not in left_out and (value := getattr(config, each.name)) != each.default
    ]
    says = [] if config.said == Config().said else [f"says {config.said}"]
    return ", ".join([f"mode {config.mode}", *named, *says])


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
    with suppress(BrokenProcessPool), closing(each_done(jobs, work, todo, in_hand)) as labelled:
        for found in labelled:
            add(found)
    return list(in_hand.values())
