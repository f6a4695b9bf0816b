"""The table of `streamer label`: its columns, and its rows on disk while they come."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from streamer.commands.process import plain
from streamer.config import ConfigError
from streamer.core.description import Description
from streamer.core.installed import missing
from streamer.core.measures.speech_measures import SpeechMeasures
from streamer.core.measures.voice_pitch import PitchReference, Voice, VoicePitch
from streamer.core.readings import DATASPEECH, dataspeech_tags
from streamer.intervals import Interval
from streamer.model.devices import is_ours

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
    # with --intervals
    start_s: float | None = None
    end_s: float | None = None
    transcript: str | None = None
    interval: int | None = None  # from 0
    num_intervals: int | None = None  # of the recording
    # with --pitch-reference
    voice_pitch_semitones: float | None = None
    voice_pitch_level: int | None = None


ALL_NAMES = tuple(each.name for each in fields(Row))
OF_INTERVALS = ("start_s", "end_s", "transcript", "interval", "num_intervals")
OF_VOICE = ("voice_pitch_semitones", "voice_pitch_level")
NAMES = tuple(n for n in ALL_NAMES if n not in (*DATASPEECH, *OF_INTERVALS, *OF_VOICE))
MEASURED = (
    *("utterance_pitch_mean", "utterance_pitch_std", "snr", "rate_syllables_per_s"),
    *NAMES[NAMES.index("pitch_median_hz") : NAMES.index("clipped_share") + 1],
)
ENDS = "the recording ends before the interval"
INTERVAL_NAMES = ("file", *OF_INTERVALS, "duration", *MEASURED, "warning", "error", "made_with")


def label_of(found: Description, made_with: str) -> Row:
    """The row of a recording that was described with measures."""
    m = found.measures
    warnings = [found.warning, *(m.warnings if m is not None else ())]
    levels: dict[str, Any] = {f"{name}_level": n for name, n in found.attributes.items()}
    for name, level in found.levels.items():
        levels |= {f"{name}_{key}": told for key, told in (level or {}).items() if key != "level"}
    sure = {f"{name}_confidence": p and round(p, 3) for name, p in (found.confidence or {}).items()}
    return Row(
        file=found.file,
        text=found.text,
        duration=round(found.audio_s, 3),
        language=found.language if found.text else None,
        stop_reason=found.stop_reason,
        warning=_joined(*warnings),
        made_with=made_with,
        **_measured(m),
        **_voice(found.voice_pitch),
        **{name: value for name, value in (levels | sure).items() if name in NAMES},
    )


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
    for each in found:
        voice.add(each)
    return [
        Row(
            file=file,
            start_s=each.start_s,
            end_s=each.end_s,
            transcript=each.text,
            interval=i,
            num_intervals=len(intervals),
            duration=round(each.end_s - each.start_s, 3),
            warning=_joined(warning, _ends(each, measures)),
            made_with=made_with,
            **_measured(measures),
            **_voice(voice.of(measures)),
        )
        for i, (each, measures) in enumerate(zip(intervals, found, strict=True))
    ]


def _ends(interval: Interval, measures: SpeechMeasures) -> str | None:
    return ENDS if measures.audio_s < interval.end_s - interval.start_s - 0.02 else None


def _joined(*warnings: str | None) -> str | None:
    return "; ".join(filter(None, warnings)) or None


def _measured(found: SpeechMeasures | None) -> dict[str, Any]:
    """The columns of MEASURED; none without measures."""
    if found is None:
        return {}
    row = found.as_json()
    others = {"utterance_pitch_mean": "pitch_mean_hz", "utterance_pitch_std": "pitch_sd_hz"}
    others["snr"] = "snr_db"
    return {name: row[others.get(name, name)] for name in MEASURED}


def _voice(pitch: VoicePitch | None) -> dict[str, Any]:
    """The columns of OF_VOICE."""
    if pitch is None:
        return {}
    return dict(zip(OF_VOICE, (round(pitch.semitones, 2), pitch.level), strict=True))


class Rows:
    """The rows so far, on disk after each `add`: one for each recording, or one for each of its
    intervals. Only one run at a time has a file."""

    def __init__(self, out: Path, path: Path, names: Sequence[str]) -> None:
        """Raises OSError, and ConfigError for a file that is no table or another run's."""
        self.path = path
        self.names = names
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
    def open(cls, out: Path, names: Sequence[str] = NAMES) -> Rows:
        """names: the columns. Raises ConfigError if the table cannot be made, or belongs to another
        run or program."""
        out = Path(os.path.realpath(out))  # a link stays a link
        path = out if out.suffix.lower() == ".jsonl" else out.with_name(out.name + ".rows.jsonl")
        if out.is_dir():
            raise ConfigError(f"--out {out} is a directory; give a file")
        if out.suffix.lower() == ".parquet":
            _pyarrow()
        try:
            return cls(out, path, names)
        except OSError as error:
            told = f"--out {out}: {error.strerror}; give a file that can be written"
            raise ConfigError(told) from None

    def add(self, *rows: Row) -> None:
        """All rows of one recording. Raises OSError if the disk is full."""
        self.done[plain(rows[0].file)] = found = [asdict(row) for row in rows]
        self._file.writelines(_line(self._told(row)) for row in found)
        self._file.flush()

    def has(self, file: str) -> bool:
        """Whether the recording has a row."""
        return plain(file) in self.done

    def error_of(self, file: str) -> str | None:
        """Why the recording has no labels; None if it has some."""
        error: str | None = self.done[plain(file)][0]["error"]
        return error

    def lacks_voice(self, file: str) -> bool:
        """Whether its pitch is known, and not where that lies for its voice."""
        rows = [row for row in self.done[plain(file)] if row["pitch_median_hz"] is not None]
        return bool(rows) and all(row[OF_VOICE[0]] is None for row in rows)

    def _told(self, row: dict[str, Any]) -> dict[str, Any]:
        """The columns of this table; names that are not UTF-8 are escaped."""
        known = row | (dataspeech_tags(row) if "noise" in self.names else {})
        return {name: plain(known[name]) for name in self.names}

    def close(self) -> None:
        with suppress(OSError):  # reported when the row was added
            self._file.close()

    def left_of(self, files: Sequence[str], made_with: str) -> list[str]:
        """Those without a row, with an error, or with a row that was made with other options."""
        known = {None, made_with}  # None: of an older version
        rows = {file: self.done.get(plain(file)) for file in files}
        return [f for f, found in rows.items() if not found or found[0]["made_with"] not in known]

    def publish(self, files: Sequence[str]) -> None:
        """Write the table: rows of earlier runs, then `files` in their order. Raises OSError."""
        now = dict.fromkeys(map(plain, files))
        order = [*(f for f in self.done if f not in now), *now]
        rows = [self._told(row) for file in order for row in self.done[file]]
        new = self._out.with_name(self._out.name + ".new")
        if self._out.suffix.lower() == ".parquet":
            arrow, parquet = _pyarrow()
            schema = _schema(arrow, self.names)
            parquet.write_table(arrow.Table.from_pylist(rows, schema), new)
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


