"""A model of few bits, prepared or from its checkpoint. In: a directory. Out: tower and text."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

from safetensors.torch import load as tensors_of
from torch import Tensor

from streamer.model.checkpoint.card import ModelWarning
from streamer.model.checkpoint.room import EMBEDDING
from streamer.model.checkpoint.shapes import Shapes
from streamer.model.checkpoint.weights import ModelError
from streamer.model.engines.engine import Text, Tower
from streamer.model.engines.few_bits import FORMS
from streamer.model.engines.few_bits_model import FewBitsText, FewBitsTower, Part
from streamer.model.engines.few_bits_parts import REST, names_of, parts_of
from streamer.model.engines.prepared import NotPrepared, Prepared
from streamer.model.runtime.told import Told, quiet


def load_few_bits(
    directory: Path, shapes: Shapes, engine: str, told: Told = quiet
) -> tuple[Tower, Text]:
    """From the prepared form where there is a sound one, else converted. Raises ModelError."""
    prepared = Prepared(directory, shapes, engine)
    try:
        return _loaded(shapes, prepared.read, told)
    except NotPrepared as reason:
        if str(reason):
            way = "it is not used; `streamer models --prepare` writes it anew"
            warnings.warn(f"{prepared.at}: {reason}; {way}", ModelWarning, stacklevel=2)
    made = parts_of(directory, shapes, FORMS[engine])

    def convert(name: str) -> bytes:
        found, data = next(made)
        assert found == name
        return data

    return _loaded(shapes, convert, told)


def _loaded(shapes: Shapes, read: Callable[[str], bytes], told: Told) -> tuple[Tower, Text]:
    parts: dict[str, Part] = {}
    rest: dict[str, Tensor] = {}
    names = names_of(shapes)
    for i, name in enumerate(names):
        data = read(name)
        if name == REST:
            rest = tensors_of(data)
        else:
            try:
                parts[name] = Part(data)
            except Exception as error:  # ONNX Runtime has a dozen kinds
                raise ModelError(name, f"ONNX Runtime cannot take it ({error})") from None
        del data
        told(i + 1, len(names))
    embedding = rest[EMBEDDING]
    text = FewBitsText(parts, embedding, shapes.text)
    return FewBitsTower(parts, rest, shapes.audio), text
