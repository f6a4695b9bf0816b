"""`streamer label`: a table with a row for each recording, made by one process for each core.

Rows are appended as they come to the table itself (.jsonl), or to FILE.rows.jsonl beside it. A run
that was interrupted goes on there. Rows that were made with other options, or that hold an error,
are made again.
"""

from __future__ import annotations

import csv
import json
import os
import signal
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from streamer.audio.file import open_audio
from streamer.audio.source import AudioError
from streamer.commands.options import LabelOptions
from streamer.commands.process import Failed, each_done, fail, plain, recordings_of, tell
from streamer.config import Config, ConfigError
from streamer.core.attributes import ATTRIBUTES, NAMED_IN
from streamer.core.description import Description
from streamer.core.measures.speech_measures import SpeechMeasures
from streamer.extras import missing
from streamer.intervals import Interval, measures_in, read_intervals
from streamer.model.thinker import num_cores
from streamer.progress import Bar

# options that a row's words do not depend on
FREE = ("device", "cloud_key", "cloud_audio", "verify_budget_s", "num_slots")
MAX_SHOWN = 5  # errors on stderr; the table holds all
ENDED = "its process ended (a defect of a library, or too little memory)"
ENDS = "the recording ends before the interval"
MEASURED = (  # columns of the same name
    *("rate_syllables_per_s", "pitch_median_hz", "pitch_sd_semitones", "pitch_range_semitones"),
    *("level_dbfs", "level_range_db", "pause_share", "pause_count", "longest_pause_s", "timbre_db"),
    *("speech_s", "clipped_share"),
)
# Bins of dataspeech (its examples/tags_to_annotations, v02) for an utterance's SNR and SD of F0:
# column -> [lower bound, word], upwards.
TAGS = json.loads(Path(__file__).with_name("dataspeech.json").read_text("utf-8"))
WORDED = ("text", "transcript", "language", "stop_reason", "warning", "error", *TAGS)  # no numbers
# The name of a file may be no UTF-8: its bytes stand as \udcXX, which JSON reads back unchanged.
TEXT: Any = {"encoding": "utf-8", "errors": "backslashreplace"}
Row = dict[str, Any]  # column -> value; None: unknown, or not in the sentence
Labelled = tuple[Sequence[Row], Sequence[str]]  # rows of a recording, and warnings about the run


def run(options: LabelOptions, config: Config) -> int:
    """The exit status: 1 if a recording failed, or the work cannot go on. Raises ConfigError."""
    if not any(map(os.path.exists, options.files)):
        raise Failed(f"{options.files[0]}: no such file")
    files = list(dict.fromkeys(recordings_of(options.files)))
    kind = options.intervals
    made = made_with(config) if kind is None else f"intervals {kind}"
    rows = Rows(Path(options.out))
    todo = rows.left_of(files, made)
    if num_other := sum(plain(file) in rows.done for file in todo):
        tell(f"{num_other} in {rows.path} were made with other options; they are made anew")
    if len(todo) < len(files):
        tell(f"{len(files) - len(todo)} of {len(files)} are in {rows.path} already")

    def end(number: int, _: object) -> None:  # its processes end, too
        there = sum(plain(file) in rows.done for file in files)
        fail(f"interrupted: {there} of {len(files)} are in {rows.path}; run it again to go on")
        os._exit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    try:
        _label_all(todo, partial(label, config, kind, made), options.jobs or num_cores(), rows)
        rows.publish(files)
    except OSError as error:
        told = f"{options.out} cannot be written ({error.strerror}); make room, run it again"
        raise Failed(told) from None
    return _report(rows, files, options.out)


def _report(rows: Rows, files: Sequence[str], out: str) -> int:
    errors = {file: rows.done[plain(file)][0].get("error") for file in files}
    failed = {file: error for file, error in errors.items() if error is not None}
    for file, error in [*failed.items()][:MAX_SHOWN]:
        fail(f"{file}: {error}")
    told = f"{len(files) - len(failed)} of {len(files)} recordings are labelled in {out}"
    if rows.path.name != Path(out).name:
        told += f" (a later run goes on from {rows.path.name} beside it)"
    tell(f"{told}; {len(failed)} could not be: their rows have `error`" if failed else told)
    return 1 if failed else 0


