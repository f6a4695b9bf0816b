"""Into a model's card. In: thresholds, or curves. Out: `streamer.json`, whole or untouched."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamer.model.checkpoint.card import FILE, card_of
from streamer.model.checkpoint.shapes import an_object
from streamer.model.checkpoint.weights import ModelError


def write_gate(directory: Path, out: Path, gate: Mapping[str, Any]) -> None:
    """Write the directory's card to the file `out` with `gate` (preset -> thresholds) for its own;
    the rest stays.

    A reader sees the old file or the new one, never half of one. Raises ModelError, also for a gate
    that `read_card` would refuse.
    """
    _write(directory, out, "gate", gate)


def write_confidence(directory: Path, out: Path, curves: Mapping[str, Any]) -> None:
    """The same for the curves of confidence: "edge" and "cloud", attribute -> slope and offset; and
    the "fingerprint" of the cloud."""
    _write(directory, out, "confidence", curves)


def _write(directory: Path, out: Path, name: str, own: Mapping[str, Any]) -> None:
    file = directory / FILE
    try:
        raw = an_object(json.loads(file.read_text("utf-8")), "the card") if file.exists() else {}
        whole_card = {**raw, name: {**an_object(raw.get(name, {}), name), **own}}
        card_of(whole_card, directory.name)
        replace_text(out, json.dumps(whole_card, ensure_ascii=False, indent=1) + "\n")
    except (ValueError, KeyError) as error:
        raise ModelError(file, f"is not a model card ({error}); mend it first") from None
    except OSError as error:
        raise ModelError(
            out, f"cannot be written ({error.strerror}); choose another place with --out"
        ) from None


def replace_text(file: Path, text: str) -> None:
    """Atomically, with the mode that an ordinary new file has. Raises OSError."""
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}-")
    try:
        with open(handle, "w", encoding="utf-8") as half:
            half.write(text)
        Path(name).chmod(0o644)
        os.replace(name, file)
    except BaseException:
        Path(name).unlink()
        raise
