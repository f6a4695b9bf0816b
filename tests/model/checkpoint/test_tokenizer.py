"""Tokenizer files to bytes: byte-level BPE in Qwen2's format."""

import json
import shutil

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer.model.checkpoint.tokenizer import Tokenizer
from streamer.model.checkpoint.weights import ModelError
from streamer.model.thinker import EMBEDDED

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
