"""The published layout in all its forms gives the stock model's logits; its tokenizer, in Qwen2's
format, the library's ids. A broken directory, tokenizer or card is refused in a line, mostly before
a tensor is read.
"""

import json
import math
import shutil
import time

import numpy as np
import pytest
import tiny
import tokenizers
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from streamer.model.checkpoint.card import FILE, PREFIX, Tokenizer, read_card, write_gate
from streamer.model.checkpoint.weights import ModelError, expected, shapes_of, wanted_name
from streamer.model.engines.engine import Row
from streamer.model.engines.load import load_stock
from streamer.model.thinker import EMBEDDED, check_pair, load


def test_full_model_in_shards_equals_the_thinker_alone(tiny_pair, tmp_path):
    found = []
    for directory in (tiny_pair[0], tiny.full_model(tiny_pair[0], tmp_path / "full")):
        engine = load(str(directory), "edge").engine
        row = Row(engine.open(), len(engine.prompt_ids), [5, 6, 7], num_logits=3)
        found.append(engine.step([row])[0])
    assert np.array_equal(*found)


def test_both_published_vocabularies_make_a_pair(tmp_path):
    """The release's special ids, and the two sizes' padded vocabularies."""
    names, pair = ("audio_token_index", "audio_start_token_id", "audio_end_token_id"), []
    published = dict(zip(names, range(151_646, 151_649), strict=True))
    for role, size, seed in (("edge", 151_936, 1), ("cloud", 152_064, 2)):
        alone = tiny.save_tiny(tmp_path / f"{role}-alone", seed=seed, vocab=size)
        pair.append(load(str(tiny.full_model(alone, tmp_path / role, shards=3, **published)), role))
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


def test_the_published_sizes_ask_for_the_published_tensors(tmp_path):
    from transformers import Qwen2_5OmniThinkerConfig, Qwen2_5OmniThinkerForConditionalGeneration

    names = "hidden_size num_hidden_layers num_attention_heads num_key_value_heads"
    names = [*names.split(), "intermediate_size", "vocab_size"]
    sizes = {"3B": (2048, 36, 16, 2, 11_008, 151_936), "7B": (3584, 28, 28, 4, 18_944, 152_064)}
    for name, values in sizes.items():
        text = dict(zip(names, values, strict=True))
        audio = {"d_model": 1280, "encoder_layers": 32, "encoder_attention_heads": 20}
        audio |= {"encoder_ffn_dim": 5120, "output_dim": text["hidden_size"]}
        audio |= {"num_mel_bins": 128, "n_window": 100}
        config = Qwen2_5OmniThinkerConfig(
            text_config=text, audio_config=audio, tie_word_embeddings=name == "3B"
        )
        with torch.device("meta"):
            state = Qwen2_5OmniThinkerForConditionalGeneration(config).state_dict()
        found = {known: tuple(w.shape) for key, w in state.items() if (known := wanted_name(key))}
        raw = {"model_type": "qwen2_5_omni", "thinker_config": config.to_dict()}
        (tmp_path / "config.json").write_text(json.dumps(raw))
        shapes = shapes_of(tmp_path)
        wanted = dict(expected(shapes.text, shapes.audio))
        assert wanted == {key: found[key] for key in wanted}
        unused = set(found) - set(wanted) - {"lm_head.weight"}
        assert all("audio_bos_eos" in key or "positional" in key for key in unused), unused


EDGE = EMBEDDED / "edge"
TEXTS = st.lists(
    st.sampled_from([*"慢音，。說 a'sILLtd123Ⅷ\n\r\té日😀!?-\u0301٣", "<|im_end|>", "<|im_start|>"])
    | st.characters(exclude_categories=["Cs"]),
    max_size=20,
).map("".join)


@settings(max_examples=300, deadline=None)
@given(text=TEXTS)
def test_ids_are_those_of_the_library(text):
    library = tokenizers.Tokenizer.from_file(str(EDGE / "tokenizer.json"))
    assert Tokenizer(EDGE).encode(text) == library.encode(text, add_special_tokens=False).ids


def changed(*path, to):
    """The shipped tokenizer with another value at a path."""

    def change(held):
        for key in path[:-1]:
            held = held[key]
        held[path[-1]] = to

    return change


WORDS = "model", "vocab"
REGEX = "pre_tokenizer", "pretokenizers", 0, "pattern", "Regex"
WRONG = [
    (changed("model", "type", to="WordLevel"), "cannot read its tokenizer: .*WordLevel"),
    (changed(*WORDS, "a", to="0"), "cannot read its tokenizer"),
    (changed(*WORDS, "▁a", to=3), "not a byte-level tokenizer: id 3 is '▁a'"),
    (changed("added_tokens", to=[{"content": "\ud800", "id": 3}]), "cannot read its tokenizer"),
    (changed("added_tokens", to=[{"content": "<x>", "id": 3}]), "neither <|im_end|> nor"),
    # it would take years for a prompt of forty letters
    (changed(*REGEX, to="(a+)+$"), "another pattern than Qwen's"),
    (changed("pre_tokenizer", to={"type": "ByteLevel"}), "another pattern than Qwen's"),
]


@pytest.mark.parametrize(("change", "reason"), WRONG)
def test_a_wrong_one_is_one_clear_line(tmp_path, change, reason):
    shutil.copy(EDGE / "tokenizer.json", tmp_path)
    held = json.loads((tmp_path / "tokenizer.json").read_text("utf-8"))
    change(held)
    (tmp_path / "tokenizer.json").write_text(json.dumps(held), "utf-8")
    with pytest.raises(ModelError, match=reason.replace("|", r"\|")) as error:
        Tokenizer(tmp_path).vocabulary(2_000)
    assert "\n" not in str(error.value)


