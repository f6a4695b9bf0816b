"""The rows of a labelled corpus. In: Descriptions. Out: JSON lines, CSV or Parquet."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TextIO

from streamer.config import ConfigError
from streamer.core.description import Description
from streamer.model.runtime.lock import is_ours


@dataclass(frozen=True, kw_only=True)
class Row:
    """One recording. The names up to `snr` are those that corpora of described speech use; levels
    count from 0, the physically lowest. None: not known, or not said."""

    file: str
    text: str | None = None
    duration: float | None = None  # s
    utterance_pitch_mean: float | None = None  # Hz
    utterance_pitch_std: float | None = None  # Hz
    speaking_rate: float | None = None  # syllables per second of speech
    snr: float | None = None  # dB
    rate_level: int | None = None
    pitch_level: int | None = None
    variation_level: int | None = None
    loudness_level: int | None = None
    pauses_level: int | None = None
    timbre_level: int | None = None
    arousal_level: int | None = None
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
    # the chance that the level is right, 0 to 1
    rate_confidence: float | None = None
    pitch_confidence: float | None = None
    variation_confidence: float | None = None
    loudness_confidence: float | None = None
    pauses_confidence: float | None = None
    timbre_confidence: float | None = None
    arousal_confidence: float | None = None
    stop_reason: str | None = None
    warning: str | None = None
    error: str | None = None
    made_with: str | None = None  # the mode, and options that are not the default


NAMES = tuple(each.name for each in fields(Row))
# A file's name may be no UTF-8. Its bytes stand as \udcXX then, which JSON reads back as they were.
TEXT: Any = {"encoding": "utf-8", "errors": "backslashreplace"}


def label_of(found: Description, made_with: str) -> Row:
    """The row of a recording that was described with measures."""
    m = found.measures
    measured = m.as_json() if m is not None else {}
    warnings = [found.warning, *(m.warnings if m is not None else ())]
    levels = {f"{name}_level": level for name, level in found.attributes.items()}
    sure = {f"{name}_confidence": p and round(p, 3) for name, p in (found.confidence or {}).items()}
    more = {name: value for name, value in (measured | levels | sure).items() if name in NAMES}
    return Row(
        file=found.file,
        text=found.text,
        duration=round(found.audio_s, 3),
        utterance_pitch_mean=measured.get("pitch_mean_hz"),
        utterance_pitch_std=measured.get("pitch_sd_hz"),
        speaking_rate=measured.get("rate_syllables_per_s"),
        snr=measured.get("snr_db"),
        stop_reason=found.stop_reason,
        warning="; ".join(filter(None, warnings)) or None,
        made_with=made_with,
        **more,
    )


class Rows:
    """The rows so far, on disk after each `add`. A row with an error is tried again by the next
    run, and so is one that was cut off. No two runs have one file at once."""

    def __init__(self, out: Path, path: Path) -> None:
        self.path = path
        self._out = out
        self._is_older_there = False  # a row that another one stands in place of
        new = path.with_name(path.name + ".new")
        with ExitStack() as stack:
            # Both are held to the end: the old one, since others may have opened it already.
            _hold(stack.enter_context(path.open("a", **TEXT)), path)
            self.done = _read(path)
            self._file = stack.enter_context(new.open("w", **TEXT))
            _hold(self._file, path)
            self._file.writelines(_line(row) for row in self.done.values())
            self._file.flush()
            os.replace(new, path)
            self._files = stack.pop_all()

    @classmethod
    def open(cls, out: Path) -> Rows:
        """Raises ConfigError where the table cannot be made, is another file's, or another run's at
        this moment."""
        out = Path(os.path.realpath(out))  # where it is a link, that stays
        path = out if out.suffix.lower() == ".jsonl" else out.with_name(out.name + ".rows.jsonl")
        if out.is_dir():  # told now, not when all is done
            raise ConfigError(f"--out {out} is a directory; give a file")
        if out.suffix.lower() == ".parquet":
            _pyarrow()
        try:
            return cls(out, path)
        except OSError as error:
            told = f"--out {out}: {error.strerror}; give a file that can be written"
            raise ConfigError(told) from None

    def add(self, row: Row) -> None:
        """Raises OSError where there is no room."""
        self._is_older_there |= row.file in self.done
        self.done[row.file] = asdict(row)
        self._file.write(_line(asdict(row)))
        self._file.flush()

    def close(self) -> None:
        with suppress(OSError):  # told when the row was added
            self._files.close()

    def left_of(self, files: Sequence[str], made_with: str) -> list[str]:
        """Those without a row, or with one that was made with other options."""
        known = {None, made_with}  # None: of a version that did not say
        return [f for f in files if f not in self.done or self.done[f]["made_with"] not in known]

    def failed(self, files: Sequence[str]) -> list[str]:
        return [file for file in files if self.done[file]["error"] is not None]

    def publish(self, files: Sequence[str]) -> None:
        """What earlier runs had, then `files` in their order. JSON lines stand already, but for
        those that were made anew. Raises OSError."""
        now = set(files)
        rows = [self.done[file] for file in [*(f for f in self.done if f not in now), *files]]
        new = self._out.with_name(self._out.name + ".new")
        if self._out.suffix.lower() == ".csv":
            with new.open("w", newline="", **TEXT) as file:
                table = csv.DictWriter(file, NAMES)
                table.writeheader()
                table.writerows(rows)
        elif self._out.suffix.lower() == ".parquet":
            arrow, parquet = _pyarrow()
            plain = [{name: _plain(value) for name, value in row.items()} for row in rows]
            parquet.write_table(arrow.Table.from_pylist(plain, _schema(arrow)), new)
        elif self._is_older_there:
            with new.open("w", **TEXT) as file:
                file.writelines(_line(row) for row in rows)
        else:
            return
        os.replace(new, self._out)


def _line(row: dict[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False) + "\n"


def _plain(value: Any) -> Any:
    """The same, a text without half surrogate pairs."""
    return value.encode(**TEXT).decode() if isinstance(value, str) else value


def _hold(file: TextIO, path: Path) -> None:
    """Raises ConfigError where another run has it."""
    if is_ours(file) is False:
        told = f"{path} is written by another run; wait for its end, or give another --out"
        raise ConfigError(told)


def _read(path: Path) -> dict[str, dict[str, Any]]:
    """Rows of an earlier run that need not be done again. Raises ConfigError for another file."""
    found: dict[str, dict[str, Any]] = {}
    # no `splitlines`: texts may hold what Unicode calls a line's end
    lines = path.read_text("utf-8", errors="replace").removesuffix("\n").split("\n")
    if lines == [""]:
        return found
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            known = {name: row.get(name) for name in NAMES}
        except (ValueError, AttributeError):
            if number == len(lines):  # a run was killed while it wrote
                continue
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
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        told = "--out in .parquet needs pyarrow: pip install 'streamer-speech[parquet]'"
        raise ConfigError(told) from None
    return pyarrow, pyarrow.parquet
