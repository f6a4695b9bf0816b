"""Does the gate keep its promise, and what does it buy? In: clips used for no choice. Out: tables,
JSON lines, a plot.

`python -m bench.gate` hears held-out voices in recordings of 3, 10, 30 and 60 s. Their seed was
first used when the shipped thresholds and their risks were fixed. They are heard once. `--clips
seen` takes the recordings that were in view when the risks were chosen. `--calibrate` first makes
others again, and derives the shipped thresholds from them. Each recording is decoded at EVERY
threshold (core/calibration/branches.py). Every third one also runs in gated mode itself, which must
give the same tokens.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from bench.arms import Run, models_of, run
from bench.common import mean, panels, progress, saved, table_of, write
from bench.gate_clips import CLIPS, LENGTHS_S, Heard, calibrate, hear_all
from bench.keep import options_of
from streamer.assembly.models import Models
from streamer.core.attributes import parse
from streamer.core.calibration import Path as Way
from streamer.core.calibration import Paths, at, certify, loss_forced, losses_of
from streamer.core.decoding.gate import SIGNALS
from streamer.model.checkpoint.card import Promise

PRESETS = ("fluent", "quality")


@dataclass(frozen=True)
class Shipped:
    """One preset as it ships. limit: its threshold in doubt, the way `doubt` counts."""

    name: str
    signal: str
    k: int
    limit: float
    promise: Promise


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num", type=int, default=150, help="clips of each length")
    parser.add_argument("--clips", choices=CLIPS, default="fresh", help="see above")
    told = "first make clips and derive the shipped thresholds"
    parser.add_argument("--calibrate", action="store_true", help=told)
    parser.add_argument("--calibrate-num", type=int, default=150, help="its clips of each length")
    options = options_of(parser)
    if options.calibrate:
        calibrate(options.calibrate_num)
    models = models_of(mode="gated")
    clips = hear_all(models, options.num, *CLIPS[options.clips])
    presets = [shipped(models, name) for name in PRESETS]
    rows = [row for preset in presets for row in rows_of(models, clips, preset)]
    print(f"\n{len(clips)} recordings that chose and certified nothing\n")
    print(table_of(rows))
    ran = [row for preset in presets for row in really(clips, preset)]
    print("\nGated mode itself, every third of them\n")
    print(table_of(ran))
    unseen = [row for preset in presets for row in unseen_speakers(clips, preset)]
    print("\nEach speaker, at a threshold certified on the other speakers of these recordings\n")
    print(table_of(unseen))
    name = "gate" if options.clips == "fresh" else f"gate_{options.clips}"
    print("\nwritten:", write(name, [*rows, *ran, *unseen]), plot(models, clips, presets, name))


def shipped(models: Models, name: str) -> Shipped:
    card = models.first.card
    promise = card.promises[name]
    limit = SIGNALS[promise.signal] * getattr(card.presets[name].gate, promise.signal)
    return Shipped(name, promise.signal, card.presets[name].k, limit, promise)


def accuracy(models: Models, way: Way, clip: Heard) -> float:
    """Share of the attributes whose level is exactly right."""
    said = parse(models.first.vocabulary.text_of(way.answer), models.phrases)
    return mean(said[name] == level for name, level in clip.levels.items())


def differing(models: Models, way: Way, other: Way) -> float:
    """Share of the attributes of which two answers say different levels."""
    a, b = (parse(models.first.vocabulary.text_of(w.answer), models.phrases) for w in (way, other))
    return mean(a[name] != b[name] for name in a)


def rows_of(models: Models, clips: Sequence[Heard], preset: Shipped) -> list[dict[str, Any]]:
    """One row a length, then one for all."""
    groups = {f"{s} s": [c for c in clips if c.seconds == s] for s in LENGTHS_S}
    return [row_of(models, of, preset, name) for name, of in (groups | {"all": clips}).items()]


def row_of(models: Models, clips: Sequence[Heard], preset: Shipped, length: str) -> dict[str, Any]:
    paths = [clip.paths[preset.name][preset.signal] for clip in clips]
    ways = [at(of, preset.limit) for of in paths]
    losses = np.array([loss_of(way) for way in ways])
    arms = {"gated": ways, "cloud": [of[-1] for of in paths], "edge": [of[0] for of in paths]}
    right = {
        name: mean(accuracy(models, way, clip) for way, clip in zip(of, clips, strict=True))
        for name, of in arms.items()
    }
    return {
        "preset": preset.name,
        "length": length,
        "risk": preset.promise.risk,
        **mean_and_error(losses),
        "forced": mean(loss_forced([of], preset.limit) for of in paths),
        "skipped": skipped(ways),
        "accuracy": right["gated"],
        "cloud": right["cloud"],
        "edge": right["edge"],
        "of cloud's": right["gated"] / right["cloud"],
        "accepted / uploaded": accepted(ways),
        "changed attributes": mean(
            differing(models, way, of[-1]) for way, of in zip(ways, paths, strict=True)
        ),
    }


def loss_of(way: Way) -> float:
    return way.num_missed / len(way.decisions)


def skipped(ways: Sequence[Way]) -> float:
    return 1 - sum(w.num_uploaded for w in ways) / sum(len(w.decisions) for w in ways)


def accepted(ways: Sequence[Way]) -> float:
    uploads = [d.block for w in ways for d in w.decisions if d.uploaded]
    if not uploads:
        return float("nan")
    return sum(b.n_accepted for b in uploads) / sum(len(b.ids) for b in uploads)


def really(clips: Sequence[Heard], preset: Shipped) -> list[dict[str, Any]]:
    """Gated mode as a user runs it: it must walk the path that was promised for; its own counts, a
    row a length."""
    own = models_of(mode="gated", preset=preset.name)
    pairs = [
        (clip, run(own, soundfile.read(clip.file, dtype="float32")[0]))
        for clip in progress(clips[::3], f"gated {preset.name}")
    ]
    groups = {f"{s} s": [pair for pair in pairs if pair[0].seconds == s] for s in LENGTHS_S}
    return [counted(of, preset, name) for name, of in (groups | {"all": pairs}).items()]


def counted(pairs: Sequence[tuple[Heard, Run]], preset: Shipped, length: str) -> dict[str, Any]:
    ways = [at(clip.paths[preset.name][preset.signal], preset.limit) for clip, _ in pairs]
    names = ("n_drafted", "n_uploaded", "n_accepted", "n_wasted", "n_ahead_wasted")
    names += ("cloud_calls", "blocks")
    total = {name: sum(getattr(r.counts, name) for _, r in pairs) for name in names}
    rejected = total["n_uploaded"] - total["n_accepted"]
    outside = max(0, total["n_wasted"] - rejected)
    return {
        "preset": preset.name,
        "ran": length,
        "clips": len(pairs),
        "same ids": mean(tuple(r.ids) == w.answer for (_, r), w in zip(pairs, ways, strict=True)),
        "skipped": 1 - total["cloud_calls"] / total["blocks"],
        "accepted / uploaded": total["n_accepted"] / total["n_uploaded"],
        "wasted / drafted": total["n_wasted"] / total["n_drafted"],
        "outside the uploads' rejections": outside / total["n_drafted"],
        "ahead wasted / drafted": total["n_ahead_wasted"] / total["n_drafted"],
    }


def unseen_speakers(clips: Sequence[Heard], preset: Shipped) -> list[dict[str, Any]]:
    """Each speaker's loss at the threshold that all OTHER speakers' clips certify: what the promise
    does not cover."""
    rows = []
    everyone = []
    promise = preset.promise
    promised = (preset.name, preset.signal, preset.k, promise.risk, promise.confidence)
    for speaker in sorted({clip.speaker for clip in clips}):
        by_side: dict[bool, list[list[Paths]]] = {True: [], False: []}
        for clip in clips:
            by_side[clip.speaker == speaker].append([clip.paths[preset.name][preset.signal]])
        own, others = by_side[True], by_side[False]
        found = certify([others], *promised)
        losses = losses_of(own, np.array([SIGNALS[preset.signal] * found.threshold]))[:, 0]
        everyone += losses.tolist()
        rows.append({"preset": preset.name, "speaker": speaker, **mean_and_error(losses)})
    return [*rows, {"preset": preset.name, "speaker": "all", **mean_and_error(np.array(everyone))}]


def mean_and_error(losses: np.ndarray) -> dict[str, Any]:
    error = float(losses.std(ddof=1) / len(losses) ** 0.5)
    return {"clips": len(losses), "loss": float(losses.mean()), "se": error}


def plot(models: Models, clips: Sequence[Heard], presets: Sequence[Shipped], name: str) -> Path:
    """Loss, accuracy and accepted / uploaded against the share of blocks skipped, at every
    threshold."""
    figure, axes = panels(1, 3, (15, 4.2))
    for preset, colour in zip(presets, ("tab:blue", "tab:orange"), strict=True):
        paths = [clip.paths[preset.name][preset.signal] for clip in clips]
        limits = np.quantile([w.least for of in paths for w in of[:-1]], np.linspace(0, 1, 60))
        curve = [point(models, clips, paths, float(limit)) for limit in limits]
        chosen = point(models, clips, paths, preset.limit)
        for axis, key in zip(axes, ("loss", "accuracy", "accepted"), strict=True):
            x = [p["skipped"] for p in curve]
            axis.plot(x, [p[key] for p in curve], color=colour, label=preset.name)
            axis.plot(chosen["skipped"], chosen[key], "o", color=colour)
        axes[0].axhline(preset.promise.risk, color=colour, linestyle=":")
    axes[1].axhline(0.98, color="grey", linestyle=":")
    axes[2].axhline(0.60, color="grey", linestyle=":")
    titles = ("loss (promise dotted)", "attribute accuracy over the cloud's", "accepted / uploaded")
    for axis, title in zip(axes, titles, strict=True):
        axis.set(xlabel="blocks skipped", title=title)
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
    return saved(figure, name)


def point(
    models: Models, clips: Sequence[Heard], paths: Sequence[Paths], limit: float
) -> dict[str, float]:
    """Of one preset at one threshold."""
    ways = [at(of, limit) for of in paths]
    gated = mean(accuracy(models, way, clip) for way, clip in zip(ways, clips, strict=True))
    cloud = mean(accuracy(models, of[-1], clip) for of, clip in zip(paths, clips, strict=True))
    found = {"skipped": skipped(ways), "loss": mean(map(loss_of, ways))}
    return found | {"accuracy": gated / cloud, "accepted": accepted(ways)}


if __name__ == "__main__":
    main()
