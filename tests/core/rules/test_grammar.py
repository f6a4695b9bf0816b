"""The training grammar's sentences meet no rule: on clean speech the rules must change nothing."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.sentence_quality import measure
from pipelines.embedded import sentences
from pipelines.embedded import tokenizer as words
from pipelines.embedded.labels import ATTRIBUTES
from streamer.core.attributes import parse
from streamer.core.rules.constrain import constrain
from streamer.core.rules.settings import Rules
from streamer.core.rules.stop import Stop, loop_suspected, stop
from streamer.core.text.vocabulary import Vocabulary
from streamer.model.checkpoint.tokenizer import Tokenizer, vocabulary_of

RULES = Rules()


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tokenizer, Vocabulary]:
    directory: Path = tmp_path_factory.mktemp("grammar")
    words.save(directory)
    tokenizer = Tokenizer.load(directory)
    return tokenizer, vocabulary_of(directory, len(tokenizer.token_bytes(1 << 16)[0]))


def spoken(n: int) -> Iterator[tuple[dict[str, int], str]]:
    rng = random.Random(0)
    for _ in range(n):
        levels = {name: rng.randrange(len(sentences.LEVELS[name])) for name in ATTRIBUTES}
        prominence = {name: rng.random() for name in ATTRIBUTES}
        yield levels, "".join(sentences.sentence(levels, prominence, rng))


@pytest.mark.parametrize("n", [200, pytest.param(5000, marks=pytest.mark.long)])
def test_no_rule_touches_a_sentence_of_the_grammar(
    family: tuple[Tokenizer, Vocabulary], n: int
) -> None:
    tokenizer, vocabulary = family
    for levels, text in spoken(n):
        ids = tokenizer.encode(text)
        assert vocabulary.text_of(ids) == text
        assert not vocabulary.never[ids].any(), text
        for i, chosen in enumerate(ids):
            untouched(vocabulary, ids[:i], chosen, text)
            end = stop(vocabulary, RULES, ids[:i], chosen)
            assert end == (Stop("sentence", keep=True) if i == len(ids) - 1 else None), text
        quality = measure(vocabulary, ids)
        assert quality.one_sentence
        assert not quality.adjacent_repeats
        assert 0.10 <= quality.density <= 0.25, text
        assert parse(text, sentences.attributes()) == levels


def untouched(vocabulary: Vocabulary, answer: list[int], chosen: int, text: str) -> None:
    constraint = constrain(vocabulary, RULES, answer)
    for name in ("never", "commas", "adjacency", "ngram", "lowered", "penalised"):
        assert chosen not in getattr(constraint, name), (
            f"{name}: {text} at {vocabulary.texts[chosen]}"
        )
    assert constraint.recent.count(chosen) < RULES.loop_count, text
    assert not loop_suspected([*answer, chosen]), text
