"""Training data: recordings are cut into turns, measured, labelled, and split by speaker. And the
model to tune: all that is known without its weights.

Turns and log-mel windows come from the engine's own cutter (model/audio/turns.py), so the
model is trained on exactly what the engine feeds.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from streamer.audio.file import AudioError, open_audio
from streamer.audio.source import recordings_in
from streamer.commands.process import Failed, Workers, each_done, fail
from streamer.core.audio.pcm import SAMPLE_RATE_HZ, OffsetFilter, Samples
from streamer.core.audio.turn_items import Closed, Heard
from streamer.core.declare import ConfigError
from streamer.core.measures.levels import NUM_LEVELS, levels_of
from streamer.core.measures.speech_measures import MIN_SPEECH_S
from streamer.model.audio.mel import MelWindow, num_embeddings
from streamer.model.audio.turns import PartCutter
from streamer.model.checkpoint import layout
from streamer.model.checkpoint.card import ModelCard, read_card, replace_text
from streamer.model.checkpoint.layout import Shapes
from streamer.model.checkpoint.weights import ModelError, fingerprint_of
from streamer.model.thinker import num_params_of, resolve, shapes_of
from streamer.progress import Bar
from streamer.recording import chunks_of

TURN_S = 30.0  # longer recordings are cut into turns of this length
LEAST = 8  # turns: too few to learn and to evaluate with
FILE_COLUMNS = ("file", "wav", "path")  # names of the recording's column in a table of speakers
Row = dict[str, Any]


class TuneError(Failed):
    """There is no tuned model. One line with the cause and the way out."""


@dataclass(frozen=True, kw_only=True)
class Turn:
    """A recording, or a part of a long one.

    begin, num_samples: its place in the recording, at 16 kHz. features: file name of its log-mel
    [128, num_frames] float32. num_embeddings: embeddings that the tower makes of it. levels:
    attribute -> level, None if unknown.
    """

    file: str
    part: int
    begin: int
    num_samples: int
    num_embeddings: int
    features: str
    levels: dict[str, int | None]

    @property
    def name(self) -> str:
        return f"{self.file}#{self.part}"


@dataclass(frozen=True)
class Data:
    """Turns to learn from, held-out turns, and the speaker of a file."""

    learnt: Sequence[Turn]
    held: Sequence[Turn]
    who: Callable[[str], str]

    def sides(self) -> list[tuple[int, int, float]]:
        """(turns, speakers, hours) to learn from, and of those held out."""
        return [
            (
                len(turns),
                len({self.who(turn.file) for turn in turns}),
                sum(turn.num_samples for turn in turns) / SAMPLE_RATE_HZ / 3600,
            )
            for turns in (self.learnt, self.held)
        ]

    def summary(self) -> str:
        learnt, held = (f"{n} turns of {who} speakers, {h:.2f} h" for n, who, h in self.sides())
        return f"learns from {learnt}; holds out {held}"


def turns_of(paths: Sequence[str], work: Path, jobs: int) -> list[Turn]:
    """Every turn that can be learnt from, by file. Turns of an earlier run in `work` are reused.

    Raises TuneError if there are too few turns or `work` cannot be written.
    """
    files = list(dict.fromkeys(file for path in paths for file in recordings_in(path)))
    files = [file for file in files if not os.path.isdir(file)]
    if not files:
        raise TuneError(f"{paths[0]}: no recording there; give a folder that holds some")
    rows: dict[str, Row] = {}
    try:
        folder = work / "features"
        folder.mkdir(exist_ok=True)
        hear = partial(listen, folder=folder)
        jobs = min(jobs, len(files))
        with Bar("listening", len(files)) as bar, Workers(jobs) as pool:
            for row in each_done(pool, jobs, hear, iter(files), {}):
                rows[row["file"]] = row
                bar.show(len(rows), f"{len(rows)} of {len(files)}")
    except BrokenProcessPool:
        told = "a listening process ended (too little memory?); run it again to go on"
        raise TuneError(told) from None
    except OSError as error:
        told = f"{work} cannot be written ({error.strerror}); make room, run it again to go on"
        raise TuneError(told) from None
    if broken := [rows[file] for file in files if rows[file]["error"]]:
        first = f"the first is {broken[0]['file']}: {broken[0]['error']}"
        fail(f"{len(broken)} of {len(files)} recordings cannot be read and are left out; {first}")
    if silent := sum(row["num_silent"] for row in rows.values()):
        fail(f"{silent} turns hold less than 1.5 s of speech and are left out")
    found = [Turn(**turn) for file in files for turn in rows[file]["turns"]]
    if len(found) < LEAST:
        told = f"{len(found)} turns with speech in {len(files)} recordings"
        raise TuneError(f"{told}: {LEAST} are needed, some hundred are useful; give more")
    return found


def listen(file: str, folder: Path, turn_s: float = TURN_S) -> Row:
    """One recording's row: its turns, the number of silent ones, or the error.

    The log-mel of each turn goes into `folder`, and then the row, which is taken from there while
    the recording stays as it is. Raises OSError if that cannot be written.
    """
    row: Row = {"file": file, "turns": [], "num_silent": 0, "error": None}
    try:
        status = os.stat(file)
        stamp = f"{status.st_size} {status.st_mtime_ns}"
        kept = folder / f"{_digest(f'{file} {stamp}')}.json"
        if kept.exists():
            found: Row = json.loads(kept.read_text("ascii"))
            return found
        for turn in _turns_in(file, folder, stamp, turn_s):
            row["num_silent"] += turn is None
            row["turns"] += [asdict(turn)] if turn else []
    except FileNotFoundError:
        return row | {"error": "no such file"}
    except AudioError as error:
        return row | {"turns": [], "error": error.reason}
    replace_text(kept, json.dumps(row))
    return row


def _digest(name: str) -> str:
    """A file's name may not be UTF-8."""
    return hashlib.blake2b(name.encode(errors="surrogateescape")).hexdigest()[:24]


