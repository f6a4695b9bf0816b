"""What every bench shares. In: rows of numbers. Out: JSON lines with commit and machine, medians, a
progress bar."""

from __future__ import annotations

import json
import platform
import statistics
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from tqdm import tqdm

from bench.keep import place

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


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3f}" if abs(value) < 10 else f"{value:.0f}"
    return str(value)


def _cpuinfo() -> list[str]:
    file = Path("/proc/cpuinfo")
    return file.read_text().splitlines() if file.exists() else []