def test_none_and_a_larger_one_than_the_model_are_told(tmp_path):
    with pytest.raises(ModelError, match=r"no tokenizer\.json"):
        Tokenizer(tmp_path)
    with pytest.raises(ModelError, match="ids in the tokenizer, 10 in the model"):
        Tokenizer(EDGE).vocabulary(10)


SLOW = {"name": "slow", "phrases": ["缓慢"]}
LONE = "\ud800"  # JSON can spell half a surrogate pair; no tokenizer and no terminal takes it


def gate(**fluent):
    return {"gate": {"fluent": {"entropy": 0.5, "k": 4} | fluent}}


def write(directory, text):
    (directory / FILE).write_text(text if isinstance(text, str) else json.dumps(text), "utf-8")
    return directory


PROMISE = {"risk": 0.1, "confidence": 0, "num_clips": 9, "date": "2026-11-21", "cloud": "c"}


ENGLISH = {"language": "en", "prompt": {"prefix": "Listen."}}
WRONG_TOKENIZERS = [
    *(({"max_turn_s": s}, "max_turn_s") for s in (1.9, 301, "60")),
    *((gate(k=k), "float|int") for k in (0, 100, 2.5)),
    *((gate(entropy=x), "entropy") for x in (None, -1)),
    ({"gate": {"best": {"entropy": 1.0}}}, "'best'"),
    ({"gate": {"fluent": {"k": 4}}}, "required field `entropy`"),
    (gate(margin=0.1), "unknown field `margin`"),
    (gate(promise=PROMISE | {"risk": 3}), "risk"),
    ({"attributes": {"colour": [SLOW]}}, "unknown attributes colour"),
    ({"attributes": {"rate": [SLOW | {"phrases": [LONE]}]}}, "surrogate"),
    ({"attributes": {"rate": [SLOW | {"name": "a\x1b[31m"}]}}, "name"),
    ([], "Expected `object`, got `array`"),
    ({"languages": {"en": ENGLISH}}, "has another prompt before the audio; audio is prefilled"),
    (
        {"attributes": {"rate": [SLOW]}, "languages": {"en": {"no_speech": "None."}}},
        "language en has other attributes or levels than zh",
    ),
]


@pytest.mark.parametrize(("card", "reason"), WRONG_TOKENIZERS)
def test_the_wrong_entry_is_named(tmp_path, card, reason):
    with pytest.raises(ModelError, match=reason) as error:
        read_card(write(tmp_path, card))
    assert str(error.value).startswith(f"{tmp_path / FILE}: is not a model card (")
    assert str(error.value).endswith("mend it, or copy it again from where the model came from")
    assert str(error.value).isprintable()


def test_a_gate_is_written_whole_or_not_at_all(tmp_path):
    before = {"name": "x", "max_turn_s": 30, "extra": ["kept"]}
    before["gate"] = {"quality": {"entropy": 1.0, "k": 6}}
    write(tmp_path, before)
    write_gate(tmp_path, {"fluent": {"entropy": 0.5, "k": 3}})
    after = json.loads((tmp_path / FILE).read_text("utf-8"))
    assert after == before | {"gate": before["gate"] | {"fluent": {"entropy": 0.5, "k": 3}}}
    for place, entropy in ((tmp_path, -9), (tmp_path / "no", 0.1)):
        with pytest.raises(ModelError) as error:
            write_gate(place, {"fluent": {"entropy": entropy}})
        assert str(error.value).isprintable()
    assert json.loads((tmp_path / FILE).read_text("utf-8")) == after
    assert [path.name for path in tmp_path.iterdir()] == [FILE], "no half of a file is left"


def test_a_model_without_a_card_has_defaults_and_gets_one(tmp_path):
    card = read_card(tmp_path)
    assert (card.name, card.prompt.prefix, card.max_turn_s) == (tmp_path.name, PREFIX, 60)
    write_gate(tmp_path, {"fluent": {"entropy": 0.5, "k": 4}})
    assert read_card(tmp_path).presets["fluent"].threshold == 0.5
    assert not read_card(tmp_path).promises


def test_a_further_language_has_its_words_and_shares_the_rest(tmp_path):
    gate = {"fluent": {"entropy": 0.3, "promise": PROMISE}}
    english = {"prompt": {"suffix": "<en>"}, "openings": ["It is"]}
    english["attributes"] = {"rate": [{"name": "very slow", "phrases": ["slow"]}]}
    raw = {"name": "two", "max_turn_s": 30, "prompt": {"prefix": "a", "suffix": "<zh>"}}
    raw |= {"attributes": {"rate": [SLOW]}, "gate": gate}
    raw["languages"] = {"en": english}
    card = read_card(write(tmp_path, raw))
    found = card.speaking("en")
    assert card.spoken == ("zh", "en")
    assert card.speaking() is card.speaking("zh") is card
    assert (found.language, found.prompt.prefix, found.prompt.suffix) == ("en", "a", "<en>")
    assert (found.max_turn_s, found.openings) == (30, ("It is",))
    assert found.presets["fluent"].threshold == 0.3
    assert found.phrases not in ("", card.phrases)
    assert found.gate == card.gate
    with pytest.raises(ValueError, match="is 'de', but this model speaks zh and en; leave"):
        card.speaking("de")
    write_gate(tmp_path, {"fluent": {"entropy": 0.7, "promise": PROMISE}}, "en")
    own = read_card(tmp_path)
    assert [own.speaking(each).presets["fluent"].threshold for each in own.spoken] == [0.3, 0.7]


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
    (directory / WEIGHTS).write_bytes((directory / WEIGHTS).read_bytes()[:-64])


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
