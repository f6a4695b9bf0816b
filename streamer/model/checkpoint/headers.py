"""What safetensors files hold, by headers alone. In: a directory. Out: wanted tensors."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open

from streamer.model.checkpoint.weights import unreadable, wanted_name, weight_files

# The released 7B with its talker has 2,400 tensors, and headers of 0.1 million bytes. A header of
# 900,000 tensors would be read for seconds.
MAX_HEADER_BYTES = 10_000_000
MAX_TENSORS = 50_000
FLOATS = {"F32": 4, "F16": 2, "BF16": 2}  # the types that weights may have, and their bytes


@dataclass(frozen=True, slots=True)
class Entry:
    """One wanted tensor as its file's header describes it."""

    name: str  # in transformers 4.x form
    shape: tuple[int, ...]
    dtype: str

    @property
    def num_bytes(self) -> int:
        return math.prod(self.shape) * FLOATS.get(self.dtype, 0)


def entries(directory: Path) -> Iterator[Entry]:
    """Every wanted tensor of a model directory. Raises ModelError."""
    for file in weight_files(directory):
        try:
            yield from _entries(file)
        except (SafetensorError, OSError, ValueError) as error:
            raise unreadable(file, error) from None


def _entries(file: Path) -> Iterator[Entry]:
    with file.open("rb") as stream:  # the header's length comes first
        length = int.from_bytes(stream.read(8), "little")
    if length > MAX_HEADER_BYTES:
        raise ValueError(f"its header claims {length} bytes")
    with safe_open(file, framework="np") as tensors:
        names = tensors.keys()
        if len(names) > MAX_TENSORS:
            raise ValueError(f"its header claims {len(names)} tensors")
        for name in names:
            if known := wanted_name(name):
                described = tensors.get_slice(name)
                yield Entry(known, tuple(described.get_shape()), described.get_dtype())
