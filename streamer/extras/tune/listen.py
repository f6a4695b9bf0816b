"""A recording in; its turns out, heard and measured as the engine hears and measures them.

The cutter is the engine's own (model/audio/part_cutter.py), so windows and turns are the same.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np

from streamer.audio.file import AudioError, open_audio
from streamer.core.audio.turn_items import Closed, Heard
from streamer.core.measures.levels import levels_of
from streamer.core.measures.speech_measures import MIN_SPEECH_S
from streamer.extras.tune.turn import LearntTurn, as_bytes
from streamer.model.audio.mel import MelWindow, num_embeddings
from streamer.model.audio.part_cutter import PartCutter
from streamer.recording import chunks_of


def listen(file: str, turn_s: float, folder: Path) -> dict[str, Any]:
    """The recording's row: its turns, how many hold too little speech, or why it cannot be read.

    The log-mel of each turn goes into `folder`. Raises OSError where that cannot be written.
    """
    row: dict[str, Any] = {
        "file": file,
        "stamp": stamp_of(file),
        "turns": [],
        "num_silent": 0,
        "error": None,
    }
    try:
        _listen(file, turn_s, folder, row)
    except AudioError as error:
        return row | {"turns": [], "error": error.reason}
    return row


def stamp_of(file: str) -> str:
    """What changes with a recording's content, to tell a changed one; empty where it is gone."""
    try:
        found = os.stat(file)
    except OSError:
        return ""
    return f"{found.st_size} {found.st_mtime_ns}"


def _listen(file: str, turn_s: float, folder: Path, row: dict[str, Any]) -> None:
    cutter = PartCutter(turn_s, measures=True)
    windows: list[MelWindow] = []
    begin = 0

    def take(items: list[Any]) -> None:
        nonlocal begin
        for item in items:
            if isinstance(item, Heard):
                windows.extend(item.windows)
            elif isinstance(item, Closed):
                name = _name(f"{file}#{item.turn} {row['stamp']}")
                turn = _turn(file, item, begin, [*windows, *item.rest], folder / name)
                if turn is None:
                    row["num_silent"] += 1
                else:
                    row["turns"].append(turn.as_json())
                begin += item.num_samples
                windows.clear()

    with open_audio(file) as audio:
        for chunk in chunks_of(audio):
            if len(chunk):
                take(cutter.push(chunk))
        take(cutter.close())


def _name(told: str) -> str:
    return f"{hashlib.blake2b(as_bytes(told)).hexdigest()[:24]}.npy"


def _turn(
    file: str, closed: Closed, begin: int, windows: list[MelWindow], path: Path
) -> LearntTurn | None:
    """The turn, its log-mel on disk; None where nothing can be said of it."""
    assert closed.measures is not None
    measures = closed.measures()
    if not closed.has_speech or not windows or measures.speech_s < MIN_SPEECH_S:
        return None
    features = np.concatenate([w.features(closed.maximum) for w in windows], axis=1)
    np.save(path, features.astype(np.float32))
    return LearntTurn(
        file=file,
        part=closed.turn,
        begin=begin,
        num_samples=closed.num_samples,
        num_embeddings=sum(num_embeddings(w.n_frames) for w in windows),
        features=path.name,
        levels=levels_of(measures),
    )
