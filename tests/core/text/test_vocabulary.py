"""The vocabulary's never-mask, fingerprint and text."""

from hypothesis import given
from hypothesis import strategies as st

from streamer.core.text.vocabulary import Emitter, Vocabulary


def toy(*tokens, special=("<eos>",), size=None):
    data = [t if isinstance(t, bytes) else t.encode() for t in (*tokens, *special)]
    marks = range(len(tokens), len(data))
    return Vocabulary(data, marks, [marks[0]], size)


def test_never_emitted_ids():
    banned = [
        *("慢\n", "\r", "\x1b", "\u2028", "。”", "。。", "...", ".com", "\ufffd", "! "),
        "<|im_start|>",
    ]
    allowed = ["慢", "。", "慢。", "，", "”。", "，请", " ", "(", "3"]
    vocabulary = toy(*banned[:-1], *allowed, special=("<eos>", banned[-1]), size=40)
    assert all(vocabulary.never[: len(banned) - 1])
    assert not any(vocabulary.never[len(banned) - 1 : len(banned) - 1 + len(allowed)])
    eos = min(vocabulary.eos)
    assert not vocabulary.never[eos]
    assert vocabulary.never[eos + 1]
    assert all(vocabulary.never[eos + 2 :]), "padding is never emitted"
    assert not any(vocabulary.texts[eos:])


def test_text_of_shows_no_special_and_no_replacement_character():
    vocabulary = toy("慢", b"\xe9\xbe", b"\x98", "\ufffd", b"\xff")
    eos = min(vocabulary.eos)
    assert vocabulary.text_of([0, eos, 1, 2, 3, 4, 0, 1]) == "慢龘慢"
    assert vocabulary.bytes_of([0, eos, 1]) == "慢".encode() + b"\xe9\xbe"
    assert vocabulary.texts[:2] == ("慢", "")
    assert vocabulary.never[[1, 2, 4]].all(), "clean rules choose whole characters only"


def test_fingerprint_is_of_content_and_not_of_padding():
    plain = toy("慢", "音")
    assert toy("慢", "音", size=64).fingerprint == plain.fingerprint
    same = Vocabulary(["慢".encode(), "音".encode(), b"<eos>", b"", b""], [2], [2])
    assert same.fingerprint == plain.fingerprint
    others = [toy("慢", "色"), toy("慢音", ""), toy("音", "慢"), toy("慢", special=("音", "<eos>"))]
    assert len({v.fingerprint for v in [plain, *others]}) == 5
    tokens = [b"a", b"b", b"c"]
    assert Vocabulary(tokens, [2], [1]).fingerprint != Vocabulary(tokens, [2], [2]).fingerprint


TOKENS = [
    *("慢", "，", "a", "\ufffd", "😀", b"\xe9\xbe", b"\x98", b"\xe9", b"\xbe"),
    *(b"\xf0\x9f", b"\x98\x80", b"\xff", "。"),
]
DATA = [t if isinstance(t, bytes) else t.encode() for t in TOKENS]
VOCABULARY = Vocabulary([*DATA, b"<eos>"], [len(DATA)], [len(DATA)])


@given(st.lists(st.lists(st.integers(0, len(DATA)), max_size=5), max_size=12))
def test_streamed_equals_whole_for_every_cut(pushes):
    emitter = Emitter(VOCABULARY)
    deltas = [emitter.push(ids) for ids in pushes]
    whole = [i for ids in pushes for i in ids]
    assert "".join(deltas) == VOCABULARY.text_of(whole)
    assert "\ufffd" not in "".join(deltas)
    one_by_one = Emitter(VOCABULARY)
    assert "".join(one_by_one.push([i]) for i in whole) == "".join(deltas)
