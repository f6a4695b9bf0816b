"""What the models say: sentences that no rule touches, a tokenizer that breaks no character,
levels read back."""

import random

import pytest

from pipelines.embedded.labels import ATTRIBUTES, NUM_LEVELS
from pipelines.embedded.sentences import parse, sentence
from pipelines.embedded.tokenizer import build
from streamer.core.attributes import parse as read_back
from streamer.model.thinker import resolve


def drawn(seed):
    rng = random.Random(seed)
    levels = {name: rng.randrange(n) for name, n in NUM_LEVELS.items()}
    return levels, sentence(levels, {name: rng.gauss(0, 1) for name in ATTRIBUTES}, rng)


@pytest.mark.parametrize("n", [500, pytest.param(5000, marks=pytest.mark.long)])
def test_sentences_are_one_each_of_20_to_45_ids_and_read_back(n):
    from streamer.model.checkpoint.card import read_card

    tokenizer, phrases = build(), read_card(resolve("embedded", "edge")).attributes
    for seed in range(n):
        levels, words = drawn(seed)
        text = "".join(words)
        ids = tokenizer.encode(text).ids
        assert 20 <= len(ids) <= 45, text
        assert text.count("。") == 1
        assert text.endswith("。")
        assert parse(text) == read_back(text, phrases) == levels, text
        assert len(set(words) - {"，"}) == len([w for w in words if w != "，"]), (
            "no word stands twice"
        )


def test_every_word_of_the_grammar_is_one_id():
    tokenizer = build()
    for seed in range(200):
        words = drawn(seed)[1]
        assert len(tokenizer.encode("".join(words)).ids) == len(words)


@pytest.mark.parametrize(
    "text", ["说话人语速偏快。", "naïve café", "🎤 hello 世界", "\u0000\t\n", "龘靐齉", "ﬁ" * 3]
)
def test_any_text_survives_the_tokenizer(text):
    """Byte fallback: what is no word is spelled in bytes. (NFC, as Qwen2's own tokenizer
    normalises.)"""
    import unicodedata

    tokenizer = build()
    assert tokenizer.decode(tokenizer.encode(text).ids) == unicodedata.normalize("NFC", text)


def test_edge_and_cloud_ship_the_tokenizer_that_is_built_here():
    built = build().get_vocab()
    for role in ("edge", "cloud"):
        import tokenizers

        shipped = tokenizers.Tokenizer.from_file(str(resolve("embedded", role) / "tokenizer.json"))
        assert shipped.get_vocab() == built
