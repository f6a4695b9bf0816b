"""The rules on Qwen's real vocabulary, which the `dashscope` package carries (test-only)."""

from __future__ import annotations

import base64
import importlib.util
import time
from pathlib import Path

import numpy as np
import pytest

from streamer.core.rules.constrain import constrain
from streamer.core.rules.settings import Rules
from streamer.core.rules.stop import Stop, stop
from streamer.core.text.characters import is_han
from streamer.core.text.vocabulary import Vocabulary

SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CYCLE = [38035, 15946, 3837, 78685]  # 色中，音: logged in fix report 3


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


def encode(vocabulary: Vocabulary, text: str) -> list[int]:
    """The longest id at each place: not BPE, but ids that spell the text."""
    known = vocabulary.cached(
        "test", lambda: {t: i for i, t in reversed(list(enumerate(vocabulary.texts))) if t}
    )
    ids = []
    while text:
        n = next(n for n in range(min(8, len(text)), 0, -1) if text[:n] in known)
        ids.append(known[text[:n]])
        text = text[n:]
    return ids


def test_both_published_sizes_are_one_tokenizer(qwen: Vocabulary) -> None:
    larger = build(152_064)
    assert larger.fingerprint == qwen.fingerprint
    assert larger.never[151_646:].all()
    assert larger.num_ids == 152_064
    assert np.array_equal(larger.never[:151_936], qwen.never)


def test_the_counts_of_broken_ids(qwen: Vocabulary) -> None:
    texts = [t or "" for t in qwen.texts]
    assert int(qwen.invalid.sum()) == 1448
    assert int((qwen.table.longest_han_run >= 2).sum()) == 183
    behind_end = [
        t for t in texts if any(c in "。！？" and t[i + 1 :].strip() for i, c in enumerate(t))
    ]
    assert len(behind_end) == 25
    assert {"。”", "。www"} <= set(behind_end)
    assert all(qwen.never[i] for i, t in enumerate(texts) if t in set(behind_end))
    mixed = [t for t in texts if any(map(is_han, t)) and any(c in "，、：；:;," for c in t)]
    assert sorted(mixed) == sorted(["，请", "，默认", "，并", "，则", "，在"])
    basic = [t for t in texts if t and all("\u4e00" <= c <= "\u9fff" for c in t)]
    assert len(basic) == 24_875
    assert sum(qwen.is_pure_han) == 25_378, "with the compatibility and extension blocks"


def test_the_logged_cycle_stops_before_its_eighth_id(qwen: Vocabulary) -> None:
    assert qwen.text_of(CYCLE) == "色中，音"
    loop = CYCLE * 3
    stops = [stop(qwen, Rules(), loop[:i], loop[i]) for i in range(8)]
    assert stops == [None] * 7 + [Stop("loop", keep=False)]


def test_the_other_rules_would_not_have_let_the_cycle_begin(qwen: Vocabulary) -> None:
    said = encode(qwen, "说话人语速较慢，音调平稳，音量适中，音")
    loop = [*said, *CYCLE]
    assert 3837 in constrain(qwen, Rules(), [*said, *CYCLE, 38035, 15946]).commas
    constraint = constrain(qwen, Rules(), [*loop, 38035])
    assert 15946 in constraint.ngram or 15946 in constraint.penalised


def test_words_that_double(qwen: Vocabulary) -> None:
    rules = Rules()
    for word in ("微微", "淡淡", "缓缓", "看看", "往往"):
        single = encode(qwen, word[0])
        assert single[0] not in constrain(qwen, rules, single).adjacency
    for character in ("音", "速", "调"):
        single = encode(qwen, character)
        assert single[0] in constrain(qwen, rules, single).adjacency


def test_roles_and_fragments(qwen: Vocabulary) -> None:
    texts = qwen.texts
    start = {texts[i] for i in constrain(qwen, Rules(), []).never}
    assert {
        "Human",
        " Human",
        "user",
        " user",
        "User",
        "assistant",
        "Assistant",
        "system",
        "System",
    } <= start
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


def test_plain_description_meets_no_ban(qwen: Vocabulary) -> None:
    text = "说话人用缓慢的语速讲述，嗓音低沉而略带沙哑，停顿较多，整体情绪显得十分平静。"
    ids = encode(qwen, text)
    for i, chosen in enumerate(ids):
        constraint = constrain(qwen, Rules(), ids[:i])
        for tier in (constraint.never, constraint.commas, constraint.adjacency, constraint.ngram):
            assert chosen not in tier, (text, qwen.texts[chosen])
        assert not qwen.never[chosen]


@pytest.mark.long
def test_build_and_step_are_fast(qwen: Vocabulary) -> None:
    started = time.thread_time()
    build(151_936)
    assert time.thread_time() - started < 1.5, "0.6 s of the CPU, with reading the file"
    ids = encode(qwen, "说话人用缓慢的语速讲述，嗓音低沉而略带沙哑，停顿较多") * 2
    constrain(qwen, Rules(), ids)
    started = time.thread_time()
    for _ in range(200):
        constrain(qwen, Rules(), ids)
    assert (time.thread_time() - started) / 200 < 200e-6
