"""Matrices in 8 or 4 bits per weight, the language model and audio tower made of them, and their
form on disk.

Groups of weights along a row share a scale, as in llama.cpp's formats and in GPTQ
(arXiv 2210.17323, without its second-order correction): w = scale * q. The scale has the sign that
gives the group's largest weight the end of the range that reaches further.

They are for models that spend a step on reading their weights. The language model's layers and the
tower's products run on compiled kernels (layers.py), and torch runs the rest. A row's bits depend
on that row alone, so mode `exact` equals `cloud` to the last bit, as with engine `stable`.

A checkpoint is converted part by part. One matrix is in memory as float32 at a time, and the
largest comes first, while nothing else is there: so the peak is the memory of the engine itself.
Prepared files are mapped: they are there at once, and processes share their pages. They lie in the
user's cache, named after the checkpoint's fingerprint, so a stale one is never found, and are
written beside their place, and moved there when they are whole.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Sequence as Seq
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor
from torch.serialization import safe_globals

from streamer.extras.large.layers import APART, PHASES, SPARE, feed, times
from streamer.extras.large.tile import COLUMNS, LINE
from streamer.model.checkpoint.weights import (
    EMBEDDING,
    ModelError,
    ModelWarning,
    Shapes,
    TextShape,
    Told,
    fingerprint_of,
)
from streamer.model.engines.engine import KVSlots, Span, Text, Tower, arrays_of, compiled_slots
from streamer.model.engines.load import AudioTower, Tensors, TextModel
from streamer.model.kernels.library import PANEL
from streamer.model.thinker import bits_of, num_cores, weight_bytes

Part = Mapping[str, Any]  # of a model: tensors, and matrices in few bits
ENDS = "ends"  # the part around the layers: head, embedding, and the tower's ends
NORM = "model.norm.weight"
PANELS_AT_ONCE = 8  # so that float32 copies stay small
# Parts of the scale that are tried for 4 bits; the one of the least squared error is taken.
SHRUNK = (1.0, 0.9, 0.8)
MOST_THREADS = 64
WORTH = 1_000_000  # multiplications that are worth a thread: 0.1 ms of it
VERSION = 7  # of the layout on disk; another one is not read
SPARE_BYTES = 500_000_000  # that a disk should keep


class Matrix(NamedTuple):
    """data [panels, groups, lines, LINE]: int8, a line holds 4 weights of each column, as [COLUMNS,
    4]; or uint8, the same of bytes of two weights of 4 bits, plus 8: the first four are in the low
    bits, the next in the high ones. scales [panels, groups, COLUMNS] float32; size: out and in,
    int64."""

    data: Tensor
    scales: Tensor
    size: Tensor

    @property
    def form(self) -> tuple[int, int, np.int32]:
        """Weights of a group, its lines, and the number that stands for 0."""
        lines, is_packed = self.data.shape[2], self.data.dtype == torch.uint8
        group = lines * LINE // COLUMNS * (1 + is_packed)
        return group, lines, np.int32(8 if is_packed else 128)

    def addresses(self, bias: Tensor | None = None) -> list[int]:
        """Its weights, scales and bias, as layers.py finds them; all must stay meanwhile."""
        shift = 0 if bias is None else bias.data_ptr()
        return [self.data.data_ptr(), self.scales.data_ptr(), shift]

    def times(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """x @ weights.T + bias, [n, out] of x [n, in], float32. A row's bits depend on it alone."""
        rows, inner = x.shape
        y = torch.empty(rows, int(self.size[0]))
        threads = min(num_threads(), max(1, y.numel() * inner // WORTH))
        by_all(
            times,
            2,
            threads,
            x.contiguous().numpy().reshape(-1),
            rows,
            inner,
            np.array(self.addresses(bias)),
            self.data.numpy().reshape(-1)[:0],
            y.numpy().reshape(-1),
            y.shape[1],
            room_for(rows, [inner], self.form[0]),
            self.form,
        )
        return y


def room_for(rows: int, inner: Iterable[int], group: int) -> tuple[NDArray[Any], ...]:
    """Memory for rows of any of these widths in 8 bits, their steps and their starts."""
    groups = rows * max(-(-width // group) for width in inner)
    q = np.empty(groups * group + rows * SPARE, np.int8)
    return q, np.empty(groups, np.float32), np.empty(groups, np.int32)


def by_all(function: Callable[..., None], phases: int, threads: int, *given: Any) -> None:
    """Run a function of layers.py on `threads`, one of which is the caller's."""
    cells = np.zeros(phases * APART, np.int64)
    others = [_helpers().submit(function, cells, threads, *given) for _ in range(threads - 1)]
    function(cells, threads, *given)
    for each in others:
        each.cancel()  # it would find nothing to do


@cache
def _helpers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(MOST_THREADS, "few-bits")


@cache
def num_threads() -> int:
    """Threads of a product: the cores; OMP_NUM_THREADS in the environment bounds them."""
    said = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, min(num_cores(), int(said) if said.isdecimal() else MOST_THREADS, MOST_THREADS))


def pack(weight: Tensor, bits: int, group: int) -> Matrix:
    """The nearest that weights of `bits` can say, where `group` of a row share a scale."""
    out, inner = weight.shape
    panels, groups = -(-out // COLUMNS), -(-inner // group)
    lines = COLUMNS * group * bits // (8 * LINE)
    kind = torch.int8 if bits == 8 else torch.uint8
    data = torch.empty(panels, groups, lines, LINE, dtype=kind)
    scales = torch.empty(panels, groups, COLUMNS)
    for first in range(0, panels, PANELS_AT_ONCE):
        some = slice(first, min(first + PANELS_AT_ONCE, panels))
        rows = weight[first * COLUMNS : some.stop * COLUMNS].float()
        padded = F.pad(rows, (0, -inner % group, 0, -len(rows) % COLUMNS))
        q, found = _rounded(padded.view(len(padded), groups, group), bits)
        scales[some] = found.view(-1, COLUMNS, groups).transpose(1, 2)
        fours = q.view(-1, COLUMNS, groups, group // 4, 4).permute(0, 2, 3, 1, 4)
        if bits == 4:
            # a byte: one weight of four in the low bits, one of the next four in the high ones
            low, high = (fours + 8).view(torch.uint8).unflatten(2, (-1, 2)).unbind(3)
            fours = low | (high << 4)
        data[some] = fours.reshape(-1, groups, lines, LINE)
    return Matrix(data, scales, torch.tensor(weight.shape))


def _rounded(groups: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    least, most = torch.aminmax(groups, dim=-1, keepdim=True)
    top = torch.where(-least > most, least, most)
    end = 1 << (bits - 1)
    best = torch.full_like(top, torch.inf)
    q, scales = torch.zeros_like(groups), torch.zeros_like(top)
    for part in SHRUNK if bits == 4 else SHRUNK[:1]:
        tried = top * (-part / end)
        whole = (groups * torch.where(tried == 0, 0, 1 / tried)).round_().clamp_(-end, end - 1)
        error = (whole * tried - groups).square_().sum(-1, keepdim=True)
        better = error < best
        best = torch.where(better, error, best)
        scales = torch.where(better, tried, scales)
        q = torch.where(better, whole, q)
    return q.to(torch.int8), scales[..., 0]


class FewBitsText(TextModel):
    """A row's bits depend on its own ids alone: not on their cut, nor on the rows beside it."""

    slots = compiled_slots

    def __init__(self, parts: Mapping[str, Part], shape: TextShape) -> None:
        self.shape = shape
        ends = parts[ENDS]
        self.embedding, self.norm, self.head = ends[EMBEDDING], ends[NORM], ends["head"]
        self.layers = [parts[f"text.{i}"] for i in range(shape.layers)]
        # it holds addresses: `layers` keeps the arrays alive
        rows = []
        for of in self.layers:
            row = [of["norm_in"].data_ptr(), of["norm_mlp"].data_ptr()]
            row += of["qkv"].addresses(of["qkv_bias"])
            for name in ("out", "gate_up", "down"):
                row += of[name].addresses()
            rows.append(row)
        self._table = np.array(rows)

    def embed(self, ids: Seq[int]) -> Tensor:
        """[n, hidden] float32 of `ids`."""
        return super().embed(ids).float()

    def forward(self, x: Tensor, spans: Seq[Span], slots: KVSlots) -> Tensor:
        """As `TextModel.forward`, in place."""
        s, rows, first = self.shape, len(x), self.layers[0]["qkv"]
        inner = s.heads * s.head_dim
        widest = max(inner + 2 * s.kv_heads * s.head_dim, 2 * s.ffn)
        given = np.empty(rows * max(s.hidden, inner, s.ffn), np.float32)
        wide, change = np.empty(rows * widest, np.float32), np.zeros(rows * s.hidden, np.float32)
        rooms = given, wide, change, room_for(rows, (s.hidden, inner, s.ffn), first.form[0])
        own = x.numpy()
        by_all(
            feed,
            len(self.layers) * PHASES,
            num_threads(),
            own.reshape(-1),
            np.array(spans),
            (s.heads, s.kv_heads, s.head_dim, s.hidden, s.ffn, slots.values.shape[3]),
            np.float32(s.eps),
            self._table,
            first.data.numpy().reshape(-1)[:0],
            slots.angles,
            (slots.keys.reshape(s.layers, -1), slots.values.reshape(s.layers, -1)),
            rooms,
            first.form,
        )
        own += change.reshape(own.shape)
        return x

    def _linear(self, x: Tensor, weight: Matrix, bias: Tensor | None = None) -> Tensor:
        return weight.times(x, bias)


class FewBitsTower(AudioTower):
    """`encode` turns windows into embeddings; convolutions and the projection are float32."""

    windows_at_once = 1  # a window has rows enough for every thread

    def _linear(self, x: Tensor, weight: Matrix, bias: Tensor) -> Tensor:
        return weight.times(x.flatten(0, -2), bias).view(*x.shape[:-1], -1)


def load_few_bits(directory: Path, shapes: Shapes, engine: str, told: Told) -> tuple[Tower, Text]:
    """From the prepared form where there is one, else converted. Raises ModelError."""
    if shapes.text.hidden % PANEL:
        raise ModelError(directory, f"its hidden size is no multiple of {PANEL}; take engine fast")
    prepared = Prepared(directory, shapes, engine)
    names = names_of(shapes)
    parts: dict[str, Part] = {}
    try:
        for name in names if prepared.at.is_dir() else ():
            with safe_globals([Matrix]):
                parts[name] = torch.load(prepared.at / name, mmap=True, weights_only=True)
            told(len(parts), len(names))
    except (OSError, RuntimeError, UnpicklingError) as error:
        parts.clear()
        why = f"{prepared.at}: {name} cannot be read ({getattr(error, 'strerror', 'damaged')})"
        way = "it is not used; `streamer warm` writes it anew"
        warnings.warn(f"{why}; {way}", ModelWarning, stacklevel=2)
    parts = parts or dict(parts_of(directory, shapes, engine, told))
    # Products have threads of their own: torch's would stay on their cores, waiting for the next.
    torch.set_num_threads(1)
    layers = [parts[f"tower.{i}"] for i in range(shapes.audio.layers)]
    return FewBitsTower(dict(parts[ENDS]), shapes.audio, layers), FewBitsText(parts, shapes.text)


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
                raise OSError(0, sizes)
            for name, part in parts_of(*self._made_of, told):
                torch.save(part, beside / name)
            for old in home.glob(f"{self._name}-*"):
                shutil.rmtree(old, ignore_errors=True)
            beside.replace(self.at)
        except (OSError, RuntimeError) as error:  # torch raises the latter on a full disk
            why = getattr(error, "strerror", None) or str(error)
            way = "make room, or set STREAMER_CACHE to another place"
            raise ModelError(self.at, f"cannot be written ({why}); {way}") from None
        finally:
            shutil.rmtree(beside, ignore_errors=True)


def names_of(shapes: Shapes) -> list[str]:
    """Every part, in the order in which they are made."""
    text = [f"text.{i}" for i in range(shapes.text.layers)]
    return [ENDS, *text, *(f"tower.{i}" for i in range(shapes.audio.layers))]


def parts_of(
    directory: Path, shapes: Shapes, engine: str, told: Told
) -> Iterator[tuple[str, Part]]:
    """(name, what it holds), as `names_of` lists them. Raises ModelError."""
    take, names = Tensors(directory).take, names_of(shapes)
    for num, name in enumerate(names, start=1):
        form = bits_of(engine, name)
        part: dict[str, Tensor | Matrix] = {}
        if name == ENDS:  # the largest first
            part["head"] = pack(take(EMBEDDING if shapes.text.tied else "lm_head.weight"), *form)
            part |= {each: take(each).float() for each in (NORM, *shapes.audio.ends())}
            part[EMBEDDING] = take(EMBEDDING).bfloat16()
        else:
            half, _, i = name.partition(".")
            shape = shapes.text if half == "text" else shapes.audio
            for field, array in arrays_of(take, shape, int(i)):
                part[field] = pack(array, *form) if array.ndim == 2 else array.float()
        yield name, part
        told(num, len(names))
        with suppress(AttributeError, OSError):  # glibc keeps what was freed between matrices
            ctypes.CDLL(None).malloc_trim(0)
