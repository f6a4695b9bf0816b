"""One turn that a model learns from, as it is kept on disk. In: a row of JSON. Out: the same."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


class TuneError(Exception):
    """Why there is no tuned model: one line, and the way out."""


def as_bytes(name: str) -> bytes:
    """Of a file's name, which may be no UTF-8."""
    return name.encode(errors="surrogateescape")


@dataclass(frozen=True, kw_only=True)
class LearntTurn:
    """A recording, or a part of a long one. levels: attribute -> level, None where it is unknown.

    begin, num_samples: where it lies in the recording, at 16 kHz. features: the file of its log-mel
    [128, num_frames] float32. num_embeddings: what the tower makes of it.
    """

    file: str
    part: int
    begin: int
    num_samples: int
    num_embeddings: int
    features: str
    levels: dict[str, int | None]

    @property
    def name(self) -> str:
        return f"{self.file}#{self.part}"

    def as_json(self) -> dict[str, Any]:
        return asdict(self)
