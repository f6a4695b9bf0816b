"""`streamer label`: a table with a row for each recording, made by one process for each core.

Rows are appended as they come to a file of JSON lines: the table itself, or FILE.rows.jsonl beside
it. A run that was interrupted goes on there. Rows that were made with other options, or that hold
an error, are made again.
"""

from __future__ import annotations

import csv
import itertools
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

from streamer.audio.directory import recordings_in
from streamer.audio.file import AudioError
from streamer.commands.options import LabelOptions
from streamer.commands.process import (
    fail,
    interrupted_by_sigterm,
    pass_over,
    plain,
    status_of,
    tell,
)
from streamer.config import Config, ConfigError, combined
from streamer.core.description import Description
from streamer.core.installed import missing
from streamer.core.tags import DATASPEECH, dataspeech_tags
from streamer.model.devices import is_ours
from streamer.progress import Bar
from streamer.workers import Workers, each_done

WORDS = (
    *("preset", "k", "threshold", "draft", "edge", "cloud", "engine"),
    *("temperature", "top_p", "seed", "min_new_tokens", "max_new_tokens", "language"),
)
UNUSED = {"edge": "cloud", "cloud": "edge"}  # mode -> the model that it does not use
MAX_SHOWN = 5  # errors on stderr; the table holds all
ENDED = "its process ended (a defect of a library, or too little memory)"
# The name of a file may be no UTF-8: its bytes stand as \udcXX, which JSON reads back unchanged.
TEXT: Any = {"encoding": "utf-8", "errors": "backslashreplace"}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One recording. Names up to `snr` are those of corpora of described speech; levels count from
    0, the physically lowest. None: unknown, or not in the sentence."""

    file: str
    text: str | None = None
    duration: float | None = None  # s
    utterance_pitch_mean: float | None = None  # Hz
    utterance_pitch_std: float | None = None  # Hz
    snr: float | None = None  # dB
    rate_syllables_per_s: float | None = None
    rate_level: int | None = None
    pitch_level: int | None = None
    variation_level: int | None = None
    loudness_level: int | None = None
    pauses_level: int | None = None
    timbre_level: int | None = None
    arousal_level: int | None = None
    # the level's names
    rate_zh: str | None = None
    rate_en: str | None = None
    pitch_zh: str | None = None
    pitch_en: str | None = None
    variation_zh: str | None = None
    variation_en: str | None = None
    loudness_zh: str | None = None
    loudness_en: str | None = None
    pauses_zh: str | None = None
    pauses_en: str | None = None
    timbre_zh: str | None = None
    timbre_en: str | None = None
    arousal_zh: str | None = None
    arousal_en: str | None = None
    pitch_median_hz: float | None = None
    pitch_sd_semitones: float | None = None
    pitch_range_semitones: float | None = None
    level_dbfs: float | None = None
    level_range_db: float | None = None
    pause_share: float | None = None
    pause_count: int | None = None
    longest_pause_s: float | None = None
    timbre_db: float | None = None
    speech_s: float | None = None
    clipped_share: float | None = None
    # the probability that the level is right
    rate_confidence: float | None = None
    pitch_confidence: float | None = None
    variation_confidence: float | None = None
    loudness_confidence: float | None = None
    pauses_confidence: float | None = None
    timbre_confidence: float | None = None
    arousal_confidence: float | None = None
    language: str | None = None  # of the sentence
    stop_reason: str | None = None
    warning: str | None = None
    error: str | None = None
    made_with: str | None = None  # the mode, and options that are not the default
    # with --tags dataspeech
    noise: str | None = None
    speech_monotony: str | None = None


NAMES = tuple(each.name for each in fields(Row) if each.name not in DATASPEECH)


class CannotLabel(Exception):
    """The models cannot be loaded, so no recording can be described. Its text is one line."""


def run(options: LabelOptions, given: Mapping[str, Any]) -> int:
    """The exit status: 1 if a recording failed, or the work cannot go on. Raises ConfigError."""
    config = combined(options.pipeline, given)
    if not any(map(os.path.exists, options.files)):
        fail(f"{options.files[0]}: no such file")
        return 1
    found = (file for path in options.files for file in recordings_in(path, pass_over))
    files = list(dict.fromkeys(found))
    rows = Rows.open(Path(options.out), options.tags)
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
    return _report(rows, files, options.out)


def _report(rows: Rows, files: Sequence[str], out: str) -> int:
    failed = [file for file in files if rows.done[file]["error"] is not None]
    for file in failed[:MAX_SHOWN]:
        fail(f"{file}: {rows.done[file]['error']}")
    told = f"{len(files) - len(failed)} of {len(files)} recordings are labelled in {out}"
    if rows.path.name != Path(out).name:
        told += f" (a later run goes on from {rows.path.name} beside it)"
    tell(f"{told}; {len(failed)} could not be: their rows have `error`" if failed else told)
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


def _label_all(files: Sequence[str], config: Config, jobs: int, rows: Rows) -> None:
    """A recording that ends its process is tried once more, alone; the others go on. Raises
    BrokenProcessPool if each of several does so: then the recordings are not the cause."""
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
    """Label all. If a process ends: the recordings that were in progress."""
    in_hand: dict[Future[Row | str], str] = {}
    with Workers(jobs) as pool, suppress(BrokenProcessPool):
        for found in each_done(pool, jobs, partial(_label, config), todo, in_hand):
            if isinstance(found, str):
                raise CannotLabel(found)
            add(found)
    return list(in_hand.values())


def _label(config: Config, file: str) -> Row | str:
    """The row of a recording; text: the error of every recording."""
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


def label_of(found: Description, made_with: str) -> Row:
    """The row of a recording that was described with measures."""
    m = found.measures
    measured = m.as_json() if m is not None else {}
    warnings = [found.warning, *(m.warnings if m is not None else ())]
    levels: dict[str, Any] = {f"{name}_level": n for name, n in found.attributes.items()}
    for name, level in found.levels.items():
        levels |= {f"{name}_{key}": told for key, told in (level or {}).items() if key != "level"}
    sure = {f"{name}_confidence": p and round(p, 3) for name, p in (found.confidence or {}).items()}
    more = {name: value for name, value in (measured | levels | sure).items() if name in NAMES}
    return Row(
        file=found.file,
        text=found.text,
        duration=round(found.audio_s, 3),
        utterance_pitch_mean=measured.get("pitch_mean_hz"),
        utterance_pitch_std=measured.get("pitch_sd_hz"),
        snr=measured.get("snr_db"),
        language=found.language if found.text else None,
        stop_reason=found.stop_reason,
        warning="; ".join(filter(None, warnings)) or None,
        made_with=made_with,
        **more,
    )


class Rows:
    """The rows so far, on disk after each `add`. Only one run at a time has a file."""

    def __init__(self, out: Path, path: Path, tags: str | None) -> None:
        """Raises OSError, and ConfigError for a file that is no table or another run's."""
        self.path = path
        self.names = NAMES if tags is None else (*NAMES, *DATASPEECH)
        self._out = out
        self._file = path.open("a+", **TEXT)
        try:
            if is_ours(self._file) is False:
                told = f"{path} is written by another run; wait for its end"
                raise ConfigError(f"{told}, or give another --out")
            whole = path.read_bytes()
            whole = whole[: whole.rfind(b"\n") + 1]  # a run that was killed leaves half a line
            self.done = _read(whole, path)
            self._file.truncate(len(whole))
        except BaseException:
            self._file.close()
            raise

    @classmethod
    def open(cls, out: Path, tags: str | None = None) -> Rows:
        """Raises ConfigError if the table cannot be made, or belongs to another run or program."""
        out = Path(os.path.realpath(out))  # a link stays a link
        path = out if out.suffix.lower() == ".jsonl" else out.with_name(out.name + ".rows.jsonl")
        if out.is_dir():
            raise ConfigError(f"--out {out} is a directory; give a file")
        if out.suffix.lower() == ".parquet":
            _pyarrow()
        try:
            return cls(out, path, tags)
        except OSError as error:
            told = f"--out {out}: {error.strerror}; give a file that can be written"
            raise ConfigError(told) from None

    def add(self, row: Row) -> None:
        """Raises OSError if the disk is full."""
        self.done[row.file] = asdict(row)
        self._file.write(_line(self._told(asdict(row))))
        self._file.flush()

    def _told(self, row: dict[str, Any]) -> dict[str, Any]:
        """The columns of this table."""
        known = row | (dataspeech_tags(row) if len(self.names) > len(NAMES) else {})
        return {name: known[name] for name in self.names}

    def close(self) -> None:
        with suppress(OSError):  # reported when the row was added
            self._file.close()

    def left_of(self, files: Sequence[str], made_with: str) -> list[str]:
        """Those without a row, with an error, or with a row that was made with other options."""
        known = {None, made_with}  # None: of an older version
        rows = {file: self.done.get(file) for file in files}
        return [f for f, row in rows.items() if row is None or row["made_with"] not in known]

    def publish(self, files: Sequence[str]) -> None:
        """Write the table: rows of earlier runs, then `files` in their order. Raises OSError."""
        now = set(files)
        order = [*(f for f in self.done if f not in now), *files]
        rows = [self._told(self.done[file]) for file in order]
        new = self._out.with_name(self._out.name + ".new")
        if self._out.suffix.lower() == ".parquet":
            arrow, parquet = _pyarrow()
            told = [{name: plain(value) for name, value in row.items()} for row in rows]
            parquet.write_table(arrow.Table.from_pylist(told, _schema(arrow)), new)
        else:
            with new.open("w", newline="", **TEXT) as file:
                if self._out.suffix.lower() == ".csv":
                    table = csv.DictWriter(file, self.names)
                    table.writeheader()
                    table.writerows(rows)
                else:
                    file.writelines(map(_line, rows))
        os.replace(new, self._out)


