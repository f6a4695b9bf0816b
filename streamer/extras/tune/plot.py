"""The losses of a run as a picture. In: a State. Out: a PNG."""

from __future__ import annotations

from pathlib import Path

from streamer.commands.process import fail
from streamer.extras.tune.state import State


def plot(state: State, file: Path) -> bool:
    """False, and one line, where it cannot be drawn: the model is there all the same."""
    try:
        from matplotlib import figure as pictures
    except ImportError:
        fail("matplotlib is not installed: no picture of the curve (pip install matplotlib)")
        return False
    figure = pictures.Figure(figsize=(7, 4.2), layout="constrained")
    axis = figure.subplots()
    steps, learnt, held = zip(*state.curve, strict=True)
    axis.plot(steps, learnt, marker=".", label="learnt from, mean since the last look")
    axis.plot(steps, held, marker=".", label="held out")
    axis.axvline(state.best_step, linestyle=":", color="grey", label="kept")
    axis.set(xlabel="step", ylabel="loss, nats per token")
    axis.grid(alpha=0.3)
    axis.legend()
    try:
        figure.savefig(file, dpi=100)
    except OSError as error:
        fail(f"{file}: the picture cannot be written ({error.strerror})")
        return False
    return True
