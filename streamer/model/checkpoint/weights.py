"""A checkpoint's directory in, its tensors out: the thinker's text model and audio tower, nothing
else.

Reads the published layout: one safetensors file or shards with an index, the full model's
`thinker.` prefixes or a thinker alone, transformers 4.x names (`model.layers...`) or 5.x
(`model.language_model.layers...`).
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from streamer.model.checkpoint.fields import an_object, line

_RENAMED = (
    (r"^thinker\.", ""),
    (r"^model\.audio_tower\.", "audio_tower."),
    (r"^model\.language_model\.", "model."),
)
_WANTED = re.compile(r"^(audio_tower\.|model\.(embed_tokens|layers|norm)\.|lm_head\.)")


class ModelError(ValueError):
    """A model cannot be used: `where` it is and one line that says why and what to do."""

    def __init__(self, where: str | Path, reason: str) -> None:
        super().__init__(f"{where}: {reason}")
        self.where = str(where)
        self.reason = reason


def load_weights(
    directory: Path, dtype: torch.dtype, device: str, tower_dtype: torch.dtype | None = None
) -> dict[str, Tensor]:
    """Tensors by their transformers 4.x names, on `device` in `dtype`, the tower's in its own.
    Raises ModelError."""
    weights: dict[str, Tensor] = {}
    for file in weight_files(directory):
        try:
            with safe_open(file, framework="pt", device=device) as shard:
                for name in shard.keys():  # noqa: SIM118 - a shard is no mapping
                    if known := wanted_name(name):
                        wanted = tower_dtype or dtype if known.startswith("audio_tower.") else dtype
                        weights[known] = _finite(file, name, shard.get_tensor(name).to(wanted))
        except (SafetensorError, OSError) as error:
            raise ModelError(
                file, f"the weights cannot be read ({error}); copy the file again"
            ) from None
    if not weights:
        raise ModelError(directory, "no weights of a Qwen2.5-Omni thinker in its safetensors files")
    return weights


def _finite(file: Path, name: str, tensor: Tensor) -> Tensor:
    """NaN would silently win every comparison; one sum shows it."""
    if not torch.isfinite(tensor.sum(dtype=torch.float32)):
        raise ModelError(
            file, f"{name!r} holds values that are not finite; copy the file again, or train again"
        )
    return tensor


def weight_files(directory: Path) -> list[Path]:
    """The safetensors files of a directory, checked against the index where there is one. Raises
    ModelError."""
    index = directory / "model.safetensors.index.json"
    if index.is_file():
        try:
            shards = an_object(json.loads(index.read_text("utf-8")), "index")["weight_map"]
            names = sorted(
                {line(name, "shard") for name in an_object(shards, "weight_map").values()}
            )
        except (ValueError, KeyError, OSError, RecursionError):
            raise ModelError(index, "is not a safetensors index; copy the file again") from None
        files = [directory / name for name in names]
    else:
        files = sorted(directory.glob("*.safetensors"))
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        raise ModelError(
            directory, f"lacks {missing[0]} ({len(missing)} of {len(files)} shards are missing)"
        )
    if not files:
        raise ModelError(
            directory, "has no *.safetensors file; give a directory in the published layout"
        )
    return files


def wanted_name(name: str) -> str | None:
    """A checkpoint's tensor name in 4.x form, or None for what is not used (vision, talker,
    token2wav)."""
    if name.startswith(("talker.", "token2wav.")):
        return None
    for pattern, new in _RENAMED:
        name = re.sub(pattern, new, name)
    return name if _WANTED.match(name) else None