def made_with(config: Config) -> str:
    """The options that a row's words depend on: the mode, and others that are not the default. The
    address of a verifier is left out: it may be a secret."""
    config = replace(config, cloud="elsewhere") if config.is_away else config
    told = [(each.name, getattr(config, each.name), each.default) for each in fields(config)]
    chosen = [(name, now) for name, now, usual in told if name == "mode" or now != usual]
    chosen.sort(key=lambda each: each[0] != "mode")  # first, as in tables of earlier versions
    return ", ".join(f"{name} {value}" for name, value in chosen if name not in FREE)


def _label_all(
    files: Sequence[str], work: Callable[[str], Labelled], jobs: int, rows: Rows
) -> None:
    told: set[str] = set()
    with Bar("labelling", len(files)) as bar, closing(each_done(jobs, work, files)) as labelled:
        for num, (file, found) in enumerate(labelled, 1):
            made, warned = found or ([{"file": file, "error": ENDED}], [])
            rows.add(*made)
            for line in set(warned) - told:  # each process warns
                told.add(line)
                fail(line)
            bar.show(num, f"{num} of {len(files)}")


def label(config: Config, kind: str | None, made_with: str, file: str) -> Labelled:
    """Label one recording, in a process of its own: its rows, or one with its error. kind: of the
    file of intervals beside it. Raises Failed if none can be described."""
    from streamer.model.checkpoint.weights import ModelError
    from streamer.programs import describe

    with warnings.catch_warnings(record=True) as warned:
        try:
            if kind is None:
                rows = [row_of(describe(file, config), made_with)]
            else:
                intervals = read_intervals(Path(file).with_suffix(f".{kind}"))
                rows = rows_of_intervals(file, intervals, made_with)
        except Exception as error:
            if kind is None and isinstance(error, ConfigError | ModelError):
                raise Failed(str(error)) from None
            told = getattr(error, "reason", str(error))
            if not isinstance(error, AudioError | ConfigError):
                told = f"{type(error).__name__}: {error}"
            rows = [{"file": file, "error": told}]
    return rows, [str(each.message) for each in warned]


def row_of(found: Description, made_with: str) -> Row:
    """All columns of a recording."""
    row: Row = {"file": found.file, "text": found.text, "duration": round(found.audio_s, 3)}
    row |= _measured(found.measures)
    for name in ATTRIBUTES:
        level: Mapping[str, Any] = found.levels.get(name) or {}
        p = (found.confidence or {}).get(name)
        row |= {f"{name}_{key}": level.get(key) for key in ("level", *NAMED_IN)}
        row[f"{name}_confidence"] = p and round(p, 3)
    row |= {"language": found.language if found.text else None, "stop_reason": found.stop_reason}
    warnings = [found.warning, *(found.measures.warnings if found.measures else ())]
    return row | _ending(warnings, made_with)


def rows_of_intervals(file: str, intervals: Sequence[Interval], made_with: str) -> list[Row]:
    """A row for each interval of a recording."""
    with open_audio(file) as audio:
        measured, warning = measures_in(audio, intervals), audio.warning
    rows = []
    for number, (each, measures) in enumerate(zip(intervals, measured, strict=True)):
        row: Row = {"file": file, "start_s": each.start_s, "end_s": each.end_s}
        row |= {"transcript": each.text, "interval": number, "num_intervals": len(intervals)}
        row["duration"] = round(each.end_s - each.start_s, 3)
        row |= _measured(measures)
        is_late = measures.audio_s < each.end_s - each.start_s - 0.02
        rows.append(row | _ending([warning, ENDS if is_late else None], made_with))
    return rows


def _measured(measures: SpeechMeasures | None) -> Row:
    known = {} if measures is None else measures.as_json()
    return {  # named as in corpora of described speech
        "utterance_pitch_mean": known.get("pitch_mean_hz"),
        "utterance_pitch_std": known.get("pitch_sd_hz"),
        "snr": known.get("snr_db"),
        **{name: known.get(name) for name in MEASURED},
        "noise": tag_of("noise", known.get("snr_db")),
        "speech_monotony": tag_of("speech_monotony", known.get("pitch_sd_hz")),
    }


def tag_of(column: str, value: float | None) -> str | None:
    """The word of the bin that holds `value`; a bound belongs to the bin above it."""
    if value is None:
        return None
    return next(word for bound, word in reversed(TAGS[column]) if bound <= value)


