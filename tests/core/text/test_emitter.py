"""Streamed == whole for every cut, and no half character is ever shown."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamer.core.text.vocabulary import Emitter, Vocabulary

TOKENS = [
    "慢",
    "，",
    "a",
    "\ufffd",
    "😀",
    b"\xe9\xbe",
    b"\x98",
    b"\xe9",
    b"\xbe",
    b"\xf0\x9f",
    b"\x98\x80",
    b"\xff",
    "。",
]
DATA = [t if isinstance(t, bytes) else t.encode() for t in TOKENS]
VOCABULARY = Vocabulary.build([*DATA, b"<eos>"], [len(DATA)], [len(DATA)])


@given(st.lists(st.lists(st.integers(0, len(DATA)), max_size=5), max_size=12))
def test_streamed_equals_whole_for_every_cut(pushes: list[list[int]]) -> None:
    emitter = Emitter(VOCABULARY)
    deltas = [emitter.push(ids) for ids in pushes] + [emitter.finish()]
    whole = [i for ids in pushes for i in ids]
    assert "".join(deltas) == VOCABULARY.text_of(whole)
    assert "\ufffd" not in "".join(deltas)
    one_by_one = Emitter(VOCABULARY)
    assert "".join(one_by_one.push([i]) for i in whole) + one_by_one.finish() == "".join(deltas)


def test_an_open_character_is_held_back() -> None:
    emitter = Emitter(VOCABULARY)
    assert [emitter.push([i]) for i in (0, 7, 8, 6, 1)] == ["慢", "", "", "龘", "，"]
    assert emitter.push([9]) == ""
    assert emitter.push([len(DATA)]) == "", "EOS has no text and closes nothing"
    assert emitter.push([10]) == "😀"


def test_finish_drops_half_a_character_and_starts_afresh() -> None:
    emitter = Emitter(VOCABULARY)
    assert emitter.push([0, 5]) == "慢"
    assert emitter.finish() == ""
    assert emitter.push([6, 0]) == "慢"
