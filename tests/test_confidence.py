"""How sure a description is of its levels: the same from every side.

The measures and the softmax of the model that spoke tell it together.
"""

import numpy as np
import pytest
from far import verifying

from streamer import Describer
from streamer.audio.file import open_audio
from streamer.core.attributes import ATTRIBUTES, SaidToken, fused_confidence
from streamer.core.measures.levels import learnt, level_chances
from streamer.core.text.vocabulary import Emitter
from streamer.model.offline import hear_parts
from streamer.model.scheduler import drive
from streamer.model.thinker import load
from streamer.recording import chunks_of


async def described(file, **options):
    async with Describer.open(**options) as describer:
        return await describer.describe(file, measures=True)


def by_hand(file, ids, role, measures):
    """From all logits of the sentence, fed at once, and NumPy's softmax."""
    thinker = load("embedded", role)
    with open_audio(str(file)) as audio:
        for (listener,), _ in hear_parts([thinker], chunks_of(audio)):
            listener.sequence.extend(ids)
            logits = drive(thinker.engine, listener.feed(len(ids) + 1))[:-1].astype(np.float64)
    probable = np.exp(logits - logits.max(1, keepdims=True))
    probable /= probable.sum(1, keepdims=True)
    emitter = Emitter(thinker.vocabulary)
    pieces = [
        SaidToken(emitter.push((token,)), float(np.log(p[token])))
        for token, p in zip(ids, probable, strict=True)
    ]
    chances = level_chances(measures)
    return fused_confidence(pieces, thinker.card.attributes, chances, learnt().opinion)


@pytest.mark.parametrize(("mode", "near"), [("edge", 1e-5), ("cloud", 2e-3)])
async def test_it_is_the_softmax_of_the_model_that_spoke(mode, near, samples):
    """By the compiled kernels on the way, against all logits at once; the cloud's are rounded to
    float16."""
    found = await described(samples[0], mode=mode)
    assert list(found.confidence) == list(ATTRIBUTES)
    wanted = by_hand(samples[0], found.ids, mode, found.measures)
    assert found.confidence == pytest.approx(wanted, abs=near)
    assert all(0 < sure < 1 for sure in found.confidence.values())


async def test_exact_is_as_sure_as_the_cloud_near_and_far(samples):
    file = samples[0]
    alone = await described(file, mode="cloud")
    assert (await described(file, mode="exact")).confidence == alone.confidence
    with verifying() as (url, _):
        for mode in ("exact", "cloud"):
            assert (await described(file, mode=mode, cloud=url)).confidence == alone.confidence


async def test_gated_takes_each_level_from_who_said_it_last(samples):
    file = samples[0]
    own = await described(file, mode="edge")
    found = await described(file, mode="gated", threshold=100.0)  # nothing is asked about
    assert (found.verified_share, found.confidence) == (0.0, own.confidence)
    found = await described(file, mode="gated", threshold=0.0)  # all is
    assert found.verified_share == 1.0
    assert found.confidence == (await described(file, mode="cloud")).confidence


async def test_the_words_of_the_models_alone_have_none(samples, tiny_pair):
    for options in ({"words": "models"}, {"edge": str(tiny_pair[0])}):
        found = await described(samples[0], mode="edge", **options)
        assert found.confidence is None
        assert found.as_json()["confidence"] is None
