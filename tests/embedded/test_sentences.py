"""Sentences, tokenizer and voices of the training: every sentence reads back, no word twice, no character
broken, and a voice says the syllables of its text; docs/gate.md and the model card show the losses of
bench/results."""

import json
import random
import re

import numpy as np
import pytest
import tokenizers
from places import ROOT

from pipelines.embedded.labels import ATTRIBUTES, NUM_LEVELS
from pipelines.embedded.prompted import Prompted
from pipelines.embedded.sentences import LANGUAGES, MARKS, sentence
from pipelines.embedded.speak import Voice, phrase, speak
from pipelines.embedded.tokenizer import build
from streamer.core.attributes import parse
from streamer.model.audio.ear import measure
from streamer.model.checkpoint.card import read_card
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
    phrases = read_card(folders[0]).attributes
    for levels in phrases.values():
        for number, level in enumerate(levels):
            for said in level["phrases"]:
                assert number in parse(said, phrases).values()
                assert shipped[0].decode(shipped[0].encode(said).ids) == said


@pytest.mark.parametrize(
    ("language", "variant"), [("cmn", "f4"), ("cmn", "m3"), ("en-us", "m3"), ("es", "f2")]
)
def test_a_voice_says_about_as_many_syllables_as_its_text_has(language, variant):
    """Measured on the sound. A syllable read as two, as of spelt pinyin, counts double."""
    texts = [phrase(language, 16, random.Random(seed)) for seed in range(6)]
    said = 0.0
    for text, _ in texts:
        found = measure(speak(Voice("espeak", language, variant), text, wpm=150).astype(np.float32))
        said += found.rate_syllables_per_s * found.speech_s
    assert 0.65 < said / sum(num for _, num in texts) < 1.35


ROWS = json.loads((ROOT / "bench/results/gate.json").read_text("utf-8"))
CARD = "streamer/model/embedded/MODEL_CARD.md"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['preset']} {row['length']}")
def test_the_card_has_each_row(row):
    told = [f"{row[name]:.3f}" for name in ("risk", "loss", "se", "skipped")]
    line = "| {preset} | {} | {length} | {recordings} | {} | {} | {} |".format(*told, **row)
    assert line in (ROOT / CARD).read_text("utf-8")


@pytest.mark.parametrize("preset", ["fluent", "quality"])
def test_the_page_has_the_loss_over_all(preset):
    (row,) = (r for r in ROWS if r["preset"] == preset and r["length"] == "0-61 s")
    page = (ROOT / "docs/gate.md").read_text("utf-8").replace("**", "")
    kept = rf"{row['recordings']} | {row['loss']:.3f} | {row['se']:.3f} | "
    assert re.search(re.escape(kept), page)
    assert f"promise a loss of {ROWS[0]['risk']:.2f}" in page
