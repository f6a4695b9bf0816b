"""A checkpoint, converted to 8 or 4 bits part by part, and kept on disk.

One matrix is in memory as float32 at a time, and the largest comes first, while nothing else is
there: so the peak is the memory of the engine itself.

Files are mapped: they are there at once, and processes share their pages. A model lies in the
user's cache, named after the checkpoint's fingerprint, so a stale one is never found. It is written
beside its place, and moved there when it is whole.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from streamer.extras.large.engine import REST, FewBitsText, FewBitsTower, Matrix, Part, pack
from streamer.model.checkpoint.layout import EMBEDDING, Shapes, bits_of, weight_bytes
from streamer.model.checkpoint.weights import ModelError, ModelWarning, Told, fingerprint_of
from streamer.model.engines.engine import Text, Tower, arrays_of
from streamer.model.engines.load import Tensors
from streamer.model.kernels.library import PANEL

VERSION = 6  # of the layout; another one is not read
SPARE_BYTES = 500_000_000  # that a disk should keep


def load_few_bits(directory: Path, shapes: Shapes, engine: str, told: Told) -> tuple[Tower, Text]:
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
    for name, part in () if parts else parts_of(directory, shapes, engine):
        parts[name] = part
        told(len(parts), len(names))
    # Products have threads of their own: torch's would stay on their cores, waiting for the next.
    torch.set_num_threads(1)
    layers = [parts[f"tower.{i}"] for i in range(shapes.audio.layers)]
    return FewBitsTower(dict(parts[REST]), shapes.audio, layers), FewBitsText(parts, shapes.text)


class Prepared:
    """The prepared form of one checkpoint for one engine; it need not be there."""

    def __init__(self, directory: Path, shapes: Shapes, engine: str) -> None:
        self._made_of = directory, shapes, engine
        self._name = f"{fingerprint_of(directory)}-{engine}"
        self.num_bytes = weight_bytes(shapes, engine)
        cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "streamer"
        home = Path(os.environ.get("STREAMER_CACHE") or cache).expanduser() / "prepared"
        self.at = home / f"{self._name}-{VERSION}"

    def write(self, told: Told) -> None:
        """Convert the checkpoint, part by part, in place of any older form. Raises ModelError, also
        where the disk is full."""
        home, beside = self.at.parent, self.at.with_name(f".{self.at.name}")
        shutil.rmtree(beside, ignore_errors=True)  # of a run that was killed
        try:
            beside.mkdir(parents=True)
            free = shutil.disk_usage(home).free
            if free < self.num_bytes + SPARE_BYTES:  # told before any work
                sizes = f"{self.num_bytes / 1e9:.1f} GB are needed, {free / 1e9:.1f} GB are free"
                way = "make room, or set STREAMER_CACHE to another place"
                raise ModelError(home, f"{sizes}; {way}")
            for i, (name, part) in enumerate(parts_of(*self._made_of)):
                save_file(_tensors_of(part), beside / name)
                told(i + 1, len(names_of(self._made_of[1])))
            for old in home.glob(f"{self._name}-*"):
                shutil.rmtree(old, ignore_errors=True)
            beside.replace(self.at)
        except (OSError, SafetensorError) as error:
            why = getattr(error, "strerror", None) or str(error)
            way = "set STREAMER_CACHE to another place"
            raise ModelError(self.at, f"cannot be written ({why}); {way}") from None
        finally:
            shutil.rmtree(beside, ignore_errors=True)


def names_of(shapes: Shapes) -> list[str]:
    """Every part, in the order in which they are made."""
    text = [f"text.{i}" for i in range(shapes.text.layers)]
    return ["head", REST, *text, *(f"tower.{i}" for i in range(shapes.audio.layers))]


def parts_of(directory: Path, shapes: Shapes, engine: str) -> Iterator[tuple[str, Part]]:
    """(name, what it holds), as `names_of` lists them. Raises ModelError."""
    take = Tensors(directory).take
    for name in names_of(shapes):
        form = bits_of(engine, name)
        if name == "head":
            which = EMBEDDING if shapes.text.tied else "lm_head.weight"
            norm = take("model.norm.weight").float()
            yield name, {"norm": norm, "head": pack(take(which), *form)}
        elif name == REST:
            ends = {each: take(each).float() for each in shapes.audio.ends()}
            yield name, ends | {EMBEDDING: take(EMBEDDING).bfloat16()}
        else:
            half, _, i = name.partition(".")
            part: dict[str, Tensor | Matrix] = {}
            shape = shapes.text if half == "text" else shapes.audio
            for field, array in arrays_of(take, shape, int(i)):
                part[field] = pack(array, *form) if array.ndim == 2 else array.float()
            yield name, part
        with suppress(AttributeError, OSError):  # glibc keeps what was freed between matrices
            ctypes.CDLL(None).malloc_trim(0)


def _tensors_of(part: Part) -> dict[str, Tensor]:
    """The tensors of a part, a matrix as three; `whole` is the way back."""
    tensors: dict[str, Tensor] = {}
    for key, of in part.items():
        if isinstance(of, Matrix):
            tensors |= {f"{key}:{field}": tensor for field, tensor in of._asdict().items()}
        else:
            tensors[key] = of
    return tensors


def whole(tensors: Mapping[str, Tensor]) -> Part:
    """The part whose tensors `Prepared.write` kept."""
    part: dict[str, Tensor | Matrix] = {}
    for name in {key.partition(":")[0] for key in tensors}:
        if name in tensors:
            part[name] = tensors[name]
        else:
            part[name] = Matrix(*(tensors[f"{name}:{field}"] for field in Matrix._fields))
    return part
