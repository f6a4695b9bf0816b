"""Where a run works, and whose it is. In: options. Out: OUT.tuning, which is this run's own."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from streamer.extras.tune.options import TuneOptions
from streamer.extras.tune.turn import TuneError
from streamer.model.runtime.lock import is_ours

FREE = {"jobs", "json", "save_minutes", "judged", "out"}  # may change between two starts
HALF = "half-"  # begins the name of what a run was merging


@contextmanager
def working(options: TuneOptions, fingerprint: str) -> Iterator[Path]:
    """The folder of this run, made where it is not there, and nobody else's meanwhile. Raises
    TuneError where OUT exists, or the folder is that of a run with other options."""
    out = Path(options.out)
    if out.exists():
        raise TuneError(f"{out} exists; name a directory that does not, or remove it")
    work = out.with_name(out.name + ".tuning")
    told = {n: v for n, v in asdict(options).items() if n not in FREE}
    told = json.loads(json.dumps(told | {"fingerprint": fingerprint}))
    held = -1
    try:
        try:
            work.mkdir(exist_ok=True)
            held = os.open(work, os.O_RDONLY)
            owned = is_ours(held)
            if owned is False:
                why = f"{work} is in use by another run"
                raise TuneError(f"{why}; wait for its end, or give another --out")
            _claim(work, told)
            for half in work.glob(HALF + "*") if owned else ():  # of a run that was killed
                shutil.rmtree(half)
        except OSError as error:
            why = f"{work} cannot be written ({error.strerror}); choose another place with --out"
            raise TuneError(why) from None
        yield work
    finally:
        if held >= 0:
            os.close(held)


def _claim(work: Path, told: dict[str, object]) -> None:
    """Raises TuneError where the folder is another run's, and OSError."""
    file = work / "options.json"
    if not file.exists():
        new = file.with_name(file.name + ".new")  # it stands whole, or not at all
        new.write_text(json.dumps(told, indent=1) + "\n")
        new.replace(file)
        return
    try:
        before = json.loads(file.read_text("utf-8"))
    except ValueError:
        raise TuneError(f"{file} is not of a run of ours; remove {work} to begin anew") from None
    _check_same(before, told, work)


def _check_same(before: dict[str, object], now: dict[str, object], work: Path) -> None:
    other = [name for name in now if before.get(name) != now[name]]
    if other:
        name = other[0]
        told = f"{work} is of a run with {name} {before.get(name)!r}, not {now[name]!r}"
        raise TuneError(f"{told}; give it as it was, another --out, or remove {work}")
