"""Config against weights, one harm at a time on a real tiny checkpoint: refused by name before a
tensor is read."""

import json
import shutil
import time

import pytest
from safetensors.torch import load_file, save_file

from streamer.model.checkpoint.shapes import read_shapes
from streamer.model.checkpoint.weights import ModelError
from streamer.model.thinker import load

INDEX, WEIGHTS = "model.safetensors.index.json", "model.safetensors"
DEEP = "[" * 100_000
UNREADABLE = "the weights cannot be read .*; copy the file again"


def config(part, **change):
    def harm(directory):
        found = json.loads((directory / "config.json").read_text())
        (found[part] if part else found).update(change)
        (directory / "config.json").write_text(json.dumps(found))

    return harm


def write(name, text):
    return lambda directory: (directory / name).write_text(text)


def header(**change):
    """Change what the header says of the embedding, by hand: no library writes such a file."""

    def harm(directory):
        data = (directory / WEIGHTS).read_bytes()
        end = 8 + int.from_bytes(data[:8], "little")
        entries = json.loads(data[8:end])
        next(
            entry for name, entry in entries.items() if name.endswith("embed_tokens.weight")
        ).update(change)
        text = json.dumps(entries).encode()
        (directory / WEIGHTS).write_bytes(len(text).to_bytes(8, "little") + text + data[end:])

    return harm


def cut_short(directory):
    data = (directory / WEIGHTS).read_bytes()
    (directory / WEIGHTS).write_bytes(data[:-64])


def saved_twice(directory):
    """What a run that saved under the other naming scheme leaves behind: which one counts would be
    chance."""
    weights = load_file(directory / WEIGHTS)
    again = {
        "thinker." + name.replace("language_model.", ""): weight for name, weight in weights.items()
    }
    save_file(again, directory / "other.safetensors")


def many_tensors(number):
    """A whole file whose header describes so many more tensors, all empty."""

    def harm(directory):
        entry = '{"dtype":"F32","shape":[0],"data_offsets":[0,0]}'
        text = "{" + ",".join(f'"x{i}":{entry}' for i in range(number)) + "}"
        (directory / WEIGHTS).write_bytes(len(text).to_bytes(8, "little") + text.encode())

    return harm


def far_id(directory):
    """A tokenizer with one id far beyond the model's."""
    file = directory / "tokenizer.json"
    table = json.loads(file.read_text("utf-8"))
    table["model"]["vocab"]["far"] = 10**9
    file.write_text(json.dumps(table), "utf-8")


def shard(name):
    return write(INDEX, json.dumps({"weight_map": {"a": name}}))