def _line(row: dict[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False) + "\n"


def _read(whole: bytes, path: Path) -> dict[str, dict[str, Any]]:
    """Rows of earlier runs; the last one of a file counts, unless it has an error. Raises
    ConfigError for the file of another program."""
    found: dict[str, dict[str, Any]] = {}
    # no `splitlines`: texts may hold line ends of Unicode
    for number, line in enumerate(whole.decode("utf-8", errors="replace").split("\n")[:-1], 1):
        try:
            row = json.loads(line)
            known = {name: row.get(name) for name in NAMES}
            # its name before 0.2
            known["rate_syllables_per_s"] = row.get(
                "rate_syllables_per_s", row.get("speaking_rate")
            )
        except (ValueError, AttributeError):
            known = {"file": None}
        if not isinstance(known["file"], str):
            told = f"line {number} of {path} is no row of ours; give another --out, or move it away"
            raise ConfigError(told)
        if known["error"] is None:
            found[known["file"]] = known
    return found


def _schema(arrow: Any) -> Any:
    kinds = {"str": arrow.string(), "float": arrow.float64(), "int": arrow.int64()}
    return arrow.schema([(each.name, kinds[str(each.type).split(" ")[0]]) for each in fields(Row)])


def _pyarrow() -> tuple[Any, Any]:
    if (why := missing("--out in .parquet", "pyarrow")) is not None:
        raise ConfigError(why)
    import pyarrow
    import pyarrow.parquet

    return pyarrow, pyarrow.parquet
