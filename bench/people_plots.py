"""Figures of bench.people as pictures. In: its rows, its clips. Out: PNG files beside the rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.common import panels, saved
from bench.people_clips import Clip
from bench.people_table import Said, length_order
from pipelines.embedded.confusion import draw
from pipelines.embedded.labels import ATTRIBUTES, NUM_LEVELS

Row = dict[str, Any]
Order = Callable[[Sequence[Row]], list[str]]  # rows -> their groups, in the order of the picture
COLOURS = {"edge": "tab:blue", "cloud": "tab:orange", "gated": "tab:green", "exact": "tab:red"}


def plot_confusion(clips: Sequence[Clip], said: Said, name: str) -> Path:
    """Which level was said for which there was: a row for edge, one for cloud."""
    modes = [mode for mode in ("edge", "cloud") if mode in said] or list(said)[:1]
    size = (3.1 * len(ATTRIBUTES), 3.4 * len(modes))
    figure, axes = panels(len(modes), len(ATTRIBUTES), size, squeeze=False)
    for mode, row in zip(modes, axes, strict=True):
        for attribute, axis in zip(ATTRIBUTES, row, strict=True):
            if (table := counts(clips, said[mode], attribute)).any():
                draw(axis, table, f"{mode}, {attribute}")
            axis.set_xticks(range(NUM_LEVELS[attribute]))
            axis.set_yticks(range(NUM_LEVELS[attribute]))
    return saved(figure, f"{name}_confusion")


def counts(clips: Sequence[Clip], found: Sequence[Any], attribute: str) -> np.ndarray:
    """[n_levels, n_levels + 1]: a row is the level there was, the last column "not said".

    Joined turns are left out, as in the table's first rows.
    """
    table = np.zeros((NUM_LEVELS[attribute], NUM_LEVELS[attribute] + 1), int)
    for clip, description in zip(clips, found, strict=True):
        if attribute in clip.levels and not clip.is_joined:
            said = description.attributes.get(attribute)
            table[clip.levels[attribute], -1 if said is None else said] += 1
    return table


def plot_table(rows: Sequence[Row], name: str) -> Path:
    """Exact by attribute beside the constant, then exact by language and by length."""
    figure, axes = panels(1, 3, (17, 4.4), width_ratios=(3, 2, 2))
    draw_all(axes[0], [row for row in rows if row["by"] == "all"])
    draw_means(axes[1], rows, "language", largest)
    draw_means(axes[2], rows, "length", by_length)
    return saved(figure, name)


def draw_all(axis: Any, rows: Sequence[Row]) -> None:
    """Every attribute's share of exact levels, by mode."""
    exact = {row["mode"]: [row[a]["exact"] or 0.0 for a in ATTRIBUTES] for row in rows}
    bars(axis, exact, ATTRIBUTES)
    constant = [rows[0][a]["constant"] or 0.0 for a in ATTRIBUTES]
    at = np.arange(len(ATTRIBUTES))
    axis.hlines(constant, at - 0.4, at + 0.4, "k", label="always the most frequent level")
    title = f"exact, {rows[0]['clips']} recordings of {rows[0]['speakers']} people"
    axis.set(title=title, ylim=(0, 1))
    axis.legend(fontsize=8, ncols=5, loc="upper center", bbox_to_anchor=(0.5, -0.1))


def draw_means(axis: Any, rows: Sequence[Row], by: str, order: Order) -> None:
    """The mean over the attributes, by group and mode; the number of clips under each."""
    own = [row for row in rows if row["by"] == by]
    groups = order(own)
    modes = dict.fromkeys(row["mode"] for row in own)
    sizes = {row["group"]: row["clips"] for row in own}
    names = [f"{group}\n{sizes[group]}".replace(", ", "\n") for group in groups]
    bars(axis, {mode: [mean_of(own, mode, group) for group in groups] for mode in modes}, names)
    axis.set(title=f"mean of the attributes, by {by}, and clips", ylim=(0, 1))


def by_length(rows: Sequence[Row]) -> list[str]:
    return sorted({row["group"] for row in rows}, key=length_order)


def largest(rows: Sequence[Row]) -> list[str]:
    """The six groups with the most clips."""
    sizes = {row["group"]: row["clips"] for row in rows}
    return sorted(sizes, key=lambda group: -sizes[group])[:6]


def mean_of(rows: Sequence[Row], mode: str, group: str) -> float:
    return next(row["mean"] for row in rows if row["mode"] == mode and row["group"] == group)


def bars(axis: Any, values: dict[str, list[float]], names: Sequence[str]) -> None:
    width = 0.8 / len(values)
    for i, (mode, heights) in enumerate(values.items()):
        at = np.arange(len(names)) + (i - (len(values) - 1) / 2) * width
        axis.bar(at, heights, width, color=COLOURS.get(mode), label=mode)
    axis.set_xticks(range(len(names)), names, fontsize=8)
    axis.grid(axis="y", alpha=0.3)


def plot_pairs(rows: Sequence[Row], name: str) -> Path:
    """Strict, ties and reversed, stacked; and by how much the other attributes moved."""
    modes = list(dict.fromkeys(row["mode"] for row in rows))
    figure, axes = panels(2, len(modes), (6.5 * len(modes), 7), squeeze=False)
    for column, mode in zip(axes.T, modes, strict=True):
        own = [row for row in rows if row["mode"] == mode and row["attribute"] != "all"]
        names = [f"{row['attribute']}\n{row['size']}" for row in own]
        strict, ties = (np.array([row[key] for row in own]) for key in ("strict", "ties"))
        stacked = (
            ("strict", strict, 0 * strict, "tab:green"),
            ("ties", ties, strict, "0.8"),
            ("reversed", 1 - strict - ties, strict + ties, "tab:red"),
        )
        for label, heights, under, colour in stacked:
            column[0].bar(names, heights, bottom=under, color=colour, label=label)
        moved = {"said": "others moved", "labels": "others moved, labels"}
        bars(column[1], {label: [row[key] for row in own] for label, key in moved.items()}, names)
        column[0].set(title=f"{mode}: pairs told apart", ylim=(0, 1))
        column[1].set(title=f"{mode}: levels by which the others moved, a pair")
        for axis in column:
            axis.tick_params(axis="x", labelsize=6)
            axis.legend(fontsize=8, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.1))
    return saved(figure, f"{name}_pairs")


def plot_robust(rows: Sequence[Row], name: str) -> Path:
    """Levels changed of seven by each change of the sound, stacked by attribute."""
    modes = list(dict.fromkeys(row["mode"] for row in rows))
    figure, axes = panels(1, len(modes), (8 * len(modes), 4.4), squeeze=False, sharex=True)
    for axis, mode in zip(axes[0], modes, strict=True):
        own = [row for row in rows if row["mode"] == mode and row["change"] != "none"][::-1]
        names, under = [row["change"] for row in own], np.zeros(len(own))
        for attribute in ATTRIBUTES:
            widths = np.array([row[attribute] for row in own])
            axis.barh(names, widths, left=under, label=attribute)
            under += widths
        for at, total in enumerate(under):
            axis.text(total + 0.02, at, f"{total:.2f}", va="center", fontsize=8)
        axis.set(title=f"{mode}: levels of seven that change, {own[0]['clips']} clips")
        axis.legend(fontsize=7, ncols=7, loc="upper center", bbox_to_anchor=(0.5, -0.08))
        axis.grid(axis="x", alpha=0.3)
    return saved(figure, f"{name}_robust")
