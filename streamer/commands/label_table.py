"""The table of `streamer label`: its columns, and its rows on disk while they come.

Rows are appended to the table itself (.jsonl), or to FILE.rows.jsonl beside it.
"""

from __future__ import annotations

import csv
import json
import os
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from streamer.commands.process import plain
from streamer.config import ConfigError
from streamer.core.attributes import ATTRIBUTES, NAMED_IN
from streamer.core.description import Description
from streamer.core.measures.speech_measures import PitchReference, SpeechMeasures, Voice, VoicePitch
from streamer.extras import missing
from streamer.intervals import Interval
from streamer.model.devices import is_ours

# The name of a file may be no UTF-8: its bytes stand as \udcXX, which JSON reads back unchanged.
TEXT: Any = {"encoding": "utf-8", "errors": "backslashreplace"}
Row = dict[str, Any]  # column -> value; one that is missing is unknown, or not in the sentence
# Column -> measure. The first three have the names of corpora of described speech.
OF_CORPORA = {
    "utterance_pitch_mean": "pitch_mean_hz",
    "utterance_pitch_std": "pitch_sd_hz",
    "snr": "snr_db",
}
RATE = "rate_syllables_per_s"
OURS = (
    *("pitch_median_hz", "pitch_sd_semitones", "pitch_range_semitones", "level_dbfs"),
    *("level_range_db", "pause_share", "pause_count", "longest_pause_s", "timbre_db"),
    *("speech_s", "clipped_share"),
)
MEASURED = {**OF_CORPORA, **{name: name for name in (RATE, *OURS)}}
LEVELS = tuple(f"{name}_level" for name in ATTRIBUTES)  # from 0, the physically lowest
LEVEL_NAMES = tuple(f"{name}_{language}" for name in ATTRIBUTES for language in NAMED_IN)
SURE = tuple(f"{name}_confidence" for name in ATTRIBUTES)  # the chance that the level is right
ENDING = ("warning", "error", "made_with")  # made_with: mode, and options that are not the default
# dataspeech (its examples/tags_to_annotations, v02) puts the SNR and the SD of F0 of an utterance
# into bins and names them. Its speaking rate counts characters of IPA and its reverberation needs a
# model, so neither has a tag here. Tag -> the column it is made of, lower bounds of all bins but
# the first, their words.
TAGS = {
    "noise": (
        "snr",
        (25.401, 33.675, 41.949, 50.222, 58.496, 66.770),
        (
            *("very noisy", "noisy", "slightly noisy", "balanced in clarity"),
            *("slightly clean", "clean", "very clean"),
        ),
    ),
    "speech_monotony": (
        "utterance_pitch_std",
        (20.379, 40.758, 70.0, 90.0),
        (
            *("very monotone", "monotone", "slightly expressive and animated"),
            *("expressive and animated", "very expressive and animated"),
        ),
    ),
}
NAMES = (
    *("file", "text", "duration", *OF_CORPORA, RATE, *LEVELS, *LEVEL_NAMES, *OURS, *SURE),
    *("language", "stop_reason", *ENDING, *TAGS),
)
OF_INTERVALS = ("start_s", "end_s", "transcript", "interval", "num_intervals")
OF_VOICE = ("voice_pitch_semitones", "voice_pitch_level")
INTERVAL_NAMES = ("file", *OF_INTERVALS, "duration", *MEASURED, *ENDING, *TAGS)
WHOLE = {*LEVELS, "voice_pitch_level", "pause_count", "interval", "num_intervals"}
ENDS = "the recording ends before the interval"
WORDED = {"file", "text", "transcript", "language", "stop_reason", *ENDING, *LEVEL_NAMES, *TAGS}


def tags_of(row: Row) -> dict[str, str | None]:
    """dataspeech's tags of a row; None where the column is unknown."""
    return {
        name: None if row.get(column) is None else words[bisect_right(bounds, row[column])]
        for name, (column, bounds, words) in TAGS.items()
    }


def row_of(found: Description, made_with: str) -> Row:
    warnings = [found.warning, *(found.measures.warnings if found.measures else ())]
    row = _row(found.file, found.audio_s, found.measures, found.voice_pitch, warnings, made_with)
    row |= {"text": found.text, "stop_reason": found.stop_reason}
    row["language"] = found.language if found.text else None
    for name, level in found.levels.items():
        row |= {f"{name}_{key}": told for key, told in (level or {}).items()}
    for name, p in (found.confidence or {}).items():
        row[f"{name}_confidence"] = p and round(p, 3)
    return row


