"""What `streamer calibrate` shows. In: a Calibration. Out: a table or JSON, the curves as a PNG."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streamer.commands.calibrate_options import CalibrateOptions
from streamer.commands.process import fail, put
from streamer.core.calibration.bounds import bounded_mean, running_max
from streamer.core.calibration.certify import (
    Certified,
    Turns,
    losses_of,
    skipped_share,
    thresholds_of,
)
from streamer.core.decoding.gate import SIGNALS

if TYPE_CHECKING:
    from streamer.calibrate.clips import Calibration
    from streamer.calibrate.place import Destination

NUM_BINS = 10
HEAD = (
    *("preset", "signal", "threshold", "k", "risk", "loss", "forced", "skipped"),
    *("accepted / uploaded", "clips"),
)
WIDTHS = (8, 9, 10, 3, 7, 8, 8, 8, 20, 6)


def report(found: Calibration, place: Destination, options: CalibrateOptions) -> None:
    """Print and plot. A plot that cannot be made is no failure: the thresholds are written."""
    plotted = _plot(found, place.plot)
    if options.json:
        rows = {
            "written": str(place.file),
            "plot": str(place.plot) if plotted else None,
            "skipped_by_signal": found.skipped,
            "presets": [asdict(result) for result in found.results],
        }
        put(json.dumps(rows, ensure_ascii=False, indent=2))
        return
    for preset, shares in found.skipped.items():
        told = ", ".join(f"{signal} {share:.3f}" for signal, share in shares.items())
        put(f"blocks skipped at the risk of {preset}, on the clips that choose the signal: {told}")
    put(_row(HEAD))
    for r in found.results:
        put(_row(_cells(r)))
    put(promise(found.results[0]))
    put(f"written: {place.file}" + (f", {place.plot}" if plotted else ""))
    if place.copy is not None:
        put(f"a model of its own: streamer describe FILE --edge {place.copy}")


def _cells(r: Certified) -> tuple[str, ...]:
    shares = (f"{r.risk:g}", f"{r.loss:.4f}", f"{r.loss_forced:.4f}", f"{r.skipped:.3f}")
    accepted = "" if r.accepted is None else f"{r.accepted:.3f}"
    return (r.preset, r.signal, f"{r.threshold:g}", str(r.k), *shares, accepted, str(r.num_clips))


def _row(cells: Sequence[str]) -> str:
    return "  ".join(c.ljust(w) for c, w in zip(cells, WIDTHS, strict=True)).rstrip()


def promise(result: Certified) -> str:
    """In one line what a threshold keeps, and for which clips."""
    clip = "a clip like these"
    if result.num_groups > 1:
        clip = f"a clip like those of any of {result.num_groups} folders"
    sure = ""
    if result.confidence:
        sure = f"; with confidence {result.confidence:g} so is the mean over all such clips"
    blocks = "blocks that are skipped though the cloud would have changed them"
    return f"promise: of {clip}, the expected share of {blocks} is at most the risk{sure}"


def _plot(found: Calibration, file: Path) -> bool:
    try:
        from matplotlib import figure as pictures
    except ImportError:
        fail("matplotlib is not installed: no plot (pip install matplotlib)")
        return False
    figure = pictures.Figure(figsize=(15, 4.2), layout="constrained")
    axes = figure.subplots(1, 3)
    for result, colour in zip(found.results, ("tab:blue", "tab:orange"), strict=True):
        clips: list[Turns] = [clip.paths[result.preset][result.signal] for clip in found.certifying]
        name = f"{result.preset}: {result.signal}, k {result.k}"
        _reliability(axes[0], clips, name, colour)
        _losses(axes[1], clips, result, name, colour)
        _uploads(axes[2], clips, result, name, colour)
    labels = (
        ("doubt of a block", "share that the cloud changes", "reliability"),
        (
            "threshold of doubt (chosen: upright line)",
            "mean loss of a clip",
            "loss, its bound (dashed), risk (dotted)",
        ),
        (
            "risk",
            "share of blocks uploaded",
            "uploads against risk in expectation; certified: dots",
        ),
    )
    for axis, (x, y, title) in zip(axes, labels, strict=True):
        axis.set(xlabel=x, ylabel=y, title=title)
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
    try:
        figure.savefig(file, dpi=100)
    except OSError as error:
        told = f"{file}: the plot cannot be written ({error.strerror})"
        fail(f"{told}; choose another place with --plot")
        return False
    return True


def _reliability(axis: Any, clips: Sequence[Turns], name: str, colour: str) -> None:
    """Share of changed blocks by their doubt, in even bins; blocks as exact mode meets them."""
    decisions = [
        d for turns in clips for paths in turns for d in paths[-1].decisions if np.isfinite(d.doubt)
    ]
    ranked = sorted(decisions, key=lambda d: d.doubt)
    bins = [
        ranked[i * len(ranked) // NUM_BINS : (i + 1) * len(ranked) // NUM_BINS]
        for i in range(NUM_BINS)
    ]
    middle = [float(np.mean([d.doubt for d in of])) for of in bins if of]
    changed = np.array([np.mean([d.block.changed for d in of]) for of in bins if of])
    error = np.sqrt(changed * (1 - changed) / max(1, len(ranked) // NUM_BINS))
    axis.errorbar(middle, changed, error, marker="o", color=colour, label=name, capsize=2)


def _losses(axis: Any, clips: Sequence[Turns], result: Certified, name: str, colour: str) -> None:
    thresholds = thresholds_of(clips)
    losses = running_max(losses_of(clips, thresholds))
    axis.step(thresholds, losses.mean(axis=0), where="post", color=colour, label=name)
    dashed = {"linestyle": "--", "linewidth": 0.8}
    axis.step(thresholds, bounded_mean(losses), where="post", color=colour, **dashed)
    axis.axhline(result.risk, color=colour, linestyle=":")
    axis.axvline(SIGNALS[result.signal] * result.threshold, color=colour, linewidth=0.8)


def _uploads(axis: Any, clips: Sequence[Turns], result: Certified, name: str, colour: str) -> None:
    """What every risk would cost in expectation, and what was certified."""
    thresholds = thresholds_of(clips)
    bounds = bounded_mean(running_max(losses_of(clips, thresholds)))
    picked = np.linspace(0, len(thresholds) - 1, min(200, len(thresholds))).astype(int)
    uploaded = [1 - skipped_share(clips, thresholds[i]) for i in picked]
    axis.plot(bounds[picked], uploaded, color=colour, label=name)
    axis.plot(result.risk, 1 - result.skipped, "o", color=colour)
