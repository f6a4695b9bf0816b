"""Whole turns on real architecture: streamed == whole, edge == transformers' generate()."""

import numpy as np
import pytest
import torch
from answers import answer
from speech import cuts, recording, speech
from stock import generated, inputs_of

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


@pytest.fixture(scope="module")
def stock_edge(tiny_pair):
    return load_stock(tiny_pair[0])


def told(*arguments, **more):
    """(ids, stop reason, the Description with its counts) of one turn."""
    found = answer(*arguments, **more)
    return list(found.ids), found.stop_reason, found


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


SETTINGS = [
    (Rules(), Sampling()),
    (Rules.off(max_new_tokens=40), Sampling()),
    (Rules(), Sampling(temperature=1.0, seed=5)),
    (Rules(ngram=2, min_new_tokens=4), Sampling(temperature=0.8, top_p=0.9, seed=6)),
]


@pytest.mark.parametrize(("rules", "sampling"), SETTINGS)
def test_edge_equals_generate_with_our_processors(pair, stock_edge, rules, sampling):
    edge, samples = pair[0], recording(2)
    ours, reason, _ = told(edge, None, Plan(mode="edge", rules=rules), sampling, samples)
    out = generated(stock_edge, edge, samples, rules, sampling)
    if reason in ("eos", "loop"):
        out = out[:-1]  # generate() keeps the id that stopped it
    assert ours == out


def test_the_generate_drafter_keeps_exact_mode_exact(pair, stock_edge):
    edge, cloud = pair
    samples, plan = recording(3)[: 16_000 * 3], Plan(mode="exact", k=3)
    wanted, *_ = told(None, cloud, Plan(mode="cloud"), Sampling(), samples)

    def generating(drafter):
        return GenerateDrafter(drafter.listener, stock_edge)

    got, _, counts = told(edge, cloud, plan, Sampling(), samples, before=generating)
    assert got == wanted
    assert counts.n_drafted > 0
