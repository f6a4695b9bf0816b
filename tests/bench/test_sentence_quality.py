"""The measures of a sentence, by hand."""

import pytest

from bench.sentence_quality import Quality, measure, num_repeats
from streamer.core.text.vocabulary import Vocabulary

# text -> density, repeated pairs and triples, neighbours that repeat, whether it is one sentence
MEASURED = {
    "说话人语速缓慢，声音微微低沉，情绪平静。": (3 / 20, 0, 0, 0, True),
    "语速较慢，音色音色中，音色中，音色中": (3 / 18, 6, 4, 0, False),
    "慢慢慢，音音": (1 / 6, 1, 0, 3, False),
    "aa，，": (1 / 2, 0, 0, 0, False),
    "慢！ ": (1 / 3, 0, 0, 0, True),
    "慢。快。": (1 / 2, 0, 0, 0, False),
    "慢。。": (2 / 3, 0, 0, 0, False),
    "": (0, 0, 0, 0, False),
}


@pytest.mark.parametrize("text", MEASURED)
def test_a_sentence_is_measured(text):
    characters = sorted(set("".join(MEASURED)))
    end = len(characters)
    vocabulary = Vocabulary.build([*(c.encode() for c in characters), b"<eos>"], [end], [end])
    ids = [*(characters.index(c) for c in text), end]
    assert measure(vocabulary, ids) == Quality(*MEASURED[text])


def test_repeats_are_counted_beyond_the_first():
    assert num_repeats("abab", 2) == 1
    assert num_repeats("aaaa", 2) == 2
    assert num_repeats("abc", 2) == num_repeats("", 2) == num_repeats("a", 3) == 0
