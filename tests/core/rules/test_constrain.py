"""Every rule of the table: an example from the fix reports."""

import re

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamer.core.rules.settings import Rules, constrain
from streamer.core.text.vocabulary import COMMA_LIKE, PUNCTUATION, SENTENCE_ENDS, Vocabulary, is_han

WORDS = [
    *("慢", "慢慢", "音", "音色", "色", "语速", "中", "，", "、", "，请", "、、", "音，", "。"),
    *("！", "色。", "，色。", "“"),
    *("哈哈哈", "哈", "a", "Human", " human", "Hum", "an", "hu", "USER", "us", "er", " ", "##"),
    *(".", "9", "速", "。。", "a，"),
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
    return constrain(VOCABULARY, Rules.off(**({"clean": True} | rules)), ids(*words))


@pytest.mark.parametrize(
    ("said", "banned"),
    [
        ([], {"Human", " human", "USER"}),
        ([" "], {"Human", " human", "USER"}),
        (["##", " "], {"Human", " human", "USER"}),
        (["Hum"], {"an"}),
        ([" ", "Hum"], {"an"}),
        (["us"], {"er"}),
        (["音"], set()),
        (["音", " "], set()),
        (["a", "Hum"], set()),
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


answers = st.lists(st.integers(0, len(TOKENS) - 2), max_size=30)


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
    last = re.search(f"({WORD}) ?$", text)
    if last:
        space = "" if text.endswith(" ") else " "
        if re.match(f"{space}{last[1]}(?!{WORD})", piece, re.IGNORECASE):
            broken.add("adjacency")
    return broken


few_rules = [Rules(min_new_tokens=0), Rules(min_new_tokens=0, comma_gap=6)]
bounds = {"comma_gap": (1, 6), "end_gap": (1, 10), "min_new_tokens": (0, 20), "ngram": (0, 4)}
numbers = {name: st.integers(*least_most) for name, least_most in bounds.items()}
rule_settings = st.sampled_from(few_rules) | st.builds(Rules, **numbers, clean=st.booleans())


@example(ids("慢", "音", "色", "中"), few_rules[1])  # as much content as a word, in no word
@example(ids("hu"), few_rules[1])
@given(answers, rule_settings)
def test_id_sets_equal_a_count_by_hand(answer, rules):
    constraint = constrain(VOCABULARY, rules, answer)
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
