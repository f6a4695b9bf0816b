"""Every rule of the table: an example from the fix reports; the noise of sampling, quantised level
weights, each way an answer stops; the vocabulary's never-mask, fingerprint and text.
"""

import math
import re

import msgspec
import numpy as np
import pytest
from fakes import no_rules
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats

from streamer.core.rules import settings
from streamer.core.rules.settings import Rules, constrain
from streamer.core.text.vocabulary import (
    COMMA_LIKE,
    PUNCTUATION,
    SENTENCE_ENDS,
    Emitter,
    Vocabulary,
    is_han,
)

WORDS = [
    *("慢", "慢慢", "音", "音色", "色", "语速", "中", "，", "、", "，请", "、、", "音，", "。"),
    *("！", "色。", "，色。", "“"),
    *("哈哈哈", "哈", "a", "Human", " human", "Hum", "an", "hu", "USER", "us", "er", " ", "##"),
    *(".", "9", "速", "。。", "a，", "\n"),
]
TOKENS = [
    *(w.encode() for w in WORDS),
    *(b"\xe9\xbe", b"\x98", b"\xe9", b"\xbe", "龙".encode(), b"<eos>"),
]
VOCABULARY = Vocabulary(TOKENS, [len(TOKENS) - 1], [len(TOKENS) - 1], len(TOKENS) + 3)
EOS = len(TOKENS) - 1
ID = {text: i for i, text in enumerate(WORDS)}


def ids(*words):
    return [ID[w] for w in words]


def after(*words, **rules):
    return constrain(VOCABULARY, no_rules(**({"clean": True} | rules)), ids(*words))


@pytest.mark.parametrize(
    ("said", "banned"),
    [
        *((said, {"Human", " human", "USER"}) for said in ([], [" "], ["##", " "], ["音", "\n"])),
        *((["Hum"], {"an"}), ([" ", "Hum"], {"an"}), (["us"], {"er"})),
        *((said, set()) for said in (["音"], ["音", " "], ["a", "Hum"])),
    ],
)
def test_role_words_may_not_start_the_line(said, banned):
    assert {WORDS[i] for i in after(*said).never if i < len(ID)} == banned


def test_loop_local_gets_the_last_four_ids():
    assert after("音", "色", "中", "慢", "，").recent == ids("色", "中", "慢", "，")
    assert after("音").recent == ids("音")
    assert after("a", "，", "hu", "，").recent == ids("a", "，", "hu", "，")
    assert after("a", "，", "hu").recent == ids("a", "hu"), "a comma may follow each word"


@pytest.mark.parametrize(
    "wrong",
    [
        *({"repetition_penalty": value} for value in (1e-300, 0.0, -1.0, float("nan"))),
        *({"ngram": -1}, {"max_new_tokens": 0}),
    ],
)
def test_rules_from_elsewhere_that_mean_nothing_are_refused(wrong):
    with pytest.raises(msgspec.ValidationError, match=next(iter(wrong))):
        msgspec.convert(wrong, Rules)


def test_rules_that_no_option_changes():
    defaults = Rules(1.22, True, 3, 4, 8, 16, 96, True, True, True, form="all", language="")
    assert Rules() == Rules().saying("all") == defaults
    assert Rules().saying("rate") == Rules(form="rate", min_new_tokens=0), "it may be short"


def test_chance_that_cannot_be_is_refused():
    for chance in [(-1.0,), (1e-7,), (1e7,), (1, 0.0), (1, 1.1), (1, 1, -1), (1, 1, 2**64)]:
        with pytest.raises(ValueError, match=("temperature", "top_p", "seed")[len(chance) - 1]):
            settings.Sampling(*chance)
    for temperature in (0.0, 1e-6, 1e6):
        settings.Sampling(temperature, 1.0, 2**64 - 1)
    assert settings.Sampling() == settings.Sampling(0.0, 1.0, 0)


few_ids = st.lists(st.sampled_from(ids("音", "色", "中", "，")), max_size=12)  # which come again
answers = st.lists(st.integers(0, len(TOKENS) - 2), max_size=30) | few_ids


WORD = "[^\\W\\d_\u4e00-\u9fff]+"  # of letters that are not Han