def _read(whole: bytes, path: Path) -> dict[str, list[dict[str, Any]]]:
    """Rows of earlier runs; the last ones of a recording count, unless they have an error or are
    incomplete. Raises ConfigError for the file of another program."""
    found: dict[str, list[dict[str, Any]]] = {}
    # no `splitlines`: texts may hold line ends of Unicode
    for number, line in enumerate(whole.decode("utf-8", errors="replace").split("\n")[:-1], 1):
        try:
            row = json.loads(line)
            known = {name: row.get(name) for name in ALL_NAMES}
            # its name before 0.2
            known["rate_syllables_per_s"] = row.get(
                "rate_syllables_per_s", row.get("speaking_rate")
            )
        except (ValueError, AttributeError):
            known = {"file": None}
        if not isinstance(known["file"], str):
            told = f"line {number} of {path} is no row of ours; give another --out, or move it away"
            raise ConfigError(told)
        if known["error"] is not None:
            continue
        file = plain(known["file"])
        if known["interval"]:
            found.setdefault(file, []).append(known)
        else:
            found[file] = [known]
    return {f: rows for f, rows in found.items() if len(rows) == (rows[0]["num_intervals"] or 1)}


def _schema(arrow: Any, names: Sequence[str]) -> Any:
    kinds = {"str": arrow.string(), "float": arrow.float64(), "int": arrow.int64()}
    kind_of = {each.name: kinds[str(each.type).split(" ")[0]] for each in fields(Row)}
    return arrow.schema([(name, kind_of[name]) for name in names])


def _pyarrow() -> tuple[Any, Any]:
    if (why := missing("--out in .parquet", "pyarrow")) is not None:
        raise ConfigError(why)
    import pyarrow
    import pyarrow.parquet

    return pyarrow, pyarrow.parquet
