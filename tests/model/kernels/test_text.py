"""The kernels equal torch, and a row's bits depend on nothing but its own ids."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer.model.audio.mel import num_embeddings
from streamer.model.checkpoint.weights import AudioShape, TextShape, expected
from streamer.model.engines.engine import Engine, FastText, FastTower, Row
from streamer.model.engines.load import AudioTower, StableText, TextModel

PROMPT = [3, 1, 4]
# hidden, layers, heads, kv_heads, head_dim, ffn, vocab: nothing a multiple of a panel, groups
# of 1, 3 and 4; and one whose products torch computes in other ways
ODD = [(40, 2, 3, 1, 16, 50, 61), (64, 1, 4, 4, 18, 33, 100), (33, 3, 8, 2, 8, 96, 40)]
WIDE = (768, 1, 12, 4, 64, 2560, 3000)
KINDS = [*((FastText, sizes) for sizes in ODD), (StableText, ODD[0]), (StableText, WIDE)]


def shape_of(hidden, layers, heads, kv_heads, head_dim, ffn, vocab, tied=True):
    sizes = {"hidden": hidden, "layers": layers, "heads": heads, "kv_heads": kv_heads}
    sizes |= {"head_dim": head_dim, "ffn": ffn, "vocab": vocab, "tied": tied}
    return TextShape(**sizes, rope_theta=10_000.0, max_positions=4096)


def random_weights(shape):
    """A model's tensors by their names, scaled so that activations stay near 1."""
    generator = torch.Generator().manual_seed(0)

    def drawn(name, size):
        numbers = torch.randn(size, generator=generator)
        return numbers * np.prod(size[1:]) ** -0.5 if size[1:] else 0.1 * numbers + ("norm" in name)

    return {name: drawn(name, size) for name, size in expected(shape)}


def engine_of(text, num_slots=5, length=500):
    return Engine(text, text.slots(num_slots, length), PROMPT, tower=None)


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


@pytest.mark.parametrize(("kind", "sizes"), KINDS)
@pytest.mark.parametrize("tied", [True, False])
def test_any_sizes_equal_torch(kind, sizes, tied):
    shape = shape_of(*sizes, tied=tied)
    ours, theirs = (engine_of(each(random_weights(shape), shape)) for each in (kind, TextModel))
    ids = ids_of(120, 1, shape.vocab)
    got, wanted = logits_of(ours, ids, [70, 1, 49]), logits_of(theirs, ids, [70, 1, 49])
    np.testing.assert_allclose(got, wanted, atol=1e-5, rtol=1e-5)


@pytest.fixture(scope="module", params=[KINDS[0], *KINDS[3:]], ids=str)
def small(request):
    kind, sizes = request.param
    shape = shape_of(*sizes)
    return engine_of(kind(random_weights(shape), shape))


@settings(max_examples=12, deadline=None)
@given(cut=st.lists(st.integers(1, 40), min_size=1, max_size=6))
def test_every_cut_gives_the_same_bits(small, cut):
    """A draft's step and its verification compute the same numbers."""
    ids = ids_of(sum(cut), 3, small.text.shape.vocab)
    assert np.array_equal(logits_of(small, ids, cut), logits_of(small, ids, [1] * len(ids)))


@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_every_company_gives_the_same_bits(small, data):
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


@pytest.mark.parametrize("sizes", [(32, 2, 2, 64, 32), (36, 1, 3, 50, 40), (64, 3, 2, 96, 33)])
@pytest.mark.parametrize("frames", [200, 199, 58, 5, 4, 3])
def test_a_tower_of_any_size_equals_torch(sizes, frames):
    names = ("width", "layers", "heads", "ffn", "output")
    shape = AudioShape(**dict(zip(names, sizes, strict=True)))
    fast, torch_ = (kind(random_weights(shape), shape) for kind in (FastTower, AudioTower))
    features = torch.randn(2, 128, frames, generator=torch.Generator().manual_seed(frames))
    ours, theirs = fast.encode(features), torch_.encode(features)
    assert ours.shape == theirs.shape == (2, num_embeddings(frames), sizes[-1])
    np.testing.assert_allclose(ours, theirs, atol=1e-5, rtol=1e-5)
