"""The weights of a checkpoint's directory: those of the text model and the audio tower.

Reads the published layout: one safetensors file or shards with an index, the full model's
`thinker.` prefixes or a thinker alone, transformers 4.x names (`model.layers...`) or 5.x
(`model.language_model.layers...`).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, deserialize

from streamer.core.description import one_line

_RENAMED = (
    (r"^thinker\.", ""),
    (r"^model\.audio_tower\.", "audio_tower."),
    (r"^model\.language_model\.", "model."),
)
_WANTED = re.compile(r"^(audio_tower\.|model\.(embed_tokens|layers|norm)\.|lm_head\.)")


class ModelError(ValueError):
    """A model cannot be used: `where` it is and one line that says why and what to do."""

    def __init__(self, where: str | Path, reason: str) -> None:
        self.where = str(where)
        self.reason = one_line(reason)  # it may name what a broken file holds
        super().__init__(f"{where}: {self.reason}")

    def __reduce__(self) -> tuple[type[ModelError], tuple[str, str]]:
        return type(self), (self.where, self.reason)  # pickled as it was made


class ModelWarning(UserWarning):
    """A model can be used, but maybe not as was meant: one line that says why and what to do."""


def load_arrays(directory: Path) -> dict[str, NDArray[Any]]:
    """Tensors by their transformers 4.x names: float16 if all are, else float32. Raises ModelError.

    For the compiled kernels; model/engines/load.py reads a large model's weights.
    """
    weights: dict[str, NDArray[Any]] = {}
    for file in weight_files(directory):
        try:
            tensors = deserialize(file.read_bytes())
        except (SafetensorError, OSError) as error:
            raise unreadable(file, error) from None
        tensors.reverse()
        while tensors:  # each goes when its numbers are there
            name, tensor = tensors.pop()
            if known := wanted_name(name):
                weights[known] = _array(tensor)
                if not np.isfinite(weights[known]).all():
                    raise not_finite(file, name)
    if len({array.dtype for array in weights.values()}) > 1:
        weights = {name: array.astype(np.float32) for name, array in weights.items()}
    return weights


def _array(tensor: dict[str, Any]) -> NDArray[Any]:
    """A tensor of one of the types that layout.py lets through; bfloat16 as float32."""
    data, kind = tensor["data"], tensor["dtype"]
    if kind == "BF16":  # the upper half of a float32
        found = (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
    else:
        found = np.frombuffer(data, {"F16": "<f2", "F32": "<f4"}[kind])
    return found.reshape(tensor["shape"])


def unreadable(file: Path, error: Exception) -> ModelError:
    reason = getattr(error, "strerror", None) or str(error)
    return ModelError(file, f"the weights cannot be read ({reason}); copy the file again")


def not_finite(file: Path, name: str) -> ModelError:
    """NaN would silently win every comparison."""
    return ModelError(
        file, f"{name!r} holds values that are not finite; copy the file again, or train again"
    )


def weight_files(directory: Path) -> list[Path]:
    """A directory's safetensors files, checked against its index, if any. Raises ModelError."""
    index = directory / "model.safetensors.index.json"
    if index.is_file():
        files = [directory / name for name in _shards(index)]
    else:
        files = sorted(directory.glob("*.safetensors"))
    # os.path, since pathlib raises for a name that no system takes
    missing = [file.name for file in files if not os.path.isfile(file)]
    if missing:
        why = f"lacks {missing[0]} ({len(missing)} of {len(files)} shards are missing)"
        raise ModelError(directory, why)
    if not files:
        why = "has no *.safetensors file; give a directory in the published layout"
        raise ModelError(directory, why)
    return files


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


def _shards(index: Path) -> list[str]:
    """The names of the files beside an index that it names. Raises ModelError."""
    try:
        found = msgspec.json.decode(index.read_bytes(), type=_Index)
    except (ValueError, OSError, RecursionError):
        raise ModelError(index, "is not a safetensors index; copy the file again") from None
    return sorted({Path(name).name for name in found.weight_map.values()})


def wanted_name(name: str) -> str | None:
    """A tensor's name in 4.x form; None for what is not used (vision, talker, token2wav)."""
    if name.startswith(("talker.", "token2wav.")):
        return None
    for pattern, new in _RENAMED:
        name = re.sub(pattern, new, name)
    return name if _WANTED.match(name) else None


SAMPLED_BYTES = 1 << 16
NUM_SAMPLES = 64


def fingerprint_of(directory: Path) -> str:
    """A digest of config, card and weights.

    A large file counts by its size and 4 MB spread over it: enough to tell checkpoints apart
    without reading 15 GB. The card counts without the fields of calibration, which change nothing
    that the model says.
    """
    digest = hashlib.blake2b(digest_size=8)
    kinds = ("*.safetensors", "config.json", "streamer.json")
    for file in sorted(file for kind in kinds for file in directory.glob(kind)):
        if file.name == "streamer.json":
            digest.update(b"streamer.json\n" + _card(file))
            continue
        size = file.stat().st_size
        digest.update(f"{file.name} {size}\n".encode())
        with file.open("rb") as data:
            if size <= NUM_SAMPLES * SAMPLED_BYTES:
                digest.update(data.read())
                continue
            for i in range(NUM_SAMPLES):
                data.seek(i * (size - SAMPLED_BYTES) // (NUM_SAMPLES - 1))
                digest.update(data.read(SAMPLED_BYTES))
    return digest.hexdigest()


def _card(file: Path) -> bytes:
    """The card without what calibration writes; as it stands where it is no card."""
    try:
        card = json.loads(file.read_bytes())
        languages = {name: _bare(own) for name, own in card.get("languages", {}).items()}
        return json.dumps(_bare(card) | ({"languages": languages} if languages else {})).encode()
    except (ValueError, TypeError, AttributeError, RecursionError):
        return file.read_bytes()


def _bare(card: dict[str, Any]) -> dict[str, Any]:
    return {name: card[name] for name in sorted(card) if name != "gate"}


Told = Callable[[int, int], None]  # (parts done, parts there are)


def quiet(done: int, total: int) -> None:
    """The listener that does nothing."""
