"""The other rules change no sentence of a card's form, so a form may leave them out."""

import random
import re

import pytest

from bench.sentence_quality import measure
from pipelines.embedded import export
from pipelines.embedded import tokenizer as words
from streamer.core.attributes import parse
from streamer.core.rules.constrain import constrain
from streamer.core.rules.form import marks_of
from streamer.core.rules.settings import LOOP_COUNT, Rules, loop_suspected, stop
from streamer.model.checkpoint.card import card_of, read_card
from streamer.model.checkpoint.layout import shapes_of
from streamer.model.checkpoint.tokenizer import Tokenizer
from streamer.model.thinker import EMBEDDED

RULES = Rules()
OPENINGS = ("", "说话人", "这位讲者", "这段录音里")  # of the sentences that the shipped pair learnt


@pytest.fixture(scope="module", params=["edge", "cloud", "zh", "en"])
def family(request, tmp_path_factory):
    """A model that ships, or a language of the training's recipe."""
    if request.param in ("edge", "cloud"):
        directory = EMBEDDED / request.param
        card, num_ids = read_card(directory), shapes_of(directory).text.vocab
    else:
        directory = tmp_path_factory.mktemp("recipe")
        words.save(directory)
        card = card_of(export.card("recipe"), "recipe").speaking(request.param)
        num_ids = words.build().get_vocab_size()
    tokenizer = Tokenizer(directory)
    return tokenizer, tokenizer.vocabulary(num_ids), card


def spoken(card, n):
    """Each phrase of the card, attributes in any order, an opening."""
    rng = random.Random(0)
    for _ in range(n):
        names = rng.sample(list(card.attributes), len(card.attributes))
        levels = {name: rng.randrange(len(card.attributes[name])) for name in names}
        clauses = [rng.choice(card.attributes[n][level]["phrases"]) for n, level in levels.items()]
        comma, end, gap = marks_of(card.language)
        text = comma.join(gap + clause for clause in clauses)
        yield levels, rng.choice(card.openings or OPENINGS) + text + end


@pytest.mark.parametrize("n", [200, pytest.param(5000, marks=pytest.mark.long)])
def test_no_rule_touches_a_sentence_of_the_form(family, n):
    tokenizer, vocabulary, card = family
    for levels, text in spoken(card, n):
        ids = tokenizer.encode(text)
        assert vocabulary.text_of(ids) == text
        assert not vocabulary.never[ids].any(), text
        for i, chosen in enumerate(ids):
            constraint = constrain(vocabulary, RULES, ids[:i])
            for name in ("never", "commas", "adjacency", "ngram", "lowered", "penalised"):
                assert chosen not in getattr(constraint, name), f"{name}: {text} at {chosen}"
            assert constraint.recent.count(chosen) < LOOP_COUNT, text
            assert not loop_suspected(ids[: i + 1]), text
            end = stop(vocabulary, RULES, ids[:i], chosen)
            assert end == ("sentence" if i == len(ids) - 1 else None), text
        quality = measure(vocabulary, ids)
        assert quality.one_sentence
        assert not quality.adjacent_repeats
        if card.language == "zh":
            assert 0.10 <= quality.density <= 0.25, text
        else:
            spelled = re.findall("[A-Za-z]+(?:-[a-z]+)?", text.lower())
            assert len(set(spelled)) == len(spelled), text
        assert parse(text, card.attributes) == levels
