"""Helpers shared by the benches: results files, medians, tables, progress.

A run writes to .cache/bench/results. With --keep it replaces the tracked files in bench/results,
which docs/measured.md cites.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tqdm import tqdm

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from streamer import Description

T = TypeVar("T")
ROOT = Path(__file__).parent.parent
KEPT = ROOT / "bench" / "results"
OWN = ROOT / ".cache" / "bench" / "results"
_folder = OWN


def options_of(
    parser: argparse.ArgumentParser, argv: Sequence[str] | None = None
) -> argparse.Namespace:
    """Parse a bench's options and --keep, which every bench has."""
    global _folder
    parser.add_argument("--keep", action="store_true", help="replace the results that docs cite")
    options = parser.parse_args(argv)
    _folder = KEPT if options.keep else OWN
    return options


def place(name: str) -> Path:
    """Path of the results file `name` of this run."""
    _folder.mkdir(parents=True, exist_ok=True)
    return _folder / name


def provenance() -> dict[str, Any]:
    """Commit, processor and number of cores of this run."""
    git = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    cpu = f"{names[0]}, {len(names)} cores" if names else platform.machine()
    return {"commit": git.stdout.strip(), "machine": cpu}


def write(name: str, rows: Iterable[dict[str, Any]]) -> Path:
    """Write NAME.jsonl; its first line is the provenance."""
    file = place(f"{name}.jsonl")
    lines = [provenance(), *rows]
    file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in lines), "utf-8")
    return file


def merge(name: str, rows: Sequence[dict[str, Any]]) -> Path:
    """Replace the rows of the same "name" in NAME.jsonl; each row has its own provenance."""
    file = place(f"{name}.jsonl")
    lines = file.read_text("utf-8").splitlines() if file.exists() else []
    new = {row["name"] for row in rows}
    found = [row for row in map(json.loads, lines) if row.get("name") not in new]
    found += [{**row, **provenance()} for row in rows]
    file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in found), "utf-8")
    return file


def progress(items: Sequence[T], what: str) -> Iterable[T]:
    return tqdm(items, desc=what, leave=False, disable=None)


def median(values: Iterable[float | None]) -> float:
    """Median without None; NaN of no values."""
    known = [v for v in values if v is not None]
    return statistics.median(known) if known else float("nan")


def mean(values: Iterable[float | None]) -> float:
    """Mean without None; NaN of no values."""
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else float("nan")


def rightness(levels: Mapping[str, int], found: Description) -> float:
    """Share of the attributes of `levels` whose level is exactly right; a missing one is wrong."""
    return mean(float(found.attributes.get(name) == level) for name, level in levels.items())


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A Markdown table with rounded numbers."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(_cell(v) for v in row) + " |" for row in rows]
    return "\n".join(lines)


def table_of(rows: Sequence[Mapping[str, Any]], columns: Iterable[str] = ()) -> str:
    """A Markdown table of dicts. columns: keys, or keys with their headers; by default all keys of
    the first row."""
    named = columns if isinstance(columns, Mapping) else {key: key for key in columns or rows[0]}
    return table(list(named.values()), [[row.get(key, "") for key in named] for row in rows])


def panels(rows: int, columns: int, size: tuple[float, float], **more: Any) -> tuple[Figure, Any]:
    """An empty figure and its axes [rows, columns]; size in inches, more: of Figure.subplots."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, **more)


def lines(axis: Any, rows: Sequence[Mapping[str, Any]], by: str, x: str, y: str) -> None:
    """Draw y against x, a line for each value of `by`."""
    for name in dict.fromkeys(row[by] for row in rows):
        own = [row for row in rows if row[by] == name]
        axis.plot([row[x] for row in own], [row[y] for row in own], marker="o", label=name)
    axis.grid(alpha=0.3)


def saved(figure: Figure, name: str) -> Path:
    """Save the figure as NAME.png among the results."""
    file = place(f"{name}.png")
    figure.savefig(file, dpi=110)
    return file


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3f}" if abs(value) < 10 else f"{value:.0f}"
    return str(value)
