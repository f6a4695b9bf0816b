"""A converted model on disk.

Files are mapped: they are there at once, and processes share their pages. A model lies in the
user's cache, named after the checkpoint's fingerprint, so a stale one is never found. It is written
beside its place, and moved there when it is whole.
"""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from streamer.extras.large.engine import FewBitsText, FewBitsTower
from streamer.extras.large.parts import REST, Part, flat, names_of, parts_of, whole
from streamer.model.checkpoint.layout import Shapes, weight_bytes
from streamer.model.checkpoint.weights import ModelError, ModelWarning, Told, fingerprint_of, quiet
from streamer.model.devices import is_ours
from streamer.model.engines.engine import Text, Tower
from streamer.model.kernels.library import PANEL

VERSION = 6  # of the layout; another one is not read
SPARE_BYTES = 500_000_000  # that a disk should keep


def load_few_bits(
    directory: Path, shapes: Shapes, engine: str, told: Told = quiet
) -> tuple[Tower, Text]:
    """From the prepared form where there is one, else converted. Raises ModelError."""
    if shapes.text.hidden % PANEL:
        raise ModelError(directory, f"its hidden size is no multiple of {PANEL}; take engine fast")
    prepared = Prepared(directory, shapes, engine)
    names = names_of(shapes)
    parts: dict[str, Part] = {}
    try:
        for name in names if prepared.at.is_dir() else ():
            parts[name] = whole(load_file(prepared.at / name))
            told(len(parts), len(names))
    except (OSError, SafetensorError) as error:
        parts.clear()
        why = f"{prepared.at}: {name} cannot be read ({getattr(error, 'strerror', None) or error})"
        way = "it is not used; `streamer warm` writes it anew"
        warnings.warn(f"{why}; {way}", ModelWarning, stacklevel=2)
    if not parts:
        for name, part in parts_of(directory, shapes, engine):
            parts[name] = part
            told(len(parts), len(names))
    # Products have threads of their own: torch's would stay on their cores, waiting for the next.
    torch.set_num_threads(1)
    layers = [parts[f"tower.{i}"] for i in range(shapes.audio.layers)]
    return FewBitsTower(dict(parts[REST]), shapes.audio, layers), FewBitsText(parts, shapes.text)


def cache_home() -> Path:
    """Where prepared models lie: STREAMER_CACHE, or `streamer` in the user's cache."""
    if given := os.environ.get("STREAMER_CACHE"):
        return Path(given).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "streamer"


class Prepared:
    """The prepared form of one checkpoint for one engine; it need not be there."""

    def __init__(self, directory: Path, shapes: Shapes, engine: str) -> None:
        self._made_of = directory, shapes, engine
        self._name = f"{fingerprint_of(directory)}-{engine}"
        self.num_bytes = weight_bytes(shapes, engine)
        self.at = cache_home() / "prepared" / f"{self._name}-{VERSION}"

    def write(self, told: Told) -> None:
        """Convert the checkpoint, part by part, in place of any older form. Raises ModelError, also
        where the disk is full."""
        home = self.at.parent
        try:
            home.mkdir(parents=True, exist_ok=True)
            with self._folder() as beside:
                self._check_disk(home)
                names = names_of(self._made_of[1])
                for i, (name, part) in enumerate(parts_of(*self._made_of)):
                    save_file(flat(part), beside / name)
                    told(i + 1, len(names))
                for old in home.glob(f"{self._name}-*"):
                    shutil.rmtree(old, ignore_errors=True)
                beside.replace(self.at)
        except (OSError, SafetensorError) as error:
            why = getattr(error, "strerror", None) or str(error)
            way = "set STREAMER_CACHE to another place"
            raise ModelError(self.at, f"cannot be written ({why}); {way}") from None

    @contextmanager
    def _folder(self) -> Iterator[Path]:
        """An empty folder of this run alone, to be moved; it goes where the run fails."""
        beside = self.at.with_name(f".{self.at.name}")
        beside.mkdir(exist_ok=True)
        owned = os.open(beside, os.O_RDONLY)
        try:
            if is_ours(owned) is False:
                raise ModelError(self.at, "is written by another run; wait for its end")
            for old in beside.iterdir():  # of a run that was killed
                old.unlink()
            try:
                yield beside
            except BaseException:
                shutil.rmtree(beside, ignore_errors=True)
                raise
        finally:
            os.close(owned)

    def _check_disk(self, home: Path) -> None:
        """Raise ModelError where it will not fit, before any work."""
        free = shutil.disk_usage(home).free
        if free < self.num_bytes + SPARE_BYTES:
            needs = f"{self.num_bytes / 1e9:.1f} GB are needed, {free / 1e9:.1f} GB are free"
            raise ModelError(home, f"{needs}; make room, or set STREAMER_CACHE to another place")
