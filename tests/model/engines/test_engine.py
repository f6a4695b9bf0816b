"""The engine against transformers' own modules: the tower, ragged rows, rollback, slots."""

import numpy as np
import pytest
import torch
from stock_engine import on_stock

from streamer.model.audio.mel import num_embeddings
from streamer.model.engines.engine import Row, SlotsFull
from streamer.model.engines.load import load_stock
from streamer.model.thinker import load


@pytest.fixture(scope="module")
def thinker(tiny_pair):
    return load(str(tiny_pair[1]), "cloud", num_slots=3)


@pytest.fixture(scope="module")
def stock(tiny_pair):
    return load_stock(tiny_pair[1])


def ids_of(n, seed, num_ids=900):
    return torch.randint(0, num_ids, (n,), generator=torch.Generator().manual_seed(seed)).tolist()


@pytest.mark.parametrize("frames", [200, 199, 57, 4, 3])
def test_the_tower_equals_the_stock_tower(thinker, stock, frames):
    features = torch.randn(128, frames, generator=torch.Generator().manual_seed(frames))
    with torch.inference_mode():
        ours = thinker.tower.encode(features[None])[0]
        theirs = stock.model.audio_tower(
            features, feature_lens=torch.tensor([frames])
        ).last_hidden_state
    assert ours.shape == theirs.shape == (num_embeddings(frames), theirs.shape[1])
    np.testing.assert_allclose(ours, theirs, atol=1e-5, rtol=1e-5)


def test_slots_are_bounded_and_come_back(thinker):
    engine = thinker.engine
    taken = [engine.open() for _ in range(3)]
    with pytest.raises(SlotsFull, match="3 KV slots"):
        engine.open()
    for slot in taken:
        engine.close(slot)
    assert engine.slots.num_free == 3
    with pytest.raises(KeyError):
        engine.close(0)


@pytest.mark.parametrize("role", [0, 1])
def test_the_stock_engine_hears_and_says_the_same(tiny_pair, role):
    """Ragged rows, a rollback, audio; logits to 1e-5 and the same greedy ids."""
    fast = load(str(tiny_pair[role]), "edge", num_slots=3)
    ids, found = ids_of(60, 9), []
    features = torch.randn(2, 128, 200, generator=torch.Generator().manual_seed(9))
    for thinker in (fast, on_stock(fast)):
        engine, out = thinker.engine, []
        a, b, n = engine.open(), engine.open(), len(thinker.engine.prompt_ids)
        embeds = engine.encode(features)
        out += engine.step(
            [Row(a, n, [0] * 50 + ids[:2], embeds[0], num_logits=2), Row(b, n, ids[:7])]
        )
        audio = Row(b, n + 7, [0] * 50, embeds[1], num_logits=0)
        out += engine.step([audio, Row(a, n + 52, ids[2:9], num_logits=7)])
        out += engine.step([Row(a, n + 54, ids[20:25], num_logits=5), Row(b, n + 57, ids[7:8])])
        found.append(np.concatenate([logits for logits in out if len(logits)]))
        engine.close(a)
        engine.close(b)
    np.testing.assert_allclose(found[0], found[1], atol=2e-4, rtol=1e-5)
    assert np.array_equal(found[0].argmax(-1), found[1].argmax(-1))
