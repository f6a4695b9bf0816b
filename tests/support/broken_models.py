"""Model directories with something broken in them. In: a directory, what to harm. Out: a copy."""

from __future__ import annotations

import json
import shutil

import tiny
from safetensors.torch import load_file, save_file

from streamer.model.checkpoint.weights import wanted_name


def broken(tiny_pair, tmp_path, harm):
    target = tmp_path / "broken"
    shutil.copytree(tiny_pair[0], target)
    harm(target)
    return target


def harm_card(**change):
    return lambda d: (d / "streamer.json").write_text(json.dumps(tiny.CARD | change))


def harm_weight(name, change):
    """Change, or with None drop, the one tensor whose 4.x name is `name`."""

    def harm(directory):
        weights = load_file(directory / "model.safetensors")
        key = next(key for key in weights if wanted_name(key) == name)
        old = weights.pop(key)
        if change is not None:
            weights[key] = change(old)
        save_file(weights, directory / "model.safetensors")

    return harm


def gate(**fluent):
    return {"gate": {"fluent": {"entropy": 0.5, "k": 4} | fluent}}


def levels(*found):
    return {"attributes": {"rate": list(found)}}
