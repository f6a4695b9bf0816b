"""Training data: recordings are cut into turns, measured, labelled, and split by speaker.

Turns and log-mel windows come from the engine's own cutter (model/audio/turns.py), so the model is
trained on exactly what the engine feeds.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from itertools import tee
from pathlib import Path

import numpy as np

from streamer.audio.file import AudioError, chunks_of, open_audio
from streamer.commands.process import Failed, each_done, fail, recordings_of
from streamer.core.audio.pcm import Samples
from streamer.core.audio.turn import Closed, Heard
from streamer.core.declare import ConfigError
from streamer.core.measures.levels import levels_of
from streamer.core.measures.speech_measures import MIN_SPEECH_S
from streamer.model.audio.mel import MelWindow, num_embeddings
from streamer.model.checkpoint.card import replace_text
from streamer.model.listener import items_of
from streamer.model.thinker import num_cores
from streamer.progress import Bar

TURN_S = 30.0  # longer recordings are cut into turns of this length
LEAST = 8  # turns: too few to learn and to evaluate with
HELD = 0.15  # share of the speakers that is held out
MOST_HELD = 200  # held-out turns to evaluate


@dataclass(frozen=True)
class Turn:
    """A recording, or a part of a long one. name: file#part.

    sound: a file with its `samples` [n] at 16 kHz and its log-mel `mel` [128, frames], both
    float32. num_embeddings: embeddings that the tower makes of it. levels: attribute -> level, None
    if unknown.
    """

    file: str
    name: str
    sound: str
    num_embeddings: int
    levels: dict[str, int | None]


def files_in(paths: tuple[str, ...]) -> list[str]:
    """The recordings at `paths`. Raises Failed if there is none."""
    files = dict.fromkeys(recordings_of(paths))
    if not (found := [file for file in files if not os.path.isdir(file)]):
        raise Failed(f"{paths[0]}: no recording there; give a folder that holds some")
    return found


def turns_of(files: Sequence[str], work: Path) -> list[Turn]:
    """Every turn that can be learnt from, by file; those of an earlier run in `work`, if any. A
    process for each core listens.

    Raises Failed if there are too few, OSError if `work` cannot be written.
    """
    kept = work / "turns.json"
    if kept.exists():
        return [Turn(**turn) for turn in json.loads(kept.read_text("ascii"))]
    (work / "turns").mkdir(exist_ok=True)
    heard: dict[str, list[Turn | None]] = {file: [] for file in files}
    broken: list[str] = []
    done = each_done(num_cores(), partial(listen, folder=work / "turns"), files)
    with Bar("listening", len(files)) as bar, closing(done) as results:
        for num, (file, found) in enumerate(results, 1):
            if isinstance(found, list):
                heard[file] = found
            else:
                broken.append(f"{file}: {found or 'its process ended (too little memory?)'}")
            bar.show(num, f"{num} of {len(files)}")
    if broken:
        told = f"{len(broken)} of {len(files)} recordings cannot be read and are left out"
        fail(f"{told}; the first is {min(broken)}")
    turns = [turn for of_file in heard.values() for turn in of_file]
    if silent := turns.count(None):
        fail(f"{silent} turns hold less than 1.5 s of speech and are left out")
    spoken = [turn for turn in turns if turn]
    if len(spoken) < LEAST:
        told = f"{len(spoken)} turns with speech in {len(files)} recordings"
        raise Failed(f"{told}: {LEAST} are needed, some hundred are useful; give more")
    replace_text(kept, json.dumps([asdict(turn) for turn in spoken]))
    return spoken


def listen(file: str, folder: Path, turn_s: float = TURN_S) -> list[Turn | None] | str:
    """The recording's turns, None for those with too little speech; or why it cannot be read. The
    turns' sound goes into `folder`. Raises OSError if that is full."""
    found: list[Turn | None] = []
    windows: list[MelWindow] = []
    left = np.zeros(0, np.float32)
    try:
        with open_audio(file) as audio:
            chunks, same = tee(chunks_of(audio))
            for item in items_of(chunks, turn_s, measures=True):
                if isinstance(item, Heard):
                    windows.extend(item.windows)
                elif isinstance(item, Closed):
                    while len(left) < item.num_samples:
                        left = np.concatenate([left, next(same)])
                    samples, left = np.split(left, [item.num_samples])
                    found.append(_turn(file, item, samples, [*windows, *item.rest], folder))
                    windows.clear()
    except AudioError as error:
        return error.reason
    return found


def _digest(name: str) -> str:
    """A file's name may not be UTF-8."""
    return hashlib.blake2b(name.encode(errors="surrogateescape")).hexdigest()[:24]


def _turn(
    file: str, closed: Closed, samples: Samples, windows: list[MelWindow], folder: Path
) -> Turn | None:
    """The turn, with its sound on disk; None if it holds too little speech."""
    assert closed.measures is not None
    measures = closed.measures()
    if not closed.has_speech or not windows or measures.speech_s < MIN_SPEECH_S:
        return None
    mel = np.concatenate([w.features(closed.maximum) for w in windows], axis=1)
    path = folder / f"{_digest(name := f'{file}#{closed.turn}')}.npz"
    np.savez(path, samples=samples.astype(np.float32), mel=mel.astype(np.float32))
    num = sum(num_embeddings(w.raw.shape[1]) for w in windows)
    return Turn(file, name, str(path), num, levels_of(measures))


def split(
    turns: Sequence[Turn], who: Callable[[str], str], seed: int
) -> tuple[list[Turn], list[Turn]]:
    """(turns to learn from, at most MOST_HELD held-out turns): about a share HELD of the speakers
    is held out.

    A speaker's side depends on the name and the seed alone, so new recordings move none. Raises
    Failed if there are fewer than two speakers.
    """

    def place(name: str) -> float:
        return int(_digest(f"{seed}/{name}"), 16) / 16**24

    names = sorted({who(turn.file) for turn in turns}, key=place)
    if len(names) < 2:
        told = "all recordings are of one speaker, so none can be held out"
        raise Failed(f"{told}; give those of others too, or --speakers file")
    apart = {name for name in names[:-1] if place(name) < HELD} | {names[0]}
    held = [turn for turn in turns if who(turn.file) in apart]
    step = max(1.0, len(held) / MOST_HELD)
    held_out = [held[int(i * step)] for i in range(min(MOST_HELD, len(held)))]
    return [turn for turn in turns if who(turn.file) not in apart], held_out


def speakers(how: str) -> Callable[[str], str]:
    """The speaker of a file. how: "file", "folder", or the path of a table. Raises ConfigError."""
    if how == "file":
        return lambda file: file
    if how == "folder":
        return lambda file: str(Path(file).parent)
    path = Path(how)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:  # as spreadsheets write it
            rows = list(csv.DictReader(file))
        known = {str((path.parent / row["file"]).resolve()): row["speaker"] for row in rows}
    except (OSError, ValueError, KeyError, TypeError, csv.Error):
        way = "give file, folder, or a table (.csv) with the columns file and speaker"
        raise ConfigError(f"--speakers {path} cannot be read as a table; {way}") from None
    return lambda file: str(known.get(str(Path(file).resolve()), file))
