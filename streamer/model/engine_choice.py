"""Which engine is faster here for a model of this shape? In: the shape. Out: compiled kernels or
torch, measured once.

Measured at the first load on this machine, at one id, a verification, sixteen rows and a window,
and kept in the user's cache; a file that is broken or cannot be written costs the measurement
again. No weights are read: random ones of the same shapes, of as many layers as a few milliseconds
allow.
"""

from __future__ import annotations

import hashlib
import json
import os
import statistics
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from streamer.model.checkpoint.layout import text_layout
from streamer.model.checkpoint.shapes import TextShape
from streamer.model.engines.engine import Engine, Row
from streamer.model.engines.text import Text, TextModel
from streamer.model.kernels.threads import num_kernel_threads, num_torch_threads

# rows, ids of each
STEPS = {"1 id": (1, 1), "5 ids": (1, 5), "16 rows": (16, 1), "50 ids": (1, 50)}
CONTEXT = 200
ROUNDS = 7
ENOUGH_S = 0.2
# of layers, of the vocabulary: the rest is more of the same
ENOUGH_PARAMS = 8_000_000
ENOUGH_IDS = 1024
# larger ones are torch's: packing them for the kernels would hold them twice in memory
MOST_PARAMS = 300_000_000
# Kernels compute each row the same in any company, torch does not: it has to be so much faster.
MARGIN = 1.25


@dataclass(frozen=True, slots=True)
class Choice:
    """is_compiled: which engine. ratios: torch's time over the kernels' per kind of step, {} where
    not measured."""

    is_compiled: bool
    ratios: dict[str, float]

    @property
    def name(self) -> str:
        return "compiled kernels" if self.is_compiled else "torch"


def choose(shape: TextShape, num_params: int, is_half: bool) -> Choice:
    """The faster engine on this machine, measured now unless it was before."""
    if num_params > MOST_PARAMS:
        return Choice(False, {})
    found = known(shape, num_params, is_half)
    if found is None:
        found = measure(shape, is_half, num_torch_threads(num_params))
        _keep(_key(shape, is_half), found)
    return found


def known(shape: TextShape, num_params: int, is_half: bool) -> Choice | None:
    """What was measured on this machine before; None where nothing was."""
    if num_params > MOST_PARAMS:
        return Choice(False, {})
    try:
        kept = json.loads(_file().read_text("utf-8"))[_key(shape, is_half)]
        ratios = {step: float(kept[step]) for step in STEPS}
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return _chosen(ratios)


def is_exact(weight: torch.Tensor) -> bool:
    """Whether float16 holds it."""
    return torch.equal(weight.half().float(), weight.float())


def measure(shape: TextShape, is_half: bool, threads: int) -> Choice:
    """Both engines, step by step in turn: medians of paired ratios. threads: torch's."""
    from streamer.model.kernels.text import FastText  # late: importing numba costs 0.4 s

    few = _few(shape)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        kernels, plain = (
            _engine(kind(_weights(few, is_half), few)) for kind in (FastText, TextModel)
        )
        return _chosen(
            {name: _ratio(kernels, plain, rows, ids) for name, (rows, ids) in STEPS.items()}
        )
    finally:
        torch.set_num_threads(before)


def _ratio(kernels: Engine, plain: Engine, rows: int, ids: int) -> float:
    """torch's time over the kernels': ROUNDS pairs, fewer where the machine is slow."""
    given = [Row(slot, CONTEXT, [1] * ids) for slot in range(rows)]
    found: list[float] = []
    begun = time.perf_counter()
    while len(found) < ROUNDS and (not found or time.perf_counter() - begun < ENOUGH_S):
        ours = _seconds(kernels, given)
        found.append(_seconds(plain, given) / ours)
    return round(statistics.median(found), 2)


def _chosen(ratios: dict[str, float]) -> Choice:
    product = 1.0
    for ratio in ratios.values():
        product *= ratio
    return Choice(product ** (1 / len(ratios)) * MARGIN > 1, ratios)


def _seconds(engine: Engine, rows: list[Row]) -> float:
    """Of the second of two steps: the first one finds other caches."""
    engine.step(rows)
    started = time.perf_counter()
    engine.step(rows)
    return time.perf_counter() - started


def _engine(text: Text) -> Engine:
    most = max(rows for rows, _ in STEPS.values())
    engine = Engine(text, text.slots(most, CONTEXT + 64), [1])
    for slot in [engine.open() for _ in range(most)]:
        engine.step([Row(slot, 1, [1] * (CONTEXT - 1), num_logits=0)])
    return engine


def _few(shape: TextShape) -> TextShape:
    inner = shape.heads * shape.head_dim
    keys = shape.kv_heads * shape.head_dim
    of_layer = shape.hidden * (2 * inner + 2 * keys + 3 * shape.ffn)
    layers = max(1, min(shape.layers, ENOUGH_PARAMS // of_layer))
    return replace(shape, layers=layers, vocab=min(shape.vocab, ENOUGH_IDS), tied=True)


def _weights(shape: TextShape, is_half: bool) -> dict[str, torch.Tensor]:
    chance = torch.Generator().manual_seed(0)
    drawn = {name: torch.randn(size, generator=chance) * 0.02 for name, size in text_layout(shape)}
    return {name: weight.half().float() if is_half else weight for name, weight in drawn.items()}


def _key(shape: TextShape, is_half: bool) -> str:
    """This machine, its threads and its libraries, and the shape."""
    import numba
    from llvmlite.binding import get_host_cpu_name

    told = [
        asdict(shape),
        is_half,
        get_host_cpu_name(),
        num_kernel_threads(),
        os.environ.get("OMP_NUM_THREADS", ""),
        os.cpu_count(),
        torch.__version__,
        numba.__version__,
    ]
    return hashlib.blake2b(json.dumps(told).encode(), digest_size=8).hexdigest()


def _file() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(home).expanduser() / "streamer" / "engines.json"


def _keep(key: str, choice: Choice) -> None:
    """Beside what is there; nothing where the place cannot be written to."""
    file = _file()
    try:
        kept: Any = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        kept = {}
    kept = {**(kept if isinstance(kept, dict) else {}), key: choice.ratios}
    part = file.with_suffix(f".{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps(kept), "utf-8")
        part.replace(file)
    except OSError:
        return