def _turns_in(file: str, folder: Path, stamp: str, turn_s: float) -> Iterator[Turn | None]:
    """Turns in order; None for a turn without enough speech."""
    cutter = PartCutter(turn_s, measures=True)
    windows: list[MelWindow] = []
    begin = 0
    with open_audio(file) as audio:
        for items in (*_pushed(cutter, audio), cutter.close()):
            for item in items:
                if isinstance(item, Heard):
                    windows.extend(item.windows)
                elif isinstance(item, Closed):
                    path = folder / f"{_digest(f'{file}#{item.turn} {stamp}')}.npy"
                    yield _turn(file, item, begin, [*windows, *item.rest], path)
                    begin += item.num_samples
                    windows.clear()


def _pushed(cutter: PartCutter, audio: Any) -> Iterator[Sequence[Any]]:
    offset = OffsetFilter()
    return (cutter.push(offset.push(chunk)) for chunk in chunks_of(audio) if len(chunk))


def _turn(
    file: str, closed: Closed, begin: int, windows: list[MelWindow], path: Path
) -> Turn | None:
    """The turn, with its log-mel on disk; None if it holds too little speech."""
    assert closed.measures is not None
    measures = closed.measures()
    if not closed.has_speech or not windows or measures.speech_s < MIN_SPEECH_S:
        return None
    features = np.concatenate([w.features(closed.maximum) for w in windows], axis=1)
    np.save(path, features.astype(np.float32))
    return Turn(
        file=file,
        part=closed.turn,
        begin=begin,
        num_samples=closed.num_samples,
        num_embeddings=sum(num_embeddings(w.n_frames) for w in windows),
        features=path.name,
        levels=levels_of(measures),
    )


def samples_of(turns: Sequence[Turn]) -> Iterator[Samples]:
    """Each turn's samples, cut as it was heard. Turns of one file stand together, in order."""
    for file, some in groupby(turns, key=lambda turn: turn.file):
        with open_audio(file) as audio:
            chunks = chunks_of(audio)
            held, begin = np.zeros(0, np.float32), 0
            for turn in some:
                end = turn.begin + turn.num_samples
                while begin + len(held) < end:
                    if (chunk := next(chunks, None)) is None:
                        raise AudioError(file, "became shorter since it was listened to")
                    skipped = min(len(held), max(0, turn.begin - begin))
                    held = np.concatenate([held[skipped:], chunk])
                    begin += skipped
                yield held[turn.begin - begin : end - begin]


