"""The noise of sampling, quantised level weights, and each way an answer stops."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from streamer.core.rules import settings
from streamer.core.text.vocabulary import Vocabulary

IDS = np.arange(152_064)


def uniform(seed, index, ids):
    return np.exp(-np.exp(-settings.gumbel(seed, index, ids)))


@pytest.mark.parametrize(("seed", "index"), [(0, 0), (12345, 95), (2**64 - 1, 7)])
def test_noise_over_ids_is_gumbel(seed, index):
    """And an id's own does not depend on the others."""
    noise = settings.gumbel(seed, index, IDS)
    assert stats.kstest(noise, stats.gumbel_r.cdf).pvalue > 1e-3
    assert np.array_equal(settings.gumbel(seed, index, IDS[::-7]), noise[::-7])


def test_neighbouring_seeds_places_and_ids_are_independent():
    base = uniform(5, 5, IDS)
    near = [uniform(seed, i, IDS) for seed, i in ((6, 5), (5, 6), (4, 6), (5 + 2**32, 5))]
    for other in (*near, np.roll(base, 1)):
        assert abs(np.corrcoef(base, other)[0, 1]) < 5 / np.sqrt(len(IDS))
        joint = np.histogram2d(base, other, bins=16, range=[[0, 1], [0, 1]])[0]
        assert stats.chisquare(joint.ravel()).pvalue > 1e-3


def test_the_noise_is_part_of_the_wire_format():
    """Other numbers would break exact mode between versions."""
    assert settings.gumbel(0, 0, np.array([0, 1, 3837])) == pytest.approx(
        [-0.03276267412932252, 6.527609163978889, -0.811711363422554], rel=1e-12
    )


LOGS = st.dictionaries(
    st.sampled_from(["rate", "pitch", "pauses"]),
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=6),
)


@given(LOGS)
def test_quantised_weights_are_within_half_a_unit(logs):
    found = settings.quantised(logs)
    for name, weights in found.items():
        assert max(weights) == 0
        best = max(logs[name])
        for log, weight in zip(logs[name], weights, strict=True):
            wanted = max(settings.FLOOR, settings.UNITS_PER_NAT * (log - best))
            assert abs(weight - wanted) <= 0.5 + 1e-9
    for name in logs.keys() - found.keys():
        assert max(logs[name]) - min(logs[name]) <= 0.5 / settings.UNITS_PER_NAT + 1e-9


TOKENS = ["音", "色", "中", "，", "慢", "。", "？", "色。", "a", "b", "c", "d"]
EOS, ALSO_EOS = len(TOKENS), len(TOKENS) + 1
DATA = [*(t.encode() for t in TOKENS), b"<im_end>", b"<endoftext>", b"\xe3\x80", b"\x82"]
VOCABULARY = Vocabulary(DATA, [EOS, ALSO_EOS], [EOS, ALSO_EOS])
RULES = settings.Rules()
WORDS = [0, 1, 2, 4, 8, 9, 10, 11, 1, 0, 4, 2, 9, 8, 11]  # 15 ids without a period


ENDS = [
    (RULES, WORDS[:14], 5, None),
    *((RULES, WORDS, end, "sentence") for end in (5, 6, 7)),  # the sixteenth id
    (settings.Rules(min_new_tokens=0), [], 5, "sentence"),
    (RULES, WORDS, 3, None),
    *(
        (rules, (WORDS * 7)[:n], eos, "eos")
        for eos in (EOS, ALSO_EOS)
        for rules in (RULES, settings.Rules.off())
        for n in (0, 3, 15, 95)
    ),
    (settings.Rules(max_new_tokens=4), WORDS[:2], 4, None),
    (settings.Rules(max_new_tokens=4), WORDS[:3], 4, "max_tokens"),
]


def test_each_way_an_answer_ends():
    for rules, answer, token, reason in ENDS:
        assert settings.stop(VOCABULARY, rules, answer, token) == reason, (rules, answer, token)


@given(st.lists(st.sampled_from([0, 1, 3, 8]), min_size=1, max_size=40))
def test_loop_equals_a_test_by_hand(ids):
    wanted = False
    for p in range(1, 9):
        tail = ids[-max(8, 2 * p) :]
        wanted |= len(tail) == max(8, 2 * p) and all(
            tail[i] == tail[i - p] for i in range(p, len(tail))
        )
    assert (settings.stop(VOCABULARY, RULES, ids[:-1], ids[-1]) == "loop") == wanted
    if wanted:
        assert settings.loop_suspected(ids), "suspicion never comes after the stop"
