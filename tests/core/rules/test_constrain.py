"""Every rule of the table: an example from the fix reports."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rule_words import EOS, ID, MORE, TOKENS, VOCABULARY, WORDS

from streamer.core.rules.constrain import Constraint, breaks, constrain
from streamer.core.rules.settings import Rules
from streamer.core.text.characters import COMMA_LIKE, PUNCTUATION, SENTENCE_ENDS, is_han
from streamer.core.text.vocabulary import Vocabulary


def ids(*words: str) -> list[int]:
    return [ID[w] for w in words]


def after(*words: str, **rules: object) -> Constraint:
    return constrain(VOCABULARY, Rules.off(**({"clean": True} | rules)), ids(*words))


def words_of(array: object) -> set[str]:
    return {(WORDS + MORE)[i] for i in array if i < len(ID)}  # type: ignore[attr-defined]


def test_repetition_penalty_acts_on_pure_han_only_within_its_window() -> None:
    assert words_of(after("音色", "，", "a", "色。", "慢", repetition_penalty=1.22).penalised) == {
        "音色",
        "慢",
    }
    far = after("音色", *["，"] * 128, repetition_penalty=1.22)
    assert not len(far.penalised)
    assert words_of(after("音色", *["，"] * 127, repetition_penalty=1.22).penalised) == {"音色"}


def test_adjacency_bans_the_same_character_across_ids_but_not_words() -> None:
    assert {"音", "音色", "音，"} <= words_of(after("音", adjacency=True).adjacency)
    assert "慢" not in words_of(after("慢", adjacency=True).adjacency), "慢慢 is a word"
    assert "慢慢" in words_of(after("慢", adjacency=True).adjacency), "a run of three over both ids"
    assert "慢" in words_of(after("慢慢", adjacency=True).adjacency)
    assert "慢" in words_of(after("慢", "慢", adjacency=True).adjacency)
    assert "色" in words_of(after("音色", adjacency=True).adjacency)
    assert "音" not in words_of(after("音", "，", adjacency=True).adjacency)
    assert "哈哈哈" in words_of(after(adjacency=True).adjacency), "a run of three inside one id"
    assert "a" not in words_of(after("a", adjacency=True).adjacency), "Han only"


def test_ngram_ban_looks_through_punctuation() -> None:
    assert words_of(after("音色", "中", "慢", "，", "音色", "中", ngram=3).ngram) == {"慢"}
    assert words_of(after("音色", "，", "中", "慢", "音色", "中", ngram=3).ngram) == {"慢"}
    assert words_of(after("音色", "中", "音色", ngram=2).ngram) == {"中"}
    assert words_of(after("音色", "中", ngram=1).ngram) == {"音色", "中"}
    assert not len(after("音色", "中", "慢", "音色", "色", ngram=3).ngram)


def test_comma_needs_four_content_characters() -> None:
    assert {"，", "、", "，请", "音，"} <= words_of(after("音色", comma_gap=4).commas)
    assert "音，" not in words_of(after("音色", "中", comma_gap=4).commas), (
        "three before it and one inside"
    )
    assert words_of(after("音色", "语速", comma_gap=4).commas) == {"、、"}
    assert "，" in words_of(after("音色", "语速", "，", "音色", comma_gap=4).commas)
    assert "，" in words_of(after(comma_gap=4).commas), "not at the start"


def test_a_word_of_letters_is_said_once_and_a_comma_may_follow_it() -> None:
    """A word counts as four characters, whatever its length and its ids; it is no Han character."""
    assert "，" not in words_of(after("a", comma_gap=4).commas)
    assert "，" in words_of(after("9", comma_gap=4).commas)
    assert "、、" in words_of(after("a", comma_gap=4).commas)
    assert "." in words_of(after("hu", "us", "er", end_gap=8, end_bias=8.0).lowered)
    assert not len(after("hu", " human", end_gap=8, end_bias=8.0).lowered)
    assert words_of(after("Hum", "an", adjacency=True).adjacency) == {"哈哈哈", " human"}
    assert words_of(after("Human", " ", adjacency=True).adjacency) == {"哈哈哈", "Human"}
    assert words_of(after("hu", adjacency=True).adjacency) == {"哈哈哈"}, "human is another word"
    assert words_of(after("hu", "9", adjacency=True).adjacency) == {"哈哈哈"}


def test_sentence_end_is_lowered_before_eight_content_characters() -> None:
    seven, eight = ("音色", "，", "语速", "音色", "中"), ("音色", "，", "语速", "音色", "语速")
    literal = {"end_gap": 8, "end_bias": 8.0}
    assert {"。", "！", "."} <= words_of(after(*seven, **literal).lowered)
    assert "色。" not in words_of(after(*seven, **literal).lowered)
    assert not len(after(*eight, **literal).lowered)
    since_any = literal | {"end_since": "punctuation"}
    assert {"。", "色。"} <= words_of(after(*eight, **since_any).lowered)
    assert words_of(after(*eight, "音色", **since_any).lowered) == {"，色。"}, (
        "its own comma starts the count again"
    )
    assert after(*seven, **literal).bias == 8.0


def test_min_new_tokens_lets_the_sixteenth_id_end_the_sentence_and_eos_follow() -> None:
    fourteen = ["音"] * 14
    assert {"。", "！", "色。", "."} <= words_of(after(*fourteen, min_new_tokens=16).never)
    assert EOS in after(*fourteen, min_new_tokens=16).never
    assert words_of(after(*fourteen, "音", min_new_tokens=16).never) == set()
    assert EOS in after(*fourteen, "音", min_new_tokens=16).never
    assert EOS not in after(*fourteen, "音", "音", min_new_tokens=16).never


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
def test_role_words_may_not_start_the_line(said: list[str], banned: set[str]) -> None:
    assert words_of(after(*said).never) == banned


def test_role_word_from_three_ids() -> None:
    tokens = [b"s", b"ys", b"tem", "音\n".encode(), b"<eos>"]
    vocabulary = Vocabulary.build(tokens, [4], [4])
    assert constrain(vocabulary, Rules.off(clean=True), [0, 1]).never.tolist() == [2]
    assert constrain(vocabulary, Rules.off(clean=True), [3, 0, 1]).never.tolist() == [2], (
        "at each line's start"
    )
    assert not len(constrain(vocabulary, Rules.off(), [0, 1]).never)


def test_loop_local_gets_the_last_four_ids() -> None:
    assert after("音", "色", "中", "慢", "，").recent == tuple(ids("色", "中", "慢", "，"))
    assert after("音").recent == tuple(ids("音"))
    assert after("音", loop_window=0).recent == ()
    assert after("a", "，", "hu", "，").recent == tuple(ids("a", "，", "hu", "，"))
    assert after("a", "，", "hu").recent == tuple(ids("a", "hu")), "a comma may follow each word"


def test_rules_off_bans_nothing() -> None:
    rules = Rules.off()
    assert rules.max_new_tokens == 96
    constraint = constrain(VOCABULARY, rules, ids("音", "音", "，", "，", "音", "音", "，", "Hum"))
    arrays = (constraint.never, constraint.commas, constraint.adjacency, constraint.ngram)
    assert not any(map(len, (*arrays, constraint.penalised, constraint.lowered)))
    assert constraint.only is None
    assert constrain(VOCABULARY, rules, [TOKENS.index(b"\xe9\xbe")]).only is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"ngram": -1},
        {"repetition_penalty": 0.0},
        {"end_since": "word"},
        {"loop_top": 0},
        {"comma_gap": -2},
    ],
)
def test_rules_that_mean_nothing_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Rules(**wrong)  # type: ignore[arg-type]


def test_a_character_of_fragments_obeys_the_rules_of_characters() -> None:
    first, last = TOKENS.index(b"\xe9\xbe"), TOKENS.index(b"\x98")
    rules = Rules()
    again = constrain(VOCABULARY, rules, [first, last, first])
    assert again.only is not None
    assert last in again.only
    assert again.adjacency.tolist() == [last], "龘龘 is no word"
    assert not len(constrain(VOCABULARY, rules, [first, last, 0, first]).adjacency)
    assert not len(constrain(VOCABULARY, rules, [first, last] * 3).ngram), "fragments are not words"


def test_a_sentence_end_may_be_spelled_by_fragments_alone() -> None:
    """Where no id spells 。 its bytes do, under the same rules."""
    tokens = [b"\xe3\x80", b"\x82", "慢".encode(), b"<eos>"]
    vocabulary = Vocabulary.build(tokens, [3], [3])
    early = constrain(vocabulary, Rules(), [2] * 5 + [0])
    assert (early.only is not None, early.never.tolist()) == (True, [1])
    late = constrain(vocabulary, Rules(), [2] * 15 + [0])
    assert (late.never.tolist(), late.lowered.tolist()) == ([], [])


def test_a_committed_role_word_does_not_ban_every_id():
    """Another drafter may commit "user" unverified: the rest of that role word is empty, and every
    id begins so."""
    from streamer.core.rules.constrain import ROLES, role_ids

    for role in ROLES:
        assert len(role_ids(VOCABULARY, role)) < VOCABULARY.num_ids / 2


@pytest.mark.parametrize("name", ["repetition_penalty", "loop_temperature"])
@pytest.mark.parametrize("value", [1e-300, 1e-45, 0.0, -1.0, float("nan")])
def test_what_logits_are_divided_by_is_a_number_in_float32_too(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name} must be at least 0.001, not {value}"):
        Rules(**{name: value})
    Rules(**{name: 1e-3})


answers = st.lists(st.integers(0, len(TOKENS) - 2), max_size=30)


WORD = "[^\\W\\d_\u4e00-\u9fff]+"  # of letters that are not Han


def content(text: str) -> int:
    """A word of letters counts as four characters."""
    words = re.findall(WORD, text)
    return 4 * len(words) + sum(c.isalnum() for c in text) - len("".join(words))


def last_clause(text: str, marks: frozenset[str]) -> str:
    return re.split(f"[{re.escape(''.join(marks))}]", text)[-1]


def breaks_by_hand(rules: Rules, text: str, piece: str, index: int) -> set[str]:
    """Another wording of the rules: on whole strings and slices."""
    broken = set()
    for i, c in enumerate(piece):
        clause = last_clause(text + piece[:i], PUNCTUATION)
        if c in COMMA_LIKE and content(clause) < rules.comma_gap:
            broken.add("commas")
    ends = [i for i, c in enumerate(piece) if c in SENTENCE_ENDS]
    if ends and index < rules.min_new_tokens - 1:
        broken.add("early")
    elif ends:
        marks = SENTENCE_ENDS if rules.end_since == "sentence" else PUNCTUATION
        if content(last_clause(text + piece[: ends[0]], marks)) < rules.end_gap:
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


rule_settings = st.builds(
    Rules,
    comma_gap=st.integers(1, 6),
    end_gap=st.integers(1, 10),
    end_since=st.sampled_from(["sentence", "punctuation"]),
    min_new_tokens=st.integers(0, 20),
    ngram=st.integers(0, 4),
    penalty_window=st.integers(0, 12),
    clean=st.booleans(),
)


@given(answers, rule_settings)
def test_id_sets_equal_a_count_by_hand(answer: list[int], rules: Rules) -> None:
    constraint = constrain(VOCABULARY, rules, answer)
    text, pending = VOCABULARY.read(answer)
    if pending and rules.clean:
        candidates = constraint.only.tolist() if constraint.only is not None else []
    else:
        known = (i for i in range(len(ID) + 4))
        candidates = [i for i in known if not (rules.clean and VOCABULARY.never[i])]
    for i in candidates:
        piece = VOCABULARY.piece(answer, i)
        wanted = breaks_by_hand(rules, text, piece, len(answer))
        assert breaks(VOCABULARY, rules, text, piece, len(answer)) == wanted
        assert (i in constraint.commas) == ("commas" in wanted)
        assert (i in constraint.adjacency) == ("adjacency" in wanted)
        assert (i in constraint.lowered) == ("lowered" in wanted)
        if "early" in wanted:
            assert i in constraint.never


@given(answers, rule_settings)
def test_history_rules_equal_a_count_by_hand(answer: list[int], rules: Rules) -> None:
    constraint = constrain(VOCABULARY, rules, answer)
    texts = [VOCABULARY.texts[i] for i in answer]
    history = [i for i, t in zip(answer, texts, strict=True) if t and any(c.isalnum() for c in t)]
    n = rules.ngram
    grams = {tuple(history[i : i + n]) for i in range(len(history) - n + 1)} if n else set()
    tail = tuple(history[len(history) - n + 1 :]) if n and len(history) >= n - 1 else None
    wanted = {gram[-1] for gram in grams if gram[:-1] == tail}
    assert set(constraint.ngram.tolist()) == wanted
    window = answer[len(answer) - min(rules.penalty_window, len(answer)) :]
    pure = {i for i in window if (t := VOCABULARY.texts[i]) and all(map(is_han, t))}
    assert set(constraint.penalised.tolist()) == pure


@given(answers, st.integers(0, 30))
def test_constraint_depends_on_the_answers_ids_and_nothing_else(
    answer: list[int], cut: int
) -> None:
    """However the ids came, and whatever was asked or rolled back before: the ids alone decide."""
    rules = Rules()
    prefix = answer[:cut]
    fresh = constrain(Vocabulary.build(TOKENS, [EOS], [EOS], len(TOKENS) + 3), rules, tuple(prefix))
    constrain(VOCABULARY, rules, answer)
    again = constrain(VOCABULARY, rules, prefix)
    for name in Constraint.__slots__:
        one, other = getattr(fresh, name), getattr(again, name)
        assert one.tolist() == other.tolist() if hasattr(one, "tolist") else one == other, name
