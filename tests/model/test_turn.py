"""Whole turns on real architecture: streamed == whole == transformers; generate() drafts."""

import numpy as np
import pytest
import torch
from answers import answer
from speech import cuts, recording, speech
from stock import inputs_of

from streamer.core.decoding.plan import Plan
from streamer.core.rules.settings import Rules, Sampling
from streamer.model.audio.turns import TurnCutter
from streamer.model.decoding import GenerateDrafter, describe_so_far
from streamer.model.engines.load import load_stock
from streamer.model.listener import Listener
from streamer.model.offline import hear
from streamer.model.scheduler import drive
from streamer.model.thinker import load


@pytest.fixture(scope="module")
def pair(tiny_pair):
    return load(str(tiny_pair[0]), "edge"), load(str(tiny_pair[1]), "cloud")


def heard(thinker, samples, pieces, provisional=False):
    """A listener that heard `samples` in `pieces`; the caller closes it."""
    every_s = 0.1 if provisional else None
    listener = Listener(thinker)
    cutter = TurnCutter(16_000, 60.0, live_update_s=every_s, is_recording=True)
    for item in [i for piece in pieces for i in cutter.push(samples[piece].tobytes())]:
        hear(listener, item)
        if getattr(item, "provisional", None) is not None:
            rules = Rules(max_new_tokens=6, min_new_tokens=0)
            steps = describe_so_far(listener, item.provisional, rules, Sampling())
            drive(thinker.engine, steps)
    for item in cutter.commit():
        hear(listener, item, prefills=False)
    return listener


@pytest.mark.parametrize("seed", range(4))
def test_prefill_streamed_equals_whole_equals_stock(pair, tiny_pair, seed):
    """Any cut, provisional windows and redos between them."""
    cloud, samples = pair[1], speech(4.7 + 2.1 * seed, seed, crescendo=seed % 2 == 0)
    one = heard(cloud, samples, [slice(None)])
    many = heard(cloud, samples, cuts(len(samples), seed), provisional=seed >= 2)
    assert one.sequence.ids == many.sequence.ids
    assert np.array_equal(one.features(), many.features())
    wanted, got = drive(cloud.engine, one.feed(1)), drive(cloud.engine, many.feed(1))
    np.testing.assert_allclose(got, wanted, atol=1e-4, rtol=1e-4)
    if seed % 2 == 0:
        assert many._ledger.num_reencoded > 0, "the crescendo must have made windows stale"
    stock = load_stock(tiny_pair[1])
    with torch.inference_mode():
        logits = stock(**inputs_of(one)).logits[0, -1]
    np.testing.assert_allclose(wanted[0], logits, atol=2e-4, rtol=1e-4)
    one.close()
    many.close()


def test_the_generate_drafter_keeps_exact_mode_exact(pair, tiny_pair):
    edge, cloud = pair
    samples, stock = recording(3)[: 16_000 * 3], load_stock(tiny_pair[0])
    wanted = answer(None, cloud, Plan(mode="cloud"), Sampling(), samples)

    def generating(drafter):
        return GenerateDrafter(drafter.listener, stock)

    plan = Plan(mode="exact", k=3)
    found = answer(edge, cloud, plan, Sampling(), samples, before=generating)
    assert found.ids == wanted.ids
    assert found.counts.n_drafted > 0
