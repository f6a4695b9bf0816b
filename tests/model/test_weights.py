"""Real checkpoints: the published layout in all its forms loads and gives the stock model's logits; bad ones tell."""

import json
import shutil

import pytest
import tiny
import torch
from safetensors.torch import load_file, save_file

from streamer.model.engine import Row
from streamer.model.shapes import read_shapes
from streamer.model.thinker import check_pair, load, resolve
from streamer.model.weights import ModelError, wanted_name

# The release's special ids and the two sizes' padded vocabularies (engine-facts).
PUBLISHED = {"audio_token_index": 151646, "audio_start_token_id": 151647, "audio_end_token_id": 151648}


def full_model(source, target, shards=2, **config):
    """The same weights as the full model is published: `thinker_config`, `thinker.` prefixes, shards, an index."""
    shutil.copytree(source, target)
    thinker = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(
        json.dumps({"model_type": "qwen2_5_omni", "enable_audio_output": True, "thinker_config": thinker | config})
    )
    weights = load_file(target / "model.safetensors")
    (target / "model.safetensors").unlink()
    names, index = sorted(weights), {}
    for i in range(shards):
        file = f"model-{i + 1:05d}-of-{shards:05d}.safetensors"
        part = {"thinker." + name: weights[name] for name in names[i::shards]}
        part[f"talker.noise.{i}"] = torch.zeros(2)
        save_file(part, target / file)
        index |= dict.fromkeys(part, file)
    (target / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    return target


def first_logits(thinker):
    slot = thinker.engine.open()
    out = thinker.engine.step([Row(slot, len(thinker.engine.prompt_ids), [5, 6, 7], num_logits=3)])[0]
    thinker.engine.close(slot)
    return out


def test_full_model_in_shards_equals_the_thinker_alone(tiny_pair, tmp_path):
    alone = load(str(tiny_pair[0]), "edge")
    full = load(str(full_model(tiny_pair[0], tmp_path / "full")), "edge")
    assert torch.equal(first_logits(full), first_logits(alone))


def test_both_published_vocabularies_make_a_pair(tmp_path):
    """151,936 and 152,064 rows over one tokenizer: a pair by content, whatever the padding."""
    pair = []
    for role, size, seed in (("edge", 151_936, 1), ("cloud", 152_064, 2)):
        alone = tiny.save_tiny(tmp_path / f"{role}-alone", seed=seed, vocab=size)
        pair.append(load(str(full_model(alone, tmp_path / role, shards=3, **PUBLISHED)), role))
    edge, cloud = pair
    assert (edge.vocabulary.num_ids, cloud.vocabulary.num_ids) == (151_936, 152_064)
    assert edge.shapes.audio_id == 151_646
    check_pair(edge, cloud)


def test_a_pair_with_two_tokenizers_is_refused(tiny_pair, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(tiny_pair[0], other)
    table = json.loads((other / "tokenizer.json").read_text("utf-8"))
    vocabulary = table["model"]["vocab"]
    words = [word for word in vocabulary if len(word) == 6][:2]
    vocabulary[words[0]], vocabulary[words[1]] = vocabulary[words[1]], vocabulary[words[0]]
    (other / "tokenizer.json").write_text(json.dumps(table), "utf-8")
    with pytest.raises(ModelError, match="different tokenizers"):
        check_pair(load(str(other), "edge"), load(str(tiny_pair[1]), "cloud"))


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("thinker.model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.up_proj.weight"),
        ("model.language_model.norm.weight", "model.norm.weight"),
        ("thinker.audio_tower.conv1.bias", "audio_tower.conv1.bias"),
        ("model.audio_tower.proj.weight", "audio_tower.proj.weight"),
        ("thinker.lm_head.weight", "lm_head.weight"),
        ("thinker.visual.blocks.0.attn.q.weight", None),
        ("talker.model.layers.0.mlp.up_proj.weight", None),
        ("token2wav.x", None),
    ],
)
def test_names_of_all_layouts(name, known):
    assert wanted_name(name) == known


def broken(tiny_pair, tmp_path, harm):
    target = tmp_path / "broken"
    shutil.copytree(tiny_pair[0], target)
    harm(target)
    return target


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (lambda d: (d / "config.json").unlink(), "no config.json"),
        (lambda d: (d / "config.json").write_text("{"), "Expecting"),
        (lambda d: (d / "config.json").write_text('{"model_type": "llama"}'), "not a Qwen2.5-Omni thinker"),
        (lambda d: (d / "config.json").write_text('{"model_type": "qwen2_5_omni"}'), "lacks 'text_config'"),
        (lambda d: (d / "model.safetensors").unlink(), r"no \*.safetensors"),
        (lambda d: (d / "model.safetensors").write_bytes(b"not tensors"), "cannot be read"),
        (lambda d: save_file({"x": torch.zeros(1)}, d / "model.safetensors"), "no weights of a Qwen2.5-Omni"),
        (lambda d: save_file({"lm_head.weight": torch.zeros(1)}, d / "model.safetensors"), "lack"),
        (lambda d: (d / "model.safetensors.index.json").write_text('{"weight_map": {"a": "gone"}}'), "lacks gone"),
        (lambda d: (d / "model.safetensors.index.json").write_text("[]"), "not a safetensors index"),
        (lambda d: (d / "tokenizer.json").unlink(), "tokenizer"),
        (lambda d: (d / "tokenizer.json").write_text("no"), "tokenizer"),
        (lambda d: (d / "streamer.json").write_text("no"), "not a model card"),
    ],
)
def test_a_broken_directory_gives_one_clear_line(tiny_pair, tmp_path, harm, reason):
    target = broken(tiny_pair, tmp_path, harm)
    with pytest.raises(ModelError, match=reason) as error:
        load(str(target), "edge")
    assert str(error.value).startswith(str(target))
    assert str(error.value).count("\n") == 0
    assert str(error.value).count(str(target)) == 1


def test_specs():
    assert resolve("embedded", "cloud").name == "cloud"
    with pytest.raises(ModelError, match="no such model directory"):
        resolve("./nowhere", "edge")
    with pytest.raises(ModelError, match="is a file"):
        resolve(__file__, "edge")


def test_shapes_of_the_published_sizes():
    text = {"hidden_size": 2048, "num_hidden_layers": 36, "num_attention_heads": 16, "num_key_value_heads": 2,
            "intermediate_size": 11008, "vocab_size": 151936, "rope_theta": 1000000.0}  # fmt: skip
    audio = {"d_model": 1280, "encoder_layers": 32, "encoder_attention_heads": 20, "output_dim": 2048}
    shapes = read_shapes({"model_type": "qwen2_5_omni", "thinker_config": {"text_config": text, "audio_config": audio}})
    assert (shapes.text.head_dim, shapes.text.rope_theta, shapes.audio.n_window) == (128, 1e6, 100)
    with pytest.raises(ValueError, match="sliding"):
        read_shapes({"model_type": "qwen2_5_omni_thinker", "text_config": text | {"use_sliding_window": True}, "audio_config": audio})
