"""The other rules change no sentence of a card's form, so a form may leave them out."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from bench.sentence_quality import measure
from streamer.core.attributes import parse
from streamer.core.rules.constrain import constrain
from streamer.core.rules.settings import Rules
from streamer.core.rules.stop import Stop, loop_suspected, stop
from streamer.core.text.vocabulary import Vocabulary
from streamer.model.checkpoint.card import ModelCard, read_card
from streamer.model.checkpoint.tokenizer import Tokenizer, vocabulary_of
from streamer.model.thinker import EMBEDDED, shapes_of

RULES = Rules()
OPENINGS = ("", "说话人", "这位讲者", "这段录音里")  # of the sentences that the shipped pair learnt
Family = tuple[Tokenizer, Vocabulary, ModelCard]


@pytest.fixture(scope="module", params=["edge", "cloud"])
def family(request: pytest.FixtureRequest) -> Family:
    directory = EMBEDDED / request.param
    vocabulary = vocabulary_of(directory, shapes_of(directory).text.vocab)
    return Tokenizer.load(directory), vocabulary, read_card(directory)


def spoken(card: ModelCard, n: int) -> Iterator[tuple[dict[str, int], str]]:
    """Each phrase of the card, attributes in any order, an opening."""
    rng = random.Random(0)
    for _ in range(n):
        names = rng.sample(list(card.attributes), len(card.attributes))
        levels = {name: rng.randrange(len(card.attributes[name])) for name in names}
        clauses = [rng.choice(card.attributes[n][level]["phrases"]) for n, level in levels.items()]
        yield levels, rng.choice(OPENINGS) + "，".join(clauses) + "。"


@pytest.mark.parametrize("n", [200, pytest.param(5000, marks=pytest.mark.long)])
def test_no_rule_touches_a_sentence_of_the_form(family: Family, n: int) -> None:
    tokenizer, vocabulary, card = family
    for levels, text in spoken(card, n):
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
        assert parse(text, card.attributes) == levels


def untouched(vocabulary: Vocabulary, answer: list[int], chosen: int, text: str) -> None:
    constraint = constrain(vocabulary, RULES, answer)
    for name in ("never", "commas", "adjacency", "ngram", "lowered", "penalised"):
        assert chosen not in getattr(constraint, name), (
            f"{name}: {text} at {vocabulary.texts[chosen]}"
        )
    assert constraint.recent.count(chosen) < RULES.loop_count, text
    assert not loop_suspected([*answer, chosen]), text
