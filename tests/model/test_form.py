"""No sentence leaves with an attribute missing, twice or of mixed phrases, whatever chance draws."""

from __future__ import annotations

import pytest
from speech import recording

from pipelines.embedded import sentences
from streamer.core.rules.form import SentenceForm
from streamer.core.rules.sampling import Sampling
from streamer.core.rules.settings import Rules
from streamer.model.drafters import IncrementalDrafter
from streamer.model.offline import hear_parts
from streamer.model.scheduler import drive
from streamer.model.thinker import Thinker, load


def said(thinker: Thinker, temperature: float, num: int) -> list[str]:
    """Sentences that the model says of one recording, each with a seed of its own."""
    texts = []
    for (listener,), _ in hear_parts([thinker], [recording(0)]):
        sequence = listener.sequence
        for seed in range(num):
            sequence.replace_tail(sequence.answer_start)
            drafter = IncrementalDrafter(listener, Rules(), Sampling(temperature, seed=seed))
            ids, _ = drive(listener.engine, drafter.draft(96))
            texts.append(thinker.vocabulary.text_of(ids))
    return texts


@pytest.mark.parametrize("role", ["edge", "cloud"])
@pytest.mark.parametrize(("temperature", "num"), [(0.0, 1), (1.5, 100)])
def test_every_sentence_has_the_form(role, temperature: float, num: int) -> None:
    thinker = load("embedded", role)
    no_speech = "".join(sentences.no_speech())
    form = SentenceForm(thinker.vocabulary, thinker.card.attributes, no_speech)
    broken = [text for text in said(thinker, temperature, num) if not form.is_whole(text)]
    assert not broken
