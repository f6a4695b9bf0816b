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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
        # one line, since the reason may name what a broken file holds
        super().__init__(str(where), one_line(reason))

    def __str__(self) -> str:
        return "{}: {}".format(*self.args)


class ModelWarning(UserWarning):
    """A model can be used, but maybe not as was meant: one line that says why and what to do."""


def load_arrays(directory: Path) -> dict[str, NDArray[Any]]:
    """Tensors by their transformers 4.x names: float16 if all are, else float32. Raises ModelError.

    For the compiled kernels; model/engines/load.py reads a large model's weights.
    """
    weights: dict[str, NDArray[Any]] = {}
    for file in weight_files(directory):
        with reading(file):
            tensors = deserialize(file.read_bytes())
        for name, tensor in tensors:
            if known := wanted_name(name):
                data = tensor["data"]
                if tensor["dtype"] == "BF16":  # the upper half of a float32
                    array = (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
                else:  # layout.py lets no other types through
                    array = np.frombuffer(data, {"F16": "<f2", "F32": "<f4"}[tensor["dtype"]])
                check_finite(bool(np.isfinite(array).all()), file, name)
                weights[known] = array.reshape(tensor["shape"])
    if len({array.dtype for array in weights.values()}) > 1:
        weights = {name: array.astype(np.float32) for name, array in weights.items()}
    return weights


@contextmanager
def reading(file: Path) -> Iterator[None]:
    """Raise ModelError where safetensors cannot read `file`."""
    try:
        yield
    except (SafetensorError, OSError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        told = f"the weights cannot be read ({reason}); copy the file again"
        raise ModelError(file, told) from None


def check_finite(is_finite: bool, file: Path, name: str) -> None:
    """Raise ModelError for NaN and infinity: NaN would silently win every comparison."""
    if not is_finite:
        told = f"{name!r} holds values that are not finite"
        raise ModelError(file, f"{told}; copy the file again, or train again")


def weight_files(directory: Path) -> list[Path]:
    """A directory's safetensors files, checked against its index, if any. Raises ModelError."""
    index = directory / "model.safetensors.index.json"
    if index.is_file():
        try:
            found = msgspec.json.decode(index.read_bytes(), type=_Index)
        except (ValueError, OSError, RecursionError):
            raise ModelError(index, "is not a safetensors index; copy the file again") from None
        files = [directory / each for each in {Path(n).name for n in found.weight_map.values()}]
    else:
        files = [*directory.glob("*.safetensors")]
    # os.path, since pathlib raises for a name that no system takes
    missing = sorted(file.name for file in files if not os.path.isfile(file))
    if missing:
        why = f"lacks {missing[0]} ({len(missing)} of {len(files)} shards are missing)"
        raise ModelError(directory, why)
    if not files:
        why = "has no *.safetensors file; give a directory in the published layout"
        raise ModelError(directory, why)
    return sorted(files)


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


def wanted_name(name: str) -> str | None:
    """A tensor's name in 4.x form; None for what is not used (vision, talker, token2wav)."""
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
            digest.update(b"streamer.json\n" + _uncalibrated(file.read_bytes()))
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


def _uncalibrated(content: bytes) -> bytes:
    """A card without its thresholds; as it stands where it is no card."""

    def bare(card: dict[str, Any]) -> dict[str, Any]:
        return {name: card[name] for name in sorted(card) if name != "gate"}

    try:
        card = bare(json.loads(content))
        if "languages" in card:
            card["languages"] = {name: bare(own) for name, own in card["languages"].items()}
        return json.dumps(card).encode()
    except (ValueError, TypeError, AttributeError, RecursionError):
        return content


Told = Callable[[int, int], None]  # (parts done, parts there are)
