"""What every bench shares. In: rows of numbers. Out: JSON lines with commit and machine, medians,
tables, pictures, a progress bar."""

from __future__ import annotations

import json
import platform
import statistics
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from tqdm import tqdm

from bench.keep import place

if TYPE_CHECKING:
    from matplotlib.figure import Figure

T = TypeVar("T")


def provenance() -> dict[str, Any]:
    """Where and from what a figure comes: commit, processor, threads."""
    git = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    names = [line.split(":")[1].strip() for line in _cpuinfo() if line.startswith("model name")]
    cpu = f"{names[0]}, {len(names)} cores" if names else platform.machine()
    threads = torch.get_num_threads()
    return {
        "commit": git.stdout.strip(),
        "machine": cpu,
        "threads": threads,
        "torch": torch.__version__,
    }


def write(name: str, rows: Iterable[dict[str, Any]]) -> Path:
    """Replace NAME.jsonl where bench/keep.py says: the first line is the provenance."""
    file = place(f"{name}.jsonl")
    lines = [provenance(), *rows]
    file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in lines), "utf-8")
    return file


def merge(name: str, rows: Sequence[dict[str, Any]]) -> Path:
    """As `write`, but rows of other names stay: a bench of several questions may be asked one of
    them. Each row has its own provenance."""
    file = place(f"{name}.jsonl")
    lines = file.read_text("utf-8").splitlines() if file.exists() else []
    new = {row["name"] for row in rows}
    kept = [row for row in map(json.loads, lines) if row["name"] not in new]
    told = [*kept, *({**row, **provenance()} for row in rows)]
    file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in told), "utf-8")
    return file


def progress(items: Sequence[T], what: str) -> Iterable[T]:
    return tqdm(items, desc=what, leave=False)


def median(values: Iterable[float | None]) -> float:
    """The median of what is there; NaN of nothing."""
    known = [v for v in values if v is not None]
    return statistics.median(known) if known else float("nan")


def mean(values: Iterable[float | None]) -> float:
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else float("nan")


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A Markdown table; floats as they are good for reading."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(_cell(v) for v in row) + " |" for row in rows]
    return "\n".join(lines)


def table_of(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str] | None = None) -> str:
    """The same of rows that are dicts. columns: key -> header; None: all of the first row."""
    columns = columns or {key: key for key in rows[0]}
    return table(list(columns.values()), [[row.get(key, "") for key in columns] for row in rows])


def panels(rows: int, columns: int, size: tuple[float, float], **more: Any) -> tuple[Figure, Any]:
    """An empty picture and its axes [rows, columns]; size in inches, more: of Figure.subplots."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, **more)


def saved(figure: Figure, name: str) -> Path:
    """The picture as NAME.png, where bench/keep.py says."""
    file = place(f"{name}.png")
    figure.savefig(file, dpi=110)
    return file


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3f}" if abs(value) < 10 else f"{value:.0f}"
    return str(value)


def _cpuinfo() -> list[str]:
    file = Path("/proc/cpuinfo")
    return file.read_text().splitlines() if file.exists() else []
