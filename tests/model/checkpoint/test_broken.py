"""A model directory with something broken in it gives one clear line."""

from __future__ import annotations

import json
import os

import pytest
import torch
from broken_models import broken, gate, harm_card, harm_weight
from places import ROOT
from safetensors.torch import save

from streamer.model.checkpoint.card import read_card
from streamer.model.checkpoint.weights import ModelError
from streamer.model.thinker import load

INDEX, WEIGHTS = "model.safetensors.index.json", "model.safetensors"
UP = "model.layers.1.mlp.up_proj.weight"
KEY = "audio_tower.layers.1.self_attn.k_proj.weight"


def put(name, data):
    return lambda directory: (directory / name).write_bytes(data)


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (lambda d: (d / "config.json").unlink(), "no config.json"),
        (lambda d: (d / WEIGHTS).unlink(), r"no \*.safetensors"),
        (put(WEIGHTS, b"not tensors"), "cannot be read"),
        (put(WEIGHTS, b"\xff" * 8 + b"{}"), "header claims"),
        (put(WEIGHTS, b"\x02" + b"\0" * 7 + b"[]"), "cannot be read"),
        (put(WEIGHTS, save({"x": torch.zeros(1)})), "no weights of a Qwen2.5-Omni"),
        (put(WEIGHTS, save({"lm_head.weight": torch.zeros(1)})), "lack 'model.embed_tokens"),
        (put(INDEX, b'{"weight_map": {"a": "gone"}}'), "lacks gone"),
        (put(INDEX, b"[]"), "not a safetensors index"),
        (lambda d: (d / "tokenizer.json").unlink(), "tokenizer"),
        (put("tokenizer.json", b"no"), "tokenizer"),
        (put("streamer.json", b"\xff{}"), "not a model card"),
        (harm_card(**gate(margin=2)), "margin"),
        (harm_weight("model.norm.weight", lambda w: w * float("nan")), "norm.weight' holds values"),
        (harm_weight(UP, lambda w: w + float("inf")), "up_proj.weight' holds values"),
        (harm_weight(UP, lambda w: w.to(torch.int8)), "is I8; give weights in F32"),
        (harm_weight(KEY, None), "lack 'audio_tower.layers.1.self_attn.k_proj"),
    ],
)
def test_a_broken_directory_gives_one_clear_line(tiny_pair, tmp_path, harm, reason):
    target = broken(tiny_pair, tmp_path, harm)
    with pytest.raises(ModelError, match=reason) as error:
        load(str(target), "edge")
    assert str(error.value).startswith(str(target))
    assert str(error.value).count("\n") == 0
    assert str(error.value).count(str(target)) == 1


@pytest.fixture
def copy(tmp_path):
    """A model directory whose files are links to the embedded edge's, as the hub's cache has it."""
    directory = tmp_path / "model"
    directory.mkdir()
    for file in (ROOT / "streamer" / "model" / "embedded" / "edge").iterdir():
        (directory / file.name).symlink_to(file)
    return directory


@pytest.mark.parametrize(
    "name", ["streamer.json", "config.json", "tokenizer.json", "model.safetensors"]
)
@pytest.mark.parametrize("kind", ["a pipe", "a device", "a folder"])
def test_a_file_that_is_not_regular_is_refused_unread(copy, name, kind):
    """A pipe would block its reader, /dev/zero fill the memory."""
    load(str(copy), "edge")
    (copy / name).unlink()
    match kind:
        case "a pipe":
            os.mkfifo(copy / name)
        case "a device":
            (copy / name).symlink_to("/dev/zero")
        case _:
            (copy / name).mkdir()
    with pytest.raises(ModelError, match=f"{name}: is no regular file"):
        load(str(copy), "edge")
    with pytest.raises(ModelError, match=f"{name}: is no regular file"):
        read_card(copy)


def test_a_file_beyond_any_size_is_refused_unread(copy):
    (copy / "streamer.json").unlink()
    with (copy / "streamer.json").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ModelError, match=r"streamer.json: has 1048576 MiB, 64 at most are read"):
        load(str(copy), "edge")


def test_a_configuration_names_no_code(copy):
    """transformers takes an attention of `owner/name` from the hub, and runs it."""
    from streamer.model.engines.stock import load_stock

    raw = json.loads((copy / "config.json").read_text())
    raw |= {"attn_implementation": "someone/kernels", "auto_map": {"AutoConfig": "x.Y"}}
    for part in raw.values():
        if isinstance(part, dict):
            part |= {"_attn_implementation": "someone/kernels", "attn_implementation": "a/b"}
    (copy / "config.json").unlink()
    (copy / "config.json").write_text(json.dumps(raw))
    stock = load_stock(copy)
    configs = [
        stock.config,
        *(module.config for module in stock.modules() if hasattr(module, "config")),
    ]
    assert {config._attn_implementation for config in configs} == {"sdpa"}
    assert not hasattr(stock.config, "auto_map")