def split(
    turns: Sequence[Turn], who: Callable[[str], str], held: float, seed: int
) -> tuple[list[Turn], list[Turn]]:
    """(turns to learn from, held-out turns): about a share `held` of the speakers is held out.

    A speaker's side depends on the name and the seed alone, so new recordings move none. Raises
    TuneError if there are fewer than two speakers.
    """
    names = sorted({who(turn.file) for turn in turns}, key=lambda name: _place(name, seed))
    if len(names) < 2:
        told = "all recordings are of one speaker, so none can be held out"
        raise TuneError(f"{told}; give those of others too, or --speakers file")
    apart = {name for name in names if _place(name, seed) < held} or {names[0]}
    apart -= {names[-1]} if len(apart) == len(names) else set()
    sides: tuple[list[Turn], list[Turn]] = ([], [])
    for turn in turns:
        sides[who(turn.file) in apart].append(turn)
    return sides


def _place(name: str, seed: int) -> float:
    """A name's place between 0 and 1."""
    return int(_digest(f"{seed}/{name}"), 16) / 16**24


def speakers(how: str) -> Callable[[str], str]:
    """The speaker of a file. how: "file", "folder", or the path of a table. Raises ConfigError."""
    if how == "file":
        return lambda file: file
    if how == "folder":
        return lambda file: str(Path(file).parent)
    path = Path(how)
    try:
        text = path.read_text("utf-8-sig")  # spreadsheets begin with a byte order mark
        lines = [line for line in text.splitlines() if line.strip()]
        is_csv = path.suffix.lower() == ".csv"
        rows: list[Any] = list(csv.DictReader(lines)) if is_csv else list(map(json.loads, lines))
        column = next(name for name in FILE_COLUMNS if name in rows[0])
        known = {str((path.parent / row[column]).resolve()): row["speaker"] for row in rows}
    except (OSError, ValueError, KeyError, TypeError, IndexError, StopIteration):
        way = "give file, folder, or a table (.csv or .jsonl) with the columns file and speaker"
        raise ConfigError(f"--speakers {path} cannot be read as a table; {way}") from None
    return lambda file: str(known.get(str(Path(file).resolve()), file))


@dataclass(frozen=True)
class Base:
    """words: the card whose phrases are learnt: the model's own, or the embedded cloud's."""

    directory: Path
    shapes: Shapes
    num_params: int
    card: ModelCard
    words: ModelCard
    fingerprint: str


def base_of(spec: str) -> Base:
    """Raises ModelError as `load` does, and for phrases that do not fit the measures' levels."""
    directory = resolve(spec, "cloud")
    num_params = num_params_of(directory)
    card = read_card(directory)
    words = card if card.attributes else read_card(resolve("embedded", "cloud"))
    for name, levels in words.attributes.items():
        if len(levels) != NUM_LEVELS[name]:
            told = f"its card has {len(levels)} levels of {name}, recordings are labelled in"
            way = "change its phrases, or leave them out of its card"
            raise ModelError(directory, f"{told} {NUM_LEVELS[name]}; {way}")
    return Base(directory, shapes_of(directory), num_params, card, words, fingerprint_of(directory))


def check_memory(base: Base, width: int, device: str) -> None:
    """Raises TuneError if the weights alone do not fit: on a CPU those of the evaluation in
    float32, otherwise `width` bytes each. A step may still need more than there is."""
    need = base.num_params * width
    if device == "cpu":
        free = layout.free_bytes()
        need = max(need, int(layout.PEAK * layout.weight_bytes(base.shapes, "fast")))
    else:
        import torch

        free = torch.cuda.mem_get_info()[0]
    if free is not None and need > free:
        told = f"the weights take {need / 1e9:.1f} GB, {free / 1e9:.1f} are free"
        raise TuneError(f"{told}; take a smaller model, or a machine with more")


def check_disk(directory: Path, out: Path) -> None:
    """Raises TuneError if there is no room for the merged model."""
    size = sum(file.stat().st_size for file in directory.iterdir() if file.is_file())
    free = shutil.disk_usage(out.parent).free
    if size > free:
        told = f"{out} takes {size / 1e9:.1f} GB, {free / 1e9:.1f} are free there"
        raise TuneError(f"{told}; make room, or give another --out")
