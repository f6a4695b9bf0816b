"""The rules on Qwen's real vocabulary, which the `dashscope` package carries (test-only)."""

from __future__ import annotations

import base64
import importlib.util
from pathlib import Path

import numpy as np
import pytest

from streamer.core.rules.constrain import constrain
from streamer.core.rules.settings import Rules
from streamer.core.text.vocabulary import Vocabulary

SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


def token_bytes() -> list[bytes]:
    found = importlib.util.find_spec("dashscope")
    if found is None or found.origin is None:
        pytest.skip("dashscope is not installed")
    lines = (Path(found.origin).parent / "resources" / "qwen.tiktoken").read_text().splitlines()
    ranks = {int(rank): base64.b64decode(data) for data, rank in map(str.split, lines)}
    return [*(ranks[i] for i in range(len(ranks))), *(name.encode() for name in SPECIALS)]


def build(size: int) -> Vocabulary:
    data = token_bytes()
    first = len(data) - len(SPECIALS)
    return Vocabulary.build(data, range(first, len(data)), [first, first + 2], size)


@pytest.fixture(scope="module")
def qwen() -> Vocabulary:
    return build(151_936)


def test_both_published_sizes_are_one_tokenizer(qwen: Vocabulary) -> None:
    larger = build(152_064)
    assert larger.fingerprint == qwen.fingerprint
    assert larger.never[151_646:].all()
    assert larger.num_ids == 152_064
    assert np.array_equal(larger.never[:151_936], qwen.never)


def test_roles_and_fragments(qwen: Vocabulary) -> None:
    texts = qwen.texts
    start = {texts[i] for i in constrain(qwen, Rules(), []).never}
    roles = ("Human", "user", "User", "assistant", "Assistant", "system", "System")
    assert {*roles, " Human", " user"} <= start
    hum = texts.index("Hum")
    assert texts.index("an") in constrain(qwen, Rules(), [hum]).never
    spelled = {t for t in texts if t and len(t) == 1}
    for lead in (b"\xe4", b"\xe9\xbe", b"\xf0\xa0"):
        for i, piece in qwen.fragments.allowed(lead):
            assert piece[:1] not in spelled, (i, piece)
    free = [qwen.bytes_of([i]) for i in np.flatnonzero(qwen.invalid & ~qwen.never)]
    assert not any(0x80 <= data[0] < 0xC0 for data in free), "nothing is open"


def test_a_rare_character_can_still_be_said(qwen: Vocabulary) -> None:
    """A character without an id: its bytes may follow each other, and nothing else may."""
    known = set(qwen.texts)
    rare = [c for c in map(chr, range(0x4E00, 0xA000)) if c not in known]
    assert len(rare) > 100
    single = {qwen.bytes_of([i]): i for i in range(256)}
    ids = [single[bytes([b])] for b in rare[-1].encode()]
    assert not qwen.never[ids[0]]
    for n in (1, 2):
        constraint = constrain(qwen, Rules(), ids[:n])
        assert constraint.only is not None
        assert ids[n] in constraint.only
    assert qwen.text_of(ids) == rare[-1]