def content(text):
    """A word of letters counts as four characters."""
    words = re.findall(WORD, text)
    return 4 * len(words) + sum(c.isalnum() for c in text) - len("".join(words))


def last_clause(text, marks):
    return re.split(f"[{re.escape(''.join(marks))}]", text)[-1]


def breaks_by_hand(rules, text, piece, index):
    """Another wording of the rules: on whole strings and slices."""
    broken = set()
    for i, c in enumerate(piece):
        clause = last_clause(text + piece[:i], PUNCTUATION)
        if c in COMMA_LIKE and content(clause) < rules.comma_gap:
            broken.add("commas")
    ends = [i for i, c in enumerate(piece) if c in SENTENCE_ENDS]
    if ends and index < rules.min_new_tokens - 1:
        broken.add("early")
    elif ends and content(last_clause(text + piece[: ends[0]], SENTENCE_ENDS)) < rules.end_gap:
        broken.add("lowered")
    whole, start = text + piece, len(text)
    for run in re.finditer(r"(.)\1+", whole, re.DOTALL):
        if not is_han(run[1]) or run.end() <= start:
            continue
        across = run.start() < start
        if len(run[0]) > 2 or (across and run[1] not in VOCABULARY.doubles):
            broken.add("adjacency")
    if last := re.search(rf"({WORD}) ?\Z", text):
        space = "" if text.endswith(" ") else " "
        if re.match(f"{space}{last[1]}(?!{WORD})", piece, re.IGNORECASE):
            broken.add("adjacency")
    return broken


few_rules = [Rules(min_new_tokens=0), Rules(min_new_tokens=0, comma_gap=6)]
bounds = {"comma_gap": (1, 6), "end_gap": (1, 10), "min_new_tokens": (0, 20), "ngram": (0, 4)}
numbers = {name: st.integers(*least_most) for name, least_most in bounds.items()}
rule_settings = st.sampled_from(few_rules) | st.builds(Rules, **numbers, clean=st.booleans())


@example(ids("慢", "音", "色", "中", "音"), few_rules[1])  # as much content as the next, no word
@example(ids("慢慢"), few_rules[0])
@example(ids("音", "a"), few_rules[1])
@example(ids("hu", " "), few_rules[0])
@example(ids("音", "色", "中"), Rules(min_new_tokens=5))
@given(answers, rule_settings)
def test_id_sets_equal_a_count_by_hand(answer, rules):
    constraint = constrain(VOCABULARY, rules, answer)
    assert {part.dtype for part in constraint[:-1]} == {np.dtype(np.int64)}
    text = VOCABULARY.text_of(answer)
    for i in range(len(ID)):
        if rules.clean and VOCABULARY.never[i]:
            continue
        wanted = breaks_by_hand(rules, text, VOCABULARY.texts[i], len(answer))
        assert (i in constraint.commas) == ("commas" in wanted)
        assert (i in constraint.adjacency) == ("adjacency" in wanted)
        assert (i in constraint.lowered) == ("lowered" in wanted)
        if "early" in wanted:
            assert i in constraint.never
    assert (EOS in constraint.never) == (len(answer) < rules.min_new_tokens)
    texts = [VOCABULARY.texts[i] for i in answer]
    history = [i for i, t in zip(answer, texts, strict=True) if t and any(c.isalnum() for c in t)]
    n = rules.ngram
    grams = {tuple(history[i : i + n]) for i in range(len(history) - n + 1)} if n else set()
    tail = tuple(history[len(history) - n + 1 :]) if n and len(history) >= n - 1 else None
    assert set(constraint.ngram.tolist()) == {gram[-1] for gram in grams if gram[:-1] == tail}
    pure = {i for i in answer if (t := VOCABULARY.texts[i]) and all(map(is_han, t))}
    assert set(constraint.penalised.tolist()) == pure


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


LISTS = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=6)
LOGS = st.dictionaries(st.sampled_from(["rate", "pitch", "pauses"]), LISTS)