def rows_of_intervals(
    file: str,
    intervals: Sequence[Interval],
    found: Sequence[SpeechMeasures],
    made_with: str,
    reference: PitchReference = None,
    warning: str | None = None,
) -> list[Row]:
    """A row for each interval of a recording. warning: about the recording."""
    voice = Voice(reference)
    for measures in found:
        voice.add(measures)
    rows = []
    for number, (each, measures) in enumerate(zip(intervals, found, strict=True)):
        seconds = each.end_s - each.start_s
        warnings = [warning, ENDS if measures.audio_s < seconds - 0.02 else None]
        row = _row(file, seconds, measures, voice.of(measures), warnings, made_with)
        row |= {"start_s": each.start_s, "end_s": each.end_s, "transcript": each.text}
        rows.append(row | {"interval": number, "num_intervals": len(intervals)})
    return rows


def _row(
    file: str,
    seconds: float,
    measures: SpeechMeasures | None,
    pitch: VoicePitch | None,
    warnings: Sequence[str | None],
    made_with: str,
) -> Row:
    """The columns that rows of recordings and of intervals share."""
    row: Row = {"file": file, "duration": round(seconds, 3), "made_with": made_with}
    row["warning"] = "; ".join(filter(None, warnings)) or None
    if measures is not None:
        known = measures.as_json()
        row |= {name: known[measure] for name, measure in MEASURED.items()}
    if pitch is not None:
        row |= zip(OF_VOICE, (round(pitch.semitones, 2), pitch.level), strict=True)
    return row


class Rows:
    """The rows so far, on disk after each `add`: one for each recording, or one for each of its
    intervals. Only one run at a time has a file."""

    def __init__(self, out: Path, names: Sequence[str] = NAMES) -> None:
        """names: the columns. Raises ConfigError if the table cannot be made, or belongs to another
        run or program."""
        self._names = names
        self._out = out = Path(os.path.realpath(out))  # a link stays a link
        self._kind = out.suffix.lower()
        self.path = out if self._kind == ".jsonl" else out.with_name(out.name + ".rows.jsonl")
        if out.exists() and not out.is_file():  # a device would be replaced by the table
            raise ConfigError(f"--out {out} is no regular file; give another one")
        if self._kind == ".parquet" and (why := missing("--out in .parquet", "pyarrow")):
            raise ConfigError(why)
        try:
            self._file = self.path.open("a+", **TEXT)
        except OSError as error:
            told = f"--out {out}: {error.strerror}; give a file that can be written"
            raise ConfigError(told) from None
        try:
            if not is_ours(self._file):
                told = f"{self.path} is written by another run; wait for its end"
                raise ConfigError(f"{told}, or give another --out")
            whole = self.path.read_bytes()
            whole = whole[: whole.rfind(b"\n") + 1]  # a run that was killed leaves half a line
            self.done = _read(whole, self.path)
            self._file.truncate(len(whole))
        except BaseException:
            self._file.close()
            raise

    def add(self, *rows: Row) -> None:
        """All rows of one recording. Raises OSError if the disk is full."""
        self.done[plain(rows[0]["file"])] = list(rows)
        self._file.writelines(_line(self._told(row)) for row in rows)
        self._file.flush()

    def has(self, file: str) -> bool:
        return plain(file) in self.done

    def error_of(self, file: str) -> str | None:
        """Why the recording has no labels; None if it has some."""
        return self.done[plain(file)][0].get("error")

    def _told(self, row: Row) -> Row:
        """The columns of this table; names that are not UTF-8 are escaped."""
        known = row | tags_of(row)
        return {name: plain(known.get(name)) for name in self._names}

    def close(self) -> None:
        with suppress(OSError):  # reported when the row was added
            self._file.close()

    def left_of(self, files: Sequence[str], made_with: str) -> list[str]:
        """Those without a row, with an error, or with a row that was made with other options."""
        rows = {file: self.done.get(plain(file)) for file in files}
        return [f for f, had in rows.items() if not had or had[0].get("made_with") != made_with]

    def publish(self, files: Sequence[str]) -> None:
        """Write the table: rows of earlier runs, then `files` in their order. Raises OSError."""
        now = dict.fromkeys(map(plain, files))
        order = [*(f for f in self.done if f not in now), *now]
        rows = [self._told(row) for file in order for row in self.done[file]]
        new = self._out.with_name(self._out.name + ".new")
        if self._kind == ".parquet":
            _write_parquet(rows, self._names, new)
        else:
            with new.open("w", newline="", **TEXT) as file:
                if self._kind == ".csv":
                    table = csv.DictWriter(file, self._names)
                    table.writeheader()
                    table.writerows(rows)
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
            found[file] = [*(found.get(file, ()) if row.get("interval") else ()), row]
    return {f: had for f, had in found.items() if len(had) == (had[0].get("num_intervals") or 1)}


def _write_parquet(rows: Sequence[Row], names: Sequence[str], path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    def kind(name: str) -> Any:
        if name in WORDED:
            return pyarrow.string()
        return pyarrow.int64() if name in WHOLE else pyarrow.float64()

    schema = pyarrow.schema([(name, kind(name)) for name in names])
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, schema), path)
