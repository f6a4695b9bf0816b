"""`streamer models`, `warm` and `samples`: what is here, and getting it ready.

Listing reads configs and file headers only; no tensor and no torch model is loaded.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any

from streamer.commands.options import FEW_BITS, ModelsOptions, SamplesOptions, WarmOptions
from streamer.commands.process import fail, loading, put, put_json
from streamer.core.attributes import level_names
from streamer.core.description import one_line
from streamer.extras import load as load_extra
from streamer.model.checkpoint.card import read_card
from streamer.model.checkpoint.weights import ModelError, checked, fingerprint_of
from streamer.model.kernels.library import USUAL, kernel, kernel_directory
from streamer.model.thinker import devices, resolve, runs_compiled
from streamer.progress import Bar


def run(options: ModelsOptions) -> int:
    """List the models on stdout; the exit status, 1 when one is broken."""
    rows = []
    status = 0
    for spec, role, directory in _found(options.files):
        try:
            rows.append(describe_model(spec, role, directory))
        except ModelError as error:
            fail(str(error))
            status = 1
    if options.json:
        put_json({"models": rows, "devices": devices()}, indent=2)
        return status
    for row in rows:
        _show(row)
    for device in devices():
        what = device["what"] or f"none ({device['why_not']})"
        put(f"device {device['name']}: {what}")
    return status


def _show(row: dict[str, Any]) -> None:
    """The lines of one model. row: of `describe_model`."""
    put(f"{row['spec']} ({row['role']})")
    size = f"{row['num_params'] / 1e6:.2f} M parameters, {row['megabytes']} MB"
    put(f"  {size}, fingerprint {row['fingerprint']}")
    put(f"  engine on the CPU: {row['engine']}")
    for name, preset in row["presets"].items():
        gate = f"  gate {name} entropy {preset['entropy']:g}, k {preset['k']}"
        if p := preset["promise"]:
            sure = f" at {p['confidence']:g}" if p["confidence"] else ""
            gate += f", risk {p['risk']:g}{sure} ({p['num_clips']} clips, {p['date']})"
        put(gate)
    if not row["calibrated"]:
        put("  gate: these are defaults; streamer calibrate finds this model's own")


def describe_model(spec: str, role: str, directory: Path) -> dict[str, Any]:
    """One model as plain types. Raises ModelError for a model that `load` would refuse."""
    if not directory.is_dir():
        raise ModelError(directory, "no such directory; give one that holds a model's config.json")
    card = read_card(directory)
    _, num_params, num_bytes = checked(directory)
    promises = {name: asdict(promise) for name, promise in card.promises.items()}
    levels = {name: [level["name"] for level in levels] for name, levels in card.attributes.items()}
    return {
        "spec": spec,
        "role": role,
        "name": card.name,
        "num_params": num_params,
        "megabytes": round(num_bytes / 1e6, 1),
        "fingerprint": fingerprint_of(directory),
        "device": "cpu",
        "engine": "compiled kernels" if runs_compiled(num_params) else "torch",
        "max_turn_s": card.max_turn_s,
        "calibrated": bool(card.gate),
        "presets": {  # promise: None without one
            name: {"entropy": preset.threshold, "k": preset.k, "promise": promises.get(name)}
            for name, preset in card.presets.items()
        },
        "levels": levels,
        "languages": list(card.spoken),
        "level_names": level_names({each: card.speaking(each).attributes for each in card.spoken}),
        "num_levels": {name: len(names) for name, names in levels.items()},
    }


def _found(specs: Sequence[str]) -> Iterator[tuple[str, str, Path]]:
    """(spec, role, directory) of the embedded pair, the hub's cache, and `specs`, directories."""
    for role in ("edge", "cloud"):
        yield "embedded", role, resolve("embedded", role)
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser() / "hub"
    for folder in sorted(home.glob("models--*Qwen2.5-Omni*")):
        if snapshots := sorted(folder.glob("snapshots/*/config.json")):
            owner_and_name = folder.name.removeprefix("models--").replace("--", "/")
            yield owner_and_name, "either", snapshots[-1].parent
    for spec in specs:
        yield one_line(spec), "either", Path(spec).expanduser()


def warm(options: WarmOptions) -> int:
    """Compile the kernels, or convert a large model; the exit status, 1 if the kernels cannot be
    kept on disk. Raises ModelError."""
    engine = options.engine
    if options.cloud != "embedded" or engine in FEW_BITS:
        directory = resolve(options.cloud, "cloud")
        shapes, _, _ = checked(directory)
        prepared = load_extra("large.prepared")(directory, shapes, engine)
        with Bar(f"preparing {engine}", 1) as bar:
            prepared.write(lambda done, total: bar.show(done / total, f"{done} of {total}"))
        put(f"prepared for engine {engine}: {prepared.num_bytes / 1e9:.2f} GB in {prepared.at}")
        return 0
    started = time.perf_counter()
    with loading("the embedded pair", is_service=True):
        for name in USUAL:
            kernel(name)
    place, is_kept = kernel_directory()
    if not is_kept:  # a warning has said why
        return 1
    put(f"kernels are kept in {place} ({time.perf_counter() - started:.1f} s)")
    return 0


def samples(_: SamplesOptions) -> int:
    """List the bundled recordings and the client."""
    home = Path(str(files("streamer"))) / "data"
    for file in (*sorted(home.glob("samples/*.wav")), *sorted(home.glob("clients/*.py"))):
        put(str(file))
    return 0
