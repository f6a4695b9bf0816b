"""When an answer ends: tested at every id, loops before they are committed."""

from __future__ import annotations

import pytest
from drawn import rules_of_any_kind, vocabularies
from hypothesis import given
from hypothesis import strategies as st

from streamer.core.rules.settings import STOP_REASONS, Rules, Stop, first_stop, loop_suspected, stop
from streamer.core.text.vocabulary import Vocabulary

TOKENS = ["音", "色", "中", "，", "慢", "。", "？", "色。", "a", "b", "c", "d"]
EOS, ALSO_EOS = len(TOKENS), len(TOKENS) + 1
DATA = [*(t.encode() for t in TOKENS), b"<im_end>", b"<endoftext>", b"\xe3\x80", b"\x82"]
VOCABULARY = Vocabulary.build(DATA, [EOS, ALSO_EOS], [EOS, ALSO_EOS])
RULES = Rules()
WORDS = [0, 1, 2, 4, 8, 9, 10, 11, 1, 0, 4, 2, 9, 8, 11]  # 15 ids without a period


def test_sixteenth_id_may_end_the_sentence() -> None:
    assert stop(VOCABULARY, RULES, WORDS[:14], 5) is None
    for end in (5, 6, 7):
        assert stop(VOCABULARY, RULES, WORDS, end) == Stop("sentence", keep=True)
    assert stop(VOCABULARY, Rules(min_new_tokens=0), [], 5) == Stop("sentence", keep=True)
    assert stop(VOCABULARY, RULES, WORDS, 3) is None


@pytest.mark.parametrize("eos", [EOS, ALSO_EOS])
@pytest.mark.parametrize("rules", [RULES, Rules.off()])
def test_eos_is_not_kept(eos: int, rules: Rules) -> None:
    for n in (0, 3, 15, 95):
        assert stop(VOCABULARY, rules, (WORDS * 7)[:n], eos) == Stop("eos", keep=False)


def test_max_new_tokens_keeps_its_last_id() -> None:
    rules = Rules(max_new_tokens=4)
    assert stop(VOCABULARY, rules, WORDS[:2], 4) is None
    assert stop(VOCABULARY, rules, WORDS[:3], 4) == Stop("max_tokens", keep=True)
    assert {"sentence", "eos", "loop", "max_tokens"} < set(STOP_REASONS)


@given(st.lists(st.sampled_from([0, 1, 3, 8]), min_size=1, max_size=40))
def test_loop_equals_a_test_by_hand(ids: list[int]) -> None:
    wanted = False
    for p in range(1, 9):
        tail = ids[-max(8, 2 * p) :]
        wanted |= len(tail) == max(8, 2 * p) and all(
            tail[i] == tail[i - p] for i in range(p, len(tail))
        )
    assert (stop(VOCABULARY, RULES, ids[:-1], ids[-1]) == Stop("loop", keep=False)) == wanted
    if wanted:
        assert loop_suspected(ids), "suspicion never comes after the stop"


@given(st.data())
def test_the_first_stop_is_where_stop_says_so_first(data: st.DataObject) -> None:
    vocabulary, rules = data.draw(vocabularies()), data.draw(rules_of_any_kind)
    few, any_id = (
        st.integers(0, min(5, vocabulary.num_ids - 1)),
        st.integers(0, vocabulary.num_ids - 1),
    )
    answer = data.draw(st.lists(few | any_id, max_size=30))
    begin = data.draw(st.integers(0, len(answer)))
    found = (
        (at, stop(vocabulary, rules, answer[:at], answer[at])) for at in range(begin, len(answer))
    )
    assert first_stop(vocabulary, rules, answer, begin) == next(
        (one for one in found if one[1]), None
    )
