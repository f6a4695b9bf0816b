"""The measures of fix report 5, on its own samples and by hand."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bench.sentence_quality import (
    adjacent_repeats,
    is_one_sentence,
    measure,
    num_repeats,
    punctuation_density,
)
from streamer.core.text.vocabulary import Vocabulary

SEED = (
    "说话人说话时语速较慢，音调平稳，停顿停顿，音量适中，音色音色中，音色中，音色中，音色中，音色"
)
GOOD = "说话人语速缓慢，声音微微低沉，情绪平静。"
CHARACTERS = sorted(set(SEED + GOOD))
VOCABULARY = Vocabulary.build(
    [*(c.encode() for c in CHARACTERS), b"<eos>"], [len(CHARACTERS)], [len(CHARACTERS)]
)


def ids(text: str) -> list[int]:
    return [CHARACTERS.index(c) for c in text]


def test_a_good_sentence() -> None:
    quality = measure(VOCABULARY, [*ids(GOOD), len(CHARACTERS)])
    assert quality.num_characters == len(GOOD)
    assert quality.density == 3 / 20
    assert quality.one_sentence
    assert quality.repeated_bigrams == quality.repeated_trigrams == quality.adjacent_repeats == 0
    assert quality.repeated_id_bigrams == quality.repeated_id_trigrams == 0


def test_the_reports_sample() -> None:
    quality = measure(VOCABULARY, ids(SEED))
    assert not quality.one_sentence
    assert quality.repeated_trigrams >= 8
    assert quality.repeated_bigrams > quality.repeated_trigrams
    assert quality.repeated_id_trigrams == quality.repeated_trigrams, "ids are characters here"


def test_repeats_are_counted_beyond_the_first() -> None:
    assert num_repeats("abab", 2) == 1
    assert num_repeats("aaaa", 2) == 2
    assert num_repeats("abc", 2) == num_repeats("", 2) == num_repeats("a", 3) == 0


def test_adjacent_repeats() -> None:
    table = frozenset("微")
    assert adjacent_repeats("微微，音音", table) == 1
    assert adjacent_repeats("微微微", table) == 2
    assert adjacent_repeats("aa，，", table) == 0
    assert adjacent_repeats("轻轻地") == 0


def test_one_sentence() -> None:
    assert is_one_sentence("慢。")
    assert is_one_sentence("慢！ ")
    assert not any(map(is_one_sentence, ["", "慢", "慢。快。", "慢。快", "慢。。"]))


@given(st.text("慢音，。a“", max_size=30))
def test_density_is_a_share(text: str) -> None:
    assert (
        abs(punctuation_density(text) * max(1, len(text)) - sum(text.count(c) for c in "，。"))
        < 1e-9
    )
