"""What safetensors files hold, from their headers alone. In: a model directory. Out: one Entry per
wanted tensor."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from streamer.model.checkpoint.shapes import whole
from streamer.model.checkpoint.weights import ModelError, unreadable, wanted_name, weight_files

# The released 7B with its talker has 2,400 tensors, and headers of 0.1 million bytes. A header of
# 900,000 tensors would be read for minutes.
MAX_HEADER_BYTES = 10_000_000
MAX_TENSORS = 50_000
MAX_BYTES = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Entry:
    """One wanted tensor as its file's header describes it."""

    name: str  # in transformers 4.x form
    shape: tuple[int, ...]
    dtype: str
    num_bytes: int


def entries(directory: Path) -> Iterator[Entry]:
    """Every wanted tensor of a model directory. Raises ModelError."""
    for file in weight_files(directory):
        header, num_bytes = _header(file)
        for name, described in header.items():
            if name == "__metadata__":
                continue
            entry, end = _entry(file, name, described)
            if end > num_bytes:
                raise ModelError(file, f"ends before {name!r} does; copy the file again")
            if known := wanted_name(name):
                yield replace(entry, name=known)


def _entry(file: Path, name: str, described: Any) -> tuple[Entry, int]:
    """(the tensor, the byte behind its last one)."""
    try:
        first, last = described["data_offsets"]
        first = whole(first, "first", 0, MAX_BYTES)
        last = whole(last, "last", first, MAX_BYTES)
        shape = tuple(whole(n, "size", 0, MAX_BYTES) for n in described["shape"])
        return Entry(name, shape, str(described["dtype"]), last - first), last
    except (KeyError, TypeError, ValueError):
        raise ModelError(file, f"describes {name!r} in no known way; copy the file again") from None


def _header(file: Path) -> tuple[dict[str, Any], int]:
    """A safetensors file's JSON header, whose length comes first, 8 bytes little-endian; how many
    bytes follow."""
    try:
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            size = file.stat().st_size
            if length > min(MAX_HEADER_BYTES, size):
                raise ValueError(f"its header claims {length} bytes")
            header = json.loads(stream.read(length))
            if len(header) > MAX_TENSORS:
                raise ValueError(f"its header claims {len(header)} tensors")
    except (OSError, ValueError, RecursionError) as error:
        raise unreadable(file, error) from None
    if not isinstance(header, dict):
        raise ModelError(file, "the weights cannot be read (no header); copy the file again")
    return header, size - 8 - length
