"""Where a run works, and whose it is. In: options. Out: OUT.tuning, which is this run's own."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from streamer.commands.tune_options import TuneOptions
from streamer.tune.turn import TuneError

FREE = {"jobs", "json", "save_minutes", "judged", "out"}  # may change between two starts


def work_of(options: TuneOptions, fingerprint: str) -> Path:
    """The folder of this run, made where it is not there. Raises TuneError where OUT exists, or the
    folder is that of a run with other options."""
    out = Path(options.out)
    if out.exists():
        raise TuneError(f"{out} exists; name a directory that does not, or remove it")
    work = out.with_name(out.name + ".tuning")
    told = {n: v for n, v in asdict(options).items() if n not in FREE}
    told = json.loads(json.dumps(told | {"fingerprint": fingerprint}))
    file = work / "options.json"
    try:
        if file.exists():
            _check_same(json.loads(file.read_text("utf-8")), told, work)
        work.mkdir(exist_ok=True)
        file.write_text(json.dumps(told, ensure_ascii=False, indent=1) + "\n", "utf-8")
    except ValueError:
        raise TuneError(f"{file} is not of a run of ours; remove {work} to begin anew") from None
    except OSError as error:
        told_why = f"{work} cannot be written ({error.strerror}); choose another place with --out"
        raise TuneError(told_why) from None
    return work


def _check_same(before: dict[str, object], now: dict[str, object], work: Path) -> None:
    other = [name for name in now if before.get(name) != now[name]]
    if other:
        name = other[0]
        told = f"{work} is of a run with {name} {before.get(name)!r}, not {now[name]!r}"
        raise TuneError(f"{told}; give it as it was, another --out, or remove {work}")
