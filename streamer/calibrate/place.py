"""Where a calibration goes. In: the options, the edge's directory. Out: its card, written."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamer.commands.calibrate_options import CalibrateOptions
from streamer.config import ConfigError

CARD = "streamer.json"
PLOT = "calibration.png"


class CalibrationError(Exception):
    """Why no threshold can be given: one line, and the way out."""


@dataclass(frozen=True)
class Destination:
    """file: the card that is written. copy: the model's directory that is made for it, if any."""

    file: Path
    copy: Path | None
    plot: Path


def place_of(options: CalibrateOptions, directory: Path) -> Destination:
    """Before the work. Raises ConfigError for a model that stays as it is, CalibrationError."""
    if options.out is None:
        _check_own(directory, options.force)
        file = directory / CARD
        copy = None
        plot = directory / PLOT
    elif (out := Path(options.out)).is_dir():
        told = f"{out}: is a directory that exists; calibrate what is in it with --edge {out}"
        ways = f"or name one that does not exist yet, or a file, e.g. {out / CARD}"
        raise CalibrationError(f"{told}, {ways}")
    elif out.suffix == ".json" or out.exists():
        file = out
        copy = None
        plot = out.with_suffix(".png")
    else:
        file = out / CARD
        copy = out
        plot = out / PLOT
    _check_writable(copy or file)
    return Destination(file, copy, Path(options.plot) if options.plot else plot)


def _check_own(directory: Path, is_forced: bool) -> None:
    from streamer.model.thinker import resolve

    if not is_forced and directory.resolve() == resolve("embedded", "edge").resolve():
        told = "the embedded edge's thresholds come with streamer"
        way = "--out myedge makes a copy of it with yours (then --edge myedge)"
        raise ConfigError(f"{told}; {way}; --force replaces them")


def _check_writable(out: Path) -> None:
    try:
        tempfile.TemporaryFile(dir=out.parent).close()
    except OSError as error:
        reason = f"cannot be written ({error.strerror}); choose another place with --out"
        raise CalibrationError(f"{out}: {reason}") from None


def write(place: Destination, directory: Path, gate: Mapping[str, Any]) -> None:
    """The card with `gate` in it; a copy is there whole or not at all. Raises ModelError."""
    from streamer.model.checkpoint.card_write import write_gate
    from streamer.model.checkpoint.weights import ModelError

    if place.copy is None:
        write_gate(directory, place.file, gate)
        return
    try:
        with tempfile.TemporaryDirectory(
            dir=place.copy.parent, prefix=f".{place.copy.name}-"
        ) as half:
            made = Path(half) / "edge"
            shutil.copytree(directory, made, copy_function=shutil.copyfile)
            write_gate(directory, made / CARD, gate)
            made.rename(place.copy)
    except (OSError, shutil.Error) as error:
        reason = getattr(error, "strerror", None) or "some files could not be copied"
        told = f"cannot be written ({reason}); choose another place with --out"
        raise ModelError(place.copy, told) from None
