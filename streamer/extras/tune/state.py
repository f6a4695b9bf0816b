"""What a run needs to go on where it was. In: a file. Out: the same state, whole or not at all."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from streamer.extras.tune.turn import TuneError


@dataclass
class State:
    """step: how many steps are done. curve: (step, loss learnt from since the last check, loss held
    out), nats per id. best: the adapter of the lowest loss held out."""

    digest: str  # of what is learnt from
    step: int = 0
    is_over: bool = False
    num_worse: int = 0  # checks since the best
    best_loss: float = math.inf
    best_step: int = 0
    learnt: list[float] = field(default_factory=list)  # losses since the last check
    curve: list[tuple[int, float, float]] = field(default_factory=list)
    best: dict[str, Tensor] = field(default_factory=dict)


def save(file: Path, state: State, adapter: dict[str, Tensor], optimiser: Any) -> None:
    """Raises TuneError where there is no room."""
    new = file.with_name(file.name + ".new")
    try:
        torch.save(
            {"state": vars(state), "adapter": adapter, "optimiser": optimiser.state_dict()}, new
        )
        os.replace(new, file)
    except (OSError, RuntimeError) as error:  # torch tells a full disk as a RuntimeError
        with suppress(OSError):  # what went wrong first is told
            new.unlink()  # half a file takes room
        reason = getattr(error, "strerror", None) or "is the disk full?"
        told = f"{file} cannot be written ({reason}); make room, run it again to go on"
        raise TuneError(told) from None


def restore(file: Path, digest: str) -> tuple[State, dict[str, Tensor], dict[str, Any]] | None:
    """(state, adapter, the optimiser's own); None where no run has been here. Raises TuneError."""
    if not file.exists():
        return None
    way = f"remove {file.parent} to begin anew"
    try:
        found = torch.load(file, weights_only=True, map_location="cpu")
        state = State(**found["state"])
    except Exception as error:  # torch raises many kinds for a broken file
        raise TuneError(f"{file} cannot be read ({type(error).__name__}); {way}") from None
    if state.digest != digest:
        raise TuneError(f"the recordings are not those that {file} was learnt from; {way}")
    return state, found["adapter"], found["optimiser"]
