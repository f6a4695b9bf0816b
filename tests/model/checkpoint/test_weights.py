"""The published layout in all its forms gives the stock model's logits; its tokenizer, in Qwen2's
format, the library's ids; bad ones tell.
"""

import json
import shutil

import numpy as np
import pytest
import tiny
import tokenizers
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer.model.checkpoint.card import Tokenizer
from streamer.model.checkpoint.weights import ModelError, expected, shapes_of, wanted_name
from streamer.model.engines.engine import Row
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
    wanted = library.encode(text, add_special_tokens=False)
    assert Tokenizer(EDGE).encode(text) == wanted.ids


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
