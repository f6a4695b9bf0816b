"""A broken model directory is refused in a line, mostly before a tensor is read."""

import json
import math
import shutil
import time

import pytest
import torch
from safetensors.torch import load_file, save_file

from streamer.model.checkpoint.weights import ModelError, shapes_of, wanted_name
from streamer.model.engines.load import load_stock
from streamer.model.thinker import EMBEDDED, load

INDEX, WEIGHTS = "model.safetensors.index.json", "model.safetensors"
DEEP = "[" * 100_000
UNREADABLE = "the weights cannot be read .*; copy the file again"


def config(part, **change):
    def harm(directory):
        found = json.loads((directory / "config.json").read_text())
        (found[part] if part else found).update(change)
        (directory / "config.json").write_text(json.dumps(found))

    return harm


def put(name, content):
    data = content if isinstance(content, bytes) else content.encode()
    return lambda directory: (directory / name).write_bytes(data)


def gone(name):
    return lambda directory: (directory / name).unlink()


def weight(name, change):
    """Change, or with None drop, the one tensor whose 4.x name is `name`."""

    def harm(directory):
        weights = load_file(directory / WEIGHTS)
        key = next(key for key in weights if wanted_name(key) == name)
        old = weights.pop(key)
        if change is not None:
            weights[key] = change(old)
        save_file(weights, directory / WEIGHTS)

    return harm


def cut_short(directory):
    data = (directory / WEIGHTS).read_bytes()
    (directory / WEIGHTS).write_bytes(data[:-64])


UP = "model.layers.1.mlp.up_proj.weight"
KEY = "audio_tower.layers.1.self_attn.k_proj.weight"
TEXT, AUDIO, INF = "text_config", "audio_config", math.inf
ANOTHER = "config and weights belong to different models"
HARMS = [
    (config(TEXT, num_hidden_layers=1), f"'model.layers.1.* is none of config.json's; {ANOTHER}"),
    *[(config(TEXT, num_hidden_layers=n), "num_hidden_layers") for n in (2.9, "2", 0)],
    *[(config(TEXT, hidden_size=n), "hidden_size") for n in (INF, math.nan, None)],
    (config(None, text_config=None), "text_config"),
    (config(TEXT, rope_parameters={"rope_theta": 1e4, "rope_type": "yarn"}), "'yarn'"),
    (config(TEXT, hidden_act="gelu"), "'gelu'"),
    (config(TEXT, num_key_value_heads=3), "cannot share 3 key heads"),
    (config(TEXT, hidden_size=48), "gives 32 numbers, the language model takes 48"),
    (config(TEXT, intermediate_size=40), ANOTHER),
    (config(TEXT, num_hidden_layers=3), "lack 'model.layers.2"),
    (config(AUDIO, n_window=50), "only the published 128 mels and n_window 100"),
    (put("config.json", DEEP), "recursion"),
    (put(INDEX, "{}"), "not a safetensors index"),
    (put(INDEX, '{"weight_map": {"a": "../gone"}}'), "lacks gone"),
    (cut_short, UNREADABLE),
    (gone("config.json"), "no config.json"),
    (gone(WEIGHTS), r"no \*.safetensors"),
    (gone("tokenizer.json"), "tokenizer"),
    (put("streamer.json", b"\xff{}"), "not a model card"),
    (weight(UP, lambda w: w.to(torch.int8)), "is I8; give weights in F32"),
    (weight(KEY, None), "lack 'audio_tower.layers.1.self_attn.k_proj"),
]


def refusal(tiny_pair, tmp_path, harm, reason):
    """Harm a copy, and try to load it."""
    target = shutil.copytree(tiny_pair[0], tmp_path / "broken")
    harm(target)
    with pytest.raises(ModelError, match=reason) as error:
        load(str(target), "edge")
    assert str(error.value).isprintable()
    assert str(error.value).startswith(str(target))
    assert str(error.value).count(str(target)) == 1


@pytest.mark.parametrize(("harm", "reason"), HARMS)
def test_files_and_headers_alone_show_what_is_wrong(tiny_pair, tmp_path, monkeypatch, harm, reason):
    def never(*_):
        raise AssertionError("read the tensors of a checkpoint that cannot be used")

    monkeypatch.setattr("streamer.model.thinker.load_arrays", never)
    began = time.process_time()
    refusal(tiny_pair, tmp_path, harm, reason)
    assert time.process_time() - began < 1, "seconds of this process's own"


def test_values_that_are_no_numbers_are_told(tiny_pair, tmp_path):
    harm = weight(UP, lambda w: w + float("inf"))
    refusal(tiny_pair, tmp_path, harm, "up_proj.weight' holds values")


def test_a_config_as_transformers_4_wrote_it(tmp_path):
    """The 7B's config spells the audio layers twice, and has `rope_scaling` and nulls."""
    text = {"hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28}
    text |= {"vocab_size": 152_064, "num_key_value_heads": 4, "intermediate_size": 18_944}
    text |= {"hidden_act": "silu", "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "head_dim": None}
    text |= {"max_position_embeddings": 32768, "use_sliding_window": False}
    default = {"rope_type": "default", "type": "default"}
    text["rope_scaling"] = {"mrope_section": [16, 24, 24]} | default
    audio = {"d_model": 1280, "encoder_layers": 32, "num_hidden_layers": 32, "output_dim": 3584}
    audio |= {"encoder_attention_heads": 20, "encoder_ffn_dim": 5120}
    audio |= {"activation_function": "gelu", "num_mel_bins": 128, "n_window": 100}
    thinker = {"text_config": text, "audio_config": audio, "audio_token_index": 151646}
    raw = {"model_type": "qwen2_5_omni", "thinker_config": thinker}
    (tmp_path / "config.json").write_text(json.dumps(raw))
    shapes = shapes_of(tmp_path)
    assert (shapes.text.layers, shapes.text.head_dim, shapes.text.rope_theta) == (28, 128, 1e6)
    assert (shapes.audio.layers, shapes.text.tied, shapes.audio_id) == (32, False, 151_646)


def test_a_configuration_names_no_code(tmp_path):
    """transformers takes an attention of `owner/name` from the hub, and runs it."""
    copy = shutil.copytree(EMBEDDED / "edge", tmp_path / "copy")
    raw = json.loads((copy / "config.json").read_text())
    raw |= {"attn_implementation": "someone/kernels", "auto_map": {"AutoConfig": "x.Y"}}
    for part in raw.values():
        if isinstance(part, dict):
            part |= {"_attn_implementation": "someone/kernels", "attn_implementation": "a/b"}
    (copy / "config.json").write_text(json.dumps(raw))
    stock = load_stock(copy)
    configs = [stock.config, *(m.config for m in stock.modules() if hasattr(m, "config"))]
    assert {config._attn_implementation for config in configs} == {"sdpa"}
    assert not hasattr(stock.config, "auto_map")
