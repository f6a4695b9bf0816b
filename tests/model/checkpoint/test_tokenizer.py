"""Tokenizer files to bytes: byte-level BPE in Qwen2's format, with and without tokenizer.json."""

import json

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers

from streamer.model.checkpoint.tokenizer import Tokenizer, TokenizerError, vocabulary_of
from streamer.model.thinker import EMBEDDED

SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MERGED = ["慢", "音", "慢慢", "，"]


def spelled(text):
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return "".join(piece for piece, _ in byte_level.pre_tokenize_str(text))


def parts():
    """256 bytes, then what the merges build."""
    vocabulary = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    merges = {}
    for text in MERGED:
        pieces = [spelled(c) for c in text]
        for piece in pieces:
            for end in range(1, len(piece)):
                merges[piece[:end], piece[end]] = None
        if len(pieces) > 1:
            merges[pieces[0], pieces[1]] = None
    for left, right in merges:
        vocabulary.setdefault(left + right, len(vocabulary))
    return vocabulary, list(merges)


def save(directory, specials=SPECIALS):
    vocabulary, merges = parts()
    tokenizer = tokenizers.Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [tokenizers.AddedToken(s, normalized=False, special=True) for s in specials]
    )
    tokenizer.save(str(directory / "tokenizer.json"))
    return directory


def save_in_pieces(directory):
    """vocab.json and merges.txt, as the published directories also have them."""
    vocabulary, merges = parts()
    (directory / "vocab.json").write_text(json.dumps(vocabulary), "utf-8")
    lines = [f"{left} {right}" for left, right in merges]
    (directory / "merges.txt").write_text("\n".join(["#version: 0.2", *lines]), "utf-8")
    plain = {"special": True} | dict.fromkeys(("lstrip", "rstrip", "normalized"), False)
    added = {str(i): {"content": s} | plain for i, s in enumerate(SPECIALS, len(vocabulary))}
    config = {
        "tokenizer_class": "Qwen2Tokenizer",
        "added_tokens_decoder": added,
        "eos_token": "<|im_end|>",
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    (directory / "config.json").write_text(json.dumps({"model_type": "qwen2"}), "utf-8")
    return directory


def check_equal(directory, text):
    library = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
    wanted = library.encode(text, add_special_tokens=False)
    assert Tokenizer.load(directory).encode(text) == wanted.ids


TEXTS = st.lists(
    st.sampled_from([*"慢音，。說 a'sILLtd123Ⅷ\n\r\té日😀!?-\u0301٣", "<|im_end|>", "<|im_start|>"])
    | st.characters(exclude_categories=["Cs"]),
    max_size=20,
).map("".join)


@settings(max_examples=300, deadline=None)
@given(text=TEXTS)
def test_ids_are_those_of_the_library(text):
    check_equal(EMBEDDED / "edge", text)


@settings(max_examples=300, deadline=None)
@given(text=TEXTS)
def test_with_the_pattern_of_byte_level_too(of_our_own, text):
    check_equal(of_our_own, text)


@pytest.fixture(scope="module")
def of_our_own(tmp_path_factory):
    return save(tmp_path_factory.mktemp("own"))


@pytest.mark.filterwarnings("default")
def test_vocab_and_merges_do_without_tokenizer_json(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    one = vocabulary_of(save(tmp_path / "one"), 300)
    two = vocabulary_of(save_in_pieces(tmp_path / "two"), 300)
    assert two.fingerprint == one.fingerprint
    text = "慢慢，音<|im_end|>"
    assert Tokenizer.load(tmp_path / "two").encode(text) == Tokenizer.load(tmp_path / "one").encode(
        text
    )


def test_errors_are_one_clear_line(tmp_path):
    with pytest.raises(TokenizerError, match=r"no tokenizer\.json, nor vocab\.json") as none:
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{not json")
    with pytest.raises(TokenizerError, match="cannot read its tokenizer") as broken:
        Tokenizer.load(tmp_path)
    save(tmp_path, ("<|im_start|>",))
    with pytest.raises(TokenizerError, match="neither") as endless:
        vocabulary_of(tmp_path, 400)
    save(tmp_path)
    with pytest.raises(TokenizerError, match="10 in the model") as narrow:
        vocabulary_of(tmp_path, 10)
    tokenizers.Tokenizer(models.WordLevel({"慢": 0, "▁a": 1}, unk_token="慢")).save(
        str(tmp_path / "tokenizer.json")
    )
    with pytest.raises(TokenizerError, match="not a byte-level tokenizer") as foreign:
        vocabulary_of(tmp_path, 400)
    for error in (none, broken, endless, narrow, foreign):
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("part", "wrong"),
    [
        ("vocab", {"a": "0"}),
        ("vocab", {"a": -1}),
        ("added_tokens", [{"content": 5, "id": 3}]),
        ("added_tokens", [{"content": "\ud800", "id": 3}]),
    ],
)
def test_a_tokenizer_with_wrong_values_is_one_line(tmp_path, part, wrong):
    held = json.loads((save(tmp_path) / "tokenizer.json").read_text("utf-8"))
    (held["model"] if part == "vocab" else held)[part] = wrong
    (tmp_path / "tokenizer.json").write_text(json.dumps(held), "utf-8")
    with pytest.raises(TokenizerError, match=r"^[^\n]+: cannot read its tokenizer: [^\n]+$"):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize("pattern", ["((", "(a+)+$", "a?" * 40 + "a" * 40, r"\p{Lu}+"])
def test_only_published_patterns_are_taken(tmp_path, pattern):
    """The second and third would take years for a prompt of forty letters."""
    held = json.loads((save(tmp_path) / "tokenizer.json").read_text("utf-8"))
    split = {"type": "Split", "pattern": {"Regex": pattern}}
    byte_level = {"type": "ByteLevel", "use_regex": False}
    held["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, byte_level]}
    (tmp_path / "tokenizer.json").write_text(json.dumps(held), "utf-8")
    with pytest.raises(TokenizerError, match=r"^not a tokenizer as Qwen's: its pattern is [^\n]+$"):
        Tokenizer.load(tmp_path)