def _ending(warnings: Sequence[str | None], made_with: str) -> Row:
    told = "; ".join(filter(None, warnings)) or None
    return {"warning": told, "error": None, "made_with": made_with}


class Rows:
    """The rows of a run, written by each `add`: one for each recording, or each interval."""

    def __init__(self, out: Path) -> None:
        """Raises ConfigError if the table cannot be made, or belongs to another program."""
        self._out = out = Path(os.path.realpath(out))  # a link stays a link
        self._kind = out.suffix.lower()
        self.path = out if self._kind == ".jsonl" else out.with_name(out.name + ".rows.jsonl")
        if out.exists() and not out.is_file():  # a device would be replaced by the table
            raise ConfigError(f"--out {out} is no regular file; give another one")
        if self._kind == ".parquet" and (why := missing("--out in .parquet", "pyarrow")):
            raise ConfigError(why)
        try:
            with self.path.open("ab") as file:
                whole = self.path.read_bytes()
                whole = whole[: whole.rfind(b"\n") + 1]  # a run that was killed leaves half a line
                self.done = _read(whole, self.path)
                file.truncate(len(whole))
        except OSError as error:
            told = f"--out {out}: {error.strerror}; give a file that can be written"
            raise ConfigError(told) from None

    def add(self, *rows: Row) -> None:
        """All rows of one recording. Raises OSError if the disk is full."""
        told = [{name: plain(value) for name, value in row.items()} for row in rows]
        self.done[told[0]["file"]] = told
        with self.path.open("a", **TEXT) as file:
            file.writelines(map(_line, told))

    def left_of(self, files: Sequence[str], made_with: str) -> list[str]:
        """Those without a row, with an error, or with a row that was made with other options."""
        rows = {file: self.done.get(plain(file)) for file in files}
        return [f for f, had in rows.items() if not had or had[0].get("made_with") != made_with]

    def publish(self, files: Sequence[str]) -> None:
        """Write the table: rows of earlier runs, then `files` in their order. Raises OSError."""
        now = dict.fromkeys(map(plain, files))
        order = [*(f for f in self.done if f not in now), *now]
        rows = [row for file in order for row in self.done[file]]
        new = self._out.with_name(self._out.name + ".new")
        # in the order of whole rows: one with an error has few columns
        names = dict.fromkeys(name for row in sorted(rows, key=len, reverse=True) for name in row)
        if self._kind == ".parquet":
            import pyarrow.parquet

            whole = [dict.fromkeys(names) | row for row in rows]  # the first one names columns
            table = pyarrow.Table.from_pylist(whole)
            schema = table.schema
            for i, each in enumerate(schema):
                if each.type == pyarrow.null():  # tables of all parts of a corpus have one schema
                    is_text = each.name in WORDED or each.name.rpartition("_")[2] in NAMED_IN
                    kind = pyarrow.string() if is_text else pyarrow.float64()
                    schema = schema.set(i, each.with_type(kind))
            pyarrow.parquet.write_table(table.cast(schema), new)
        else:
            with new.open("w", newline="", **TEXT) as file:
                if self._kind == ".csv":
                    writer = csv.DictWriter(file, names)
                    writer.writeheader()
                    writer.writerows(rows)
                else:
                    file.writelines(map(_line, rows))
        os.replace(new, self._out)


def _line(row: Row) -> str:
    return json.dumps(row, ensure_ascii=False) + "\n"


def _read(whole: bytes, path: Path) -> dict[str, list[Row]]:
    """Rows of earlier runs; the last ones of a recording count, unless they have an error or are
    incomplete. Raises ConfigError for the file of another program."""
    found: dict[str, list[Row]] = {}
    # no `splitlines`: texts may hold line ends of Unicode
    for number, line in enumerate(whole.decode("utf-8", errors="replace").split("\n")[:-1], 1):
        try:
            row: Row = json.loads(line)
            file = row["file"]
        except (ValueError, TypeError, LookupError):
            told = f"line {number} of {path} is no row of ours; give another --out, or move it away"
            raise ConfigError(told) from None
        if row.get("error") is None:
            earlier = found.get(file, []) if row.get("interval") else []
            found[file] = [*earlier, row]
    return {f: had for f, had in found.items() if len(had) == (had[0].get("num_intervals") or 1)}
