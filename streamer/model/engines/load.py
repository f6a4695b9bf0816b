"""Models that torch runs: larger ones, other devices, and transformers' own for comparison.

In: a checked model directory. Out: its tower and its language model. Importing this costs a second
and 200 MB, so that the embedded pair does without.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from streamer.model.checkpoint.layout import Shapes, entries
from streamer.model.checkpoint.weights import ModelError, Told, check_finite, reading
from streamer.model.engines.engine import Text, Tower
from streamer.model.engines.models import AudioTower, StableText, TextModel

SMALL = 50_000_000  # parameters, up to which a product is too small to be worth a second thread


def set_torch_threads(num_params: int) -> None:
    """One thread for small models, torch's own choice for others; OMP_NUM_THREADS in the
    environment wins. Before weights are read: threads that wait for work on small tensors take a
    second of the CPU's time."""
    if num_params <= SMALL and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)


def load_torch(
    directory: Path, shapes: Shapes, device: str, engine: str, told: Told
) -> tuple[Tower, Text]:
    """Tower and language model, fp32 on a CPU, bf16 on a GPU. Raises ModelError."""
    check_device(device)
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    weights = load_weights(directory, dtype, device, told)
    kinds = {"fast": TextModel, "stable": StableText}
    return AudioTower(weights, shapes.audio), kinds[engine](weights, shapes.text)


def load_weights(directory: Path, dtype: torch.dtype, device: str, told: Told) -> dict[str, Tensor]:
    """Tensors by their transformers 4.x names, on `device` in `dtype`. Raises ModelError."""
    tensors = Tensors(directory)
    weights = {}
    for name in tensors.names:
        weights[name] = tensors.take(name, dtype).to(device)
        told(len(weights), len(tensors.names))
    return weights


def check_device(device: str) -> None:
    """Raise ModelError where torch cannot use `device`."""
    if device.startswith("cuda") and not torch.cuda.is_available():
        reason = f"there is no GPU that torch {torch.__version__} can use"
        raise ModelError(
            f"device {device}", f"{reason}; take --device cpu, or a CUDA build of torch and a GPU"
        )


class Tensors:
    """By their transformers 4.x names. Raises ModelError for what cannot be read."""

    def __init__(self, directory: Path) -> None:
        self._at = {name: at for name, _, _, at in entries(directory)}
        self.names = list(self._at)

    def take(self, name: str, dtype: torch.dtype | None = None) -> Tensor:
        """A copy, in `dtype` or as it is stored. Raises ModelError, also where it is not finite."""
        file, there = self._at[name]
        with reading(file), safe_open(file, framework="pt") as shard:
            stored = shard.get_tensor(there)
            found: Tensor = stored.to(dtype or stored.dtype, copy=True)
        check_finite(all(map(torch.isfinite, found.aminmax())), file, there)
        return found


def stock_config(directory: Path) -> Any:
    """transformers' configuration of a model directory, without the fields that could load code: an
    `attn_implementation` may name kernels on the hub, an `auto_map` modules."""
    from transformers import Qwen2_5OmniThinkerConfig

    raw = json.loads((directory / "config.json").read_text("utf-8"))
    return Qwen2_5OmniThinkerConfig.from_dict(_without_code(raw.get("thinker_config", raw)))


def _without_code(raw: Any) -> Any:
    if not isinstance(raw, dict):
        return raw
    return {
        name: _without_code(value)
        for name, value in raw.items()
        if "implementation" not in name and name not in ("auto_map", "quantization_config")
    }


def load_stock(directory: Path) -> Any:
    """`Qwen2_5OmniThinkerForConditionalGeneration` in evaluation mode, weights in float32; its
    import alone costs seconds."""
    from transformers import Qwen2_5OmniThinkerForConditionalGeneration as Stock
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # our own line says that models are loaded, where a person looks
    config = stock_config(directory)
    options = {"attn_implementation": "sdpa", "dtype": torch.float32, "trust_remote_code": False}
    return Stock.from_pretrained(directory, config=config, **options).eval()