TEXT, AUDIO = "text_config", "audio_config"
HARMS = [
    (config(TEXT, num_hidden_layers=1), "'model.layers.1.* is beyond the 1 layers of config.json"),
    (
        config(AUDIO, encoder_layers=1),
        "'audio_tower.layers.1.* is beyond the 1 layers of config.json",
    ),
    *[(config(TEXT, num_hidden_layers=n), "num_hidden_layers") for n in (2.9, "2", True, 0, -1)],
    *[
        (config(TEXT, hidden_size=n), "hidden_size")
        for n in (float("inf"), float("nan"), None, [1], 10**13)
    ],
    (config(TEXT, num_key_value_heads=0), "num_key_value_heads"),
    (config(AUDIO, num_mel_bins="128"), "num_mel_bins"),
    *[
        (config(None, audio_token_index=i), "audio_token_index")
        for i in (float("inf"), 2.5, "x", -1)
    ],
    (config(None, tie_word_embeddings="no"), "tie_word_embeddings"),
    (config(None, text_config=None), "text_config"),
    (config(TEXT, rms_norm_eps=float("nan")), "rms_norm_eps"),
    (config(TEXT, rope_parameters={"rope_theta": 0}), "rope_theta"),
    (config(TEXT, rope_parameters={"rope_theta": 1e4, "rope_type": "yarn"}), "'yarn'"),
    (config(TEXT, hidden_act="gelu"), "'gelu'"),
    (config(TEXT, use_sliding_window=True), "use_sliding_window"),
    (config(TEXT, head_dim=None, num_key_value_heads=None, num_attention_heads=64), "heads of 0"),
    (config(TEXT, num_key_value_heads=3), "cannot share 3 key heads"),
    (config(TEXT, hidden_size=48), "gives 32 numbers, the language model takes 48"),
    (config(TEXT, intermediate_size=40), "config and weights belong to different models"),
    (config(TEXT, num_hidden_layers=3), "lack 'model.layers.2"),
    (config(AUDIO, encoder_attention_heads=3), "cannot have 3 heads"),
    (config(AUDIO, n_window=50), "only the published 128 mels and n_window 100"),
    (write("config.json", DEEP), "recursion"),
    (write("config.json", "[]"), "Expected `object`, got `array`"),
    (write("config.json", "{"), "Expecting"),
    (write("config.json", '{"model_type": "llama"}'), "'llama'"),
    (write("config.json", '{"model_type": "qwen2_5_omni"}'), "required field `text_config`"),
    (write(INDEX, DEEP), "not a safetensors index"),
    (write(INDEX, '{"weight_map": {"a": 1}}'), "not a safetensors index"),
    *[
        (shard(name), "names the shard .*: only files beside it are read")
        for name in ("../x.safetensors", "/etc/passwd", "..", ".", "a/b", "..\\\\x", "./x")
    ],
    (write(INDEX, " " * 10_000_001), "not a safetensors index"),
    (many_tensors(60_000), "its header claims 60000 tensors"),
    (many_tensors(900_000), "its header claims [0-9]{8} bytes"),
    (far_id, "1000000001 ids in the tokenizer, [0-9]+ in the model"),
    (header(shape=[float("inf"), 32]), UNREADABLE),
    (header(shape=[2.0, 32]), UNREADABLE),
    (header(data_offsets=[8, 4]), UNREADABLE),
    (cut_short, UNREADABLE),
    (saved_twice, "is there twice"),
]


@pytest.mark.parametrize(("harm", "reason"), HARMS)
def test_config_and_headers_alone_show_what_is_wrong(
    tiny_pair, tmp_path, monkeypatch, harm, reason
):
    def never(*_):
        raise AssertionError("read the tensors of a checkpoint that cannot be used")

    target = tmp_path / "broken"
    shutil.copytree(tiny_pair[0], target)
    harm(target)
    monkeypatch.setattr("streamer.model.thinker.load_arrays", never)
    began = time.process_time()
    with pytest.raises(ModelError, match=reason) as error:
        load(str(target), "edge")
    assert time.process_time() - began < 1, "seconds of this process's own"
    assert str(error.value).isprintable()
    assert str(error.value).count(str(target)) == 1


def test_a_config_as_transformers_4_wrote_it():
    """A long dump of the 7B: both spellings of the audio layers, `rope_scaling` with its type
    twice, nulls where nothing is set."""
    text = {
        "hidden_size": 3584,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "vocab_size": 152_064,
        "num_key_value_heads": 4,
        "intermediate_size": 18_944,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-06,
        "rope_theta": 1000000.0,
        "max_position_embeddings": 32768,
        "use_sliding_window": False,
        "head_dim": None,
        "rope_scaling": {"mrope_section": [16, 24, 24], "rope_type": "default", "type": "default"},
    }
    audio = {
        "d_model": 1280,
        "encoder_layers": 32,
        "num_hidden_layers": 32,
        "encoder_attention_heads": 20,
        "encoder_ffn_dim": 5120,
        "activation_function": "gelu",
        "num_mel_bins": 128,
        "n_window": 100,
        "output_dim": 3584,
    }
    thinker = {"text_config": text, "audio_config": audio, "audio_token_index": 151646}
    shapes = read_shapes({"model_type": "qwen2_5_omni", "thinker_config": thinker})
    assert (shapes.text.layers, shapes.text.head_dim, shapes.text.rope_theta) == (28, 128, 1e6)
    assert (shapes.audio.layers, shapes.text.tied, shapes.audio_id) == (32, False, 151_646)