def test_a_level_without_a_chance_has_the_least_weight():
    assert settings.quantised({"rate": [-math.inf, 2.0], "pitch": [1, 1]}) == {"rate": (-1023, 0)}
    with pytest.raises(ValueError, match="NaN"):
        settings.quantised({"rate": [0.0, math.nan]})


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


PIECES = ["音", "色", "中", "，", "慢", "。", "？", "色。", "a", "b", "c", "d"]
STOP, ALSO_STOP = len(PIECES), len(PIECES) + 1
DATA = [*(t.encode() for t in PIECES), b"<im_end>", b"<endoftext>", b"\xe3\x80", b"\x82"]
SMALL = Vocabulary(DATA, [STOP, ALSO_STOP], [STOP, ALSO_STOP])
RULES = Rules()
NO_PERIOD = [0, 1, 2, 4, 8, 9, 10, 11, 1, 0, 4, 2, 9, 8, 11]  # 15 ids without a period


ENDS = [
    (RULES, NO_PERIOD[:14], 5, None),
    *((RULES, NO_PERIOD, end, "sentence") for end in (5, 6, 7)),  # the sixteenth id
    (Rules(min_new_tokens=0), [], 5, "sentence"),
    (RULES, NO_PERIOD, 3, None),
    *(
        (rules, (NO_PERIOD * 7)[:n], eos, "eos")
        for eos in (STOP, ALSO_STOP)
        for rules in (RULES, no_rules())
        for n in (0, 3, 15, 95)
    ),
    (Rules(max_new_tokens=4), NO_PERIOD[:2], 4, None),
    (Rules(max_new_tokens=4), NO_PERIOD[:3], 4, "max_tokens"),
    *((Rules(loop_global=is_on), [1] * 7, 1, "loop" if is_on else None) for is_on in (0, 1)),
]


def test_each_way_an_answer_ends():
    for rules, answer, token, reason in ENDS:
        assert settings.stop(SMALL, rules, answer, token) == reason, (rules, answer, token)
        found = settings.first_stop(SMALL, rules, [*answer, token], len(answer))
        assert found == (reason and (len(answer), reason))
    found = {reason for *_, reason in ENDS if reason}
    assert {*settings.STOP_REASONS} == found | {"no_speech", "cancelled"}
    assert {*settings.NOT_SHOWN} == {"eos", "loop"}


some_ids = st.lists(st.sampled_from([0, 1, 3, 8]), min_size=1, max_size=9)


def repeats(ids, p, width):
    tail = ids[-width:]
    return len(tail) == width and all(tail[i] == tail[i - p] for i in range(p, width))


@given(some_ids, some_ids, st.integers(1, 20))
def test_loop_equals_a_test_by_hand(begun, again, num):
    ids = [*begun, *(again * 20)[:num]]
    is_over = any(repeats(ids, p, max(8, 2 * p)) for p in range(1, 9))
    assert (settings.stop(SMALL, RULES, ids[:-1], ids[-1]) == "loop") == is_over
    is_suspected = any(repeats(ids, p, p + (3 if p < 8 else 4)) for p in range(1, 9))
    assert is_over <= settings.loop_suspected(ids) == is_suspected, "it never comes after the stop"


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


BROKEN = [
    *("慢", "，", "a", "\ufffd", "😀", b"\xe9\xbe", b"\x98", b"\xe9", b"\xbe"),
    *(b"\xf0\x9f", b"\x98\x80", b"\xff", "。"),
]
ENCODED = [t if isinstance(t, bytes) else t.encode() for t in BROKEN]
OF_BYTES = Vocabulary([*ENCODED, b"<eos>"], [len(ENCODED)], [len(ENCODED)])


@given(st.lists(st.lists(st.integers(0, len(ENCODED)), max_size=5), max_size=12))
def test_streamed_equals_whole_for_every_cut(pushes):
    emitter = Emitter(OF_BYTES)
    deltas = [emitter.push(ids) for ids in pushes]
    whole = [i for ids in pushes for i in ids]
    assert "".join(deltas) == OF_BYTES.text_of(whole)
    assert "\ufffd" not in "".join(deltas)
    one_by_one = Emitter(OF_BYTES)
    assert "".join(one_by_one.push([i]) for i in whole) == "".join(deltas)
