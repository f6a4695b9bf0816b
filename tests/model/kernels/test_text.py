"""The compiled kernels: equal to torch's, and one numeric class: a row's bits depend on nothing but
its own ids."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_text import random_weights, shape_of

from streamer.model.audio.mel import num_embeddings
from streamer.model.checkpoint.layout import _audio_ends, _audio_layer
from streamer.model.checkpoint.shapes import AudioShape
from streamer.model.checkpoint.weights import load_arrays
from streamer.model.engines.engine import Engine, Row
from streamer.model.engines.load import load_weights
from streamer.model.engines.text import TextModel
from streamer.model.engines.tower import AudioTower
from streamer.model.kernels.text import FastText
from streamer.model.kernels.tower import FastTower
from streamer.model.thinker import load, resolve, shapes_of

PROMPT = [3, 1, 4]
# hidden, layers, heads, kv_heads, head_dim, ffn, vocab: nothing a multiple of a panel, groups
# of 1, 3 and 4
ODD = [(40, 2, 3, 1, 16, 50, 61), (64, 1, 4, 4, 18, 33, 100), (33, 3, 8, 2, 8, 96, 40)]


def engine_of(text, num_slots=4, length=500):
    return Engine(text, text.slots(num_slots, length), PROMPT)


def ids_of(n, seed, vocab):
    return torch.randint(0, vocab, (n,), generator=torch.Generator().manual_seed(seed)).tolist()


def logits_of(engine, ids, cut):
    """All logits of `ids`, fed in pieces of `cut`, alone."""
    slot, at, out = engine.open(), len(engine.prompt_ids), []
    for n in cut:
        piece, ids = ids[:n], ids[n:]
        out += engine.step([Row(slot, at, piece, num_logits=n)])
        at += n
    assert not ids
    engine.close(slot)
    return np.concatenate(out)


@pytest.mark.parametrize("sizes", ODD)
@pytest.mark.parametrize("tied", [True, False])
def test_any_sizes_equal_torch(sizes, tied):
    shape = shape_of(*sizes, tied=tied)
    fast, torch_ = (engine_of(kind(random_weights(shape), shape)) for kind in (FastText, TextModel))
    ids = ids_of(120, 1, shape.vocab)
    ours, theirs = logits_of(fast, ids, [70, 1, 49]), logits_of(torch_, ids, [70, 1, 49])
    assert not fast.text.is_half
    np.testing.assert_allclose(ours, theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("role", ["edge", "cloud"])
def test_the_shipped_pair_equals_torch_and_is_kept_as_float16(role):
    directory = resolve("embedded", role)
    shape = shapes_of(directory).text
    fast = engine_of(FastText(load_arrays(directory), shape))
    torch_ = engine_of(TextModel(load_weights(directory, torch.float32, "cpu"), shape))
    assert fast.text.is_half
    ids = ids_of(400, 2, shape.vocab)
    ours, theirs = logits_of(fast, ids, [300, 1, 5, 94]), logits_of(torch_, ids, [300, 1, 5, 94])
    np.testing.assert_allclose(ours, theirs, atol=1e-5 * np.abs(theirs).max(), rtol=1e-5)
    assert np.array_equal(ours.argmax(-1), theirs.argmax(-1))


@pytest.fixture(scope="module")
def small():
    shape = shape_of(*ODD[0])
    return engine_of(FastText(random_weights(shape), shape), num_slots=5)


@settings(max_examples=25, deadline=None)
@given(cut=st.lists(st.integers(1, 40), min_size=1, max_size=12))
def test_every_cut_gives_the_same_bits(small, cut):
    """One id at a time, a block, a window: a draft's step and its verification compute the same
    numbers."""
    ids = ids_of(sum(cut), 3, small.text.shape.vocab)
    assert np.array_equal(logits_of(small, ids, cut), logits_of(small, ids, [1] * len(ids)))


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_every_company_gives_the_same_bits(small, data):
    """Rows of any lengths at any positions, in any order beside each other."""
    vocab, n = small.text.shape.vocab, len(PROMPT)
    starts = data.draw(st.lists(st.integers(0, 300), min_size=1, max_size=5))
    sizes = [data.draw(st.integers(1, 9)) for _ in starts]
    order = data.draw(st.permutations(range(len(starts))))
    slots = [small.open() for _ in starts]
    try:
        for slot, start in zip(slots, starts, strict=True):
            if start:
                small.step([Row(slot, n, ids_of(start, slot, vocab), num_logits=0)])
        rows = [
            Row(slot, n + start, ids_of(size, 50 + slot, vocab), num_logits=size)
            for slot, start, size in zip(slots, starts, sizes, strict=True)
        ]
        together = small.step([rows[i] for i in order])
        for i, got in zip(order, together, strict=True):
            assert np.array_equal(got, small.step([rows[i]])[0])
    finally:
        for slot in slots:
            small.close(slot)


def test_the_shipped_cloud_verifies_what_it_would_have_said():
    """Exact == cloud rests on this: a block's logits are those of one id at a time, also far into a
    long turn."""
    thinker = load("embedded", "cloud", num_slots=2)
    ids = ids_of(1500, 6, 900)
    got, one = [], []
    for target, size in ((got, 5), (one, 1)):
        slot = thinker.engine.open()
        thinker.engine.step([Row(slot, 6, ids[:1450], num_logits=0)])
        for at in range(1450, 1500, size):
            target += thinker.engine.step([Row(slot, 6 + at, ids[at : at + size], num_logits=size)])
        thinker.engine.close(slot)
    assert np.array_equal(np.concatenate(got), np.concatenate(one))


def audio_of(width, layers, heads, ffn, output):
    """(compiled, torch) towers of the same random weights."""
    shape = AudioShape(width, layers, heads, ffn, 128, 100, output)
    generator = torch.Generator().manual_seed(7)
    names = dict(_audio_ends(shape))
    for i in range(layers):
        names |= dict(_audio_layer(f"audio_tower.layers.{i}.", shape))
    weights = {
        n: torch.randn(s, generator=generator) / np.prod(s[1:] or (4,)) ** 0.5
        for n, s in names.items()
    }
    return FastTower(dict(weights), shape), AudioTower(dict(weights), shape)


@pytest.mark.parametrize("sizes", [(32, 2, 2, 64, 32), (36, 1, 3, 50, 40), (64, 3, 2, 96, 33)])
@pytest.mark.parametrize("frames", [200, 199, 58, 5, 4, 3])
def test_a_tower_of_any_size_equals_torch(sizes, frames):
    fast, torch_ = audio_of(*sizes)
    features = torch.randn(2, 128, frames, generator=torch.Generator().manual_seed(frames))
    ours, theirs = fast.encode(features), torch_.encode(features)
    assert ours.shape == theirs.shape == (2, num_embeddings(frames), sizes[-1])
    np.testing.assert_allclose(ours, theirs, atol=1e-5, rtol=1e-5)


def test_a_window_is_the_same_bits_in_any_batch():
    tower = load("embedded", "edge").tower
    features = torch.randn(5, 128, 200, generator=torch.Generator().manual_seed(1))
    alone = np.concatenate([tower.encode(features[i : i + 1]) for i in range(5)])
    assert np.array_equal(tower.encode(features), alone)
