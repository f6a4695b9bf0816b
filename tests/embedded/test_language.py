"""Sentences and tokenizer: every sentence reads back, no word twice, no character broken."""

import random

import pytest
import tokenizers

from pipelines.embedded.labels import ATTRIBUTES, NUM_LEVELS
from pipelines.embedded.prompted import Prompted
from pipelines.embedded.sentences import LANGUAGES, MARKS, sentence
from pipelines.embedded.tokenizer import build
from streamer.model.thinker import resolve


def drawn(seed, language):
    rng = random.Random(seed)
    levels = {name: rng.randrange(n) for name, n in NUM_LEVELS.items()}
    prominence = {name: rng.gauss(0, 1) for name in ATTRIBUTES}
    return levels, sentence(levels, prominence, rng, language)


@pytest.mark.parametrize("language", list(LANGUAGES))
def test_a_sentence_reads_back_and_says_no_word_twice(language):
    prompted = Prompted()
    for seed in range(1000):
        levels, words = drawn(seed, language)
        text = "".join(words)
        assert prompted.levels(text, language) == levels, text
        said = [word for word in words if word not in MARKS]
        assert len(set(said)) == len(said), text
        assert text.count(LANGUAGES[language].end) == 1
        assert text.endswith(LANGUAGES[language].end)


@pytest.mark.parametrize("language", list(LANGUAGES))
def test_every_word_of_a_sentence_is_one_id(language):
    tokenizer = build()
    for seed in range(300):
        words = drawn(seed, language)[1]
        ids = tokenizer.encode("".join(words)).ids
        assert [tokenizer.decode([token]) for token in ids] == words
        assert 16 <= len(ids) <= 45


def test_edge_and_cloud_ship_one_tokenizer_that_spells_their_phrases():
    folders = [resolve("embedded", role) for role in ("edge", "cloud")]
    shipped = [tokenizers.Tokenizer.from_file(str(f / "tokenizer.json")) for f in folders]
    assert shipped[0].get_vocab() == shipped[1].get_vocab()
    prompted = Prompted(folders[0])
    for levels in prompted.phrases["zh"].values():
        for number, level in enumerate(levels):
            for phrase in level["phrases"]:
                assert number in prompted.levels(phrase).values()
                assert shipped[0].decode(shipped[0].encode(phrase).ids) == phrase
