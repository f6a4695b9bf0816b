"""A converted model on disk: written once, checked when it is read.

Files are mapped: they are there at once, and processes share their pages. A model lies in the
user's cache, named after the checkpoint's fingerprint, so a stale one is never found. It is written
beside its place, by one run at a time, and moved there when it is whole. Each part is read with its
length and CRC-32.
"""

from __future__ import annotations

import json
import os
import shutil
import warnings
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from tempfile import mkdtemp

import msgspec
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from streamer.extras.large.engine import FewBitsText, FewBitsTower
from streamer.extras.large.parts import Part, flat, names_of, parts_of, whole
from streamer.model.checkpoint.card import ModelWarning
from streamer.model.checkpoint.layout import Shapes, weight_bytes
from streamer.model.checkpoint.weights import ModelError, Told, fingerprint_of, quiet
from streamer.model.devices import is_ours
from streamer.model.engines.engine import Text, Tower

VERSION = 4  # of the layout; another one is not read
INDEX = "prepared.json"  # what is there; written last
MOST_INDEX_BYTES = 1_000_000
READ_BYTES = 1 << 20  # at a time, to sum them
SPARE_BYTES = 500_000_000  # that a disk should keep


def load_few_bits(
    directory: Path, shapes: Shapes, engine: str, told: Told = quiet
) -> tuple[Tower, Text]:
    """From the prepared form where there is a sound one, else converted. Raises ModelError."""
    prepared = Prepared(directory, shapes, engine)
    names = names_of(shapes)
    parts: dict[str, Part] = {}
    try:
        for i, name in enumerate(names):
            parts[name] = prepared.read(name)
            told(i + 1, len(names))
    except NotPrepared as reason:
        if str(reason):
            way = "it is not used; `streamer warm` writes it anew"
            warnings.warn(f"{prepared.at}: {reason}; {way}", ModelWarning, stacklevel=2)
        parts.clear()
        for name, part in parts_of(directory, shapes, engine):
            parts[name] = part
            told(len(parts), len(names))
    # Products have threads of their own: torch's would stay on their cores, waiting for the next.
    torch.set_num_threads(1)
    return FewBitsTower(parts, shapes.audio), FewBitsText(parts, shapes.text)


class NotPrepared(Exception):
    """There is no prepared form; the text says what is wrong with the one that is there."""


def cache_home() -> Path:
    """Where prepared models lie: STREAMER_CACHE, or `streamer` in the user's cache."""
    if given := os.environ.get("STREAMER_CACHE"):
        return Path(given).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "streamer"


class Prepared:
    """The prepared form of one checkpoint for one engine; it need not be there."""

    def __init__(self, directory: Path, shapes: Shapes, engine: str) -> None:
        self._directory = directory
        self._shapes = shapes
        self._engine = engine
        self._name = f"{fingerprint_of(directory)}-{engine}"
        self.at = cache_home() / "prepared" / f"{self._name}-{VERSION}"

    @property
    def num_bytes(self) -> int:
        return weight_bytes(self._shapes, self._engine)

    def read(self, name: str) -> Part:
        """One part, mapped. Raises NotPrepared."""
        wanted = self._index[name]
        try:
            if _sum_of(self.at / name) != wanted:
                raise NotPrepared(f"{name} is damaged")
            return whole(load_file(self.at / name))
        except (OSError, SafetensorError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise NotPrepared(f"{name} cannot be read ({why})") from None

    @cached_property
    def _index(self) -> Mapping[str, tuple[int, int]]:
        file = self.at / INDEX
        if not file.is_file():
            raise NotPrepared(*(f"{old.name} is of another version" for old in self._old()[:1]))
        try:
            if file.stat().st_size > MOST_INDEX_BYTES:
                raise ValueError
            found = msgspec.json.decode(file.read_bytes(), type=dict[str, tuple[int, int]])
            return {name: found[name] for name in names_of(self._shapes)}
        except (ValueError, KeyError, OSError, RecursionError):
            raise NotPrepared(f"{INDEX} is damaged") from None

    def write(self, told: Told) -> None:
        """Convert the checkpoint, part by part. Raises ModelError, also where the disk is full, or
        another run writes here."""
        names = names_of(self._shapes)
        made = parts_of(self._directory, self._shapes, self._engine)
        try:
            with _making(self.at.parent) as beside:
                self._check_disk()
                index = {}
                for i, (name, part) in enumerate(made):
                    save_file(flat(part), beside / name)
                    index[name] = _sum_of(beside / name)
                    told(i + 1, len(names))
                (beside / INDEX).write_text(json.dumps(index), "utf-8")
                shutil.rmtree(self.at, ignore_errors=True)
                beside.replace(self.at)
                for old in self._old():
                    shutil.rmtree(old, ignore_errors=True)
        except (OSError, SafetensorError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise ModelError(
                self.at, f"cannot be written ({why}); set STREAMER_CACHE to another place"
            ) from None

    def _old(self) -> list[Path]:
        """The same of other versions of the layout, which nothing reads any more."""
        return [at for at in self.at.parent.glob(f"{self._name}-*") if at != self.at]

    def _check_disk(self) -> None:
        """Raise ModelError where it will not fit, before any work."""
        home = self.at.parent
        free = shutil.disk_usage(home).free
        if free < self.num_bytes + SPARE_BYTES:
            needs = f"{self.num_bytes / 1e9:.1f} GB are needed, {free / 1e9:.1f} GB are free"
            raise ModelError(home, f"{needs}; make room, or set STREAMER_CACHE to another place")


@contextmanager
def _making(home: Path) -> Iterator[Path]:
    """A new folder in `home`, for this process alone. It is removed at the end, and so are
    folders of runs that were killed. Raises ModelError and OSError."""
    home.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        folder = os.open(home, os.O_RDONLY)
        stack.callback(os.close, folder)
        owned = is_ours(folder)
        if owned is False:
            raise ModelError(home, "is written by another run; wait for its end")
        for left in home.glob(".*") if owned else ():
            shutil.rmtree(left, ignore_errors=True)
        beside = Path(mkdtemp(prefix=".", dir=home))
        stack.callback(shutil.rmtree, beside, ignore_errors=True)
        yield beside


def _sum_of(file: Path) -> tuple[int, int]:
    """Length and CRC-32."""
    length = crc = 0
    with file.open("rb") as stream:
        while data := stream.read(READ_BYTES):
            length, crc = length + len(data), zlib.crc32(data, crc)
    return length, crc
