"""Torch's products in one numeric class: equal to the plain ones, and the same bits for every cut
and company."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_text import random_weights

from streamer.model.checkpoint.shapes import TextShape
from streamer.model.engines.engine import Engine, Row
from streamer.model.engines.text import StableText, TextModel

PROMPT = [3, 1, 4]
# hidden, layers, heads, kv_heads, head_dim, ffn, vocab
SIZES = [(40, 2, 3, 1, 16, 50, 61), (256, 2, 4, 2, 64, 700, 1000), (768, 1, 12, 4, 64, 2560, 3000)]


def engine_of(kind, sizes):
    shape = TextShape(*sizes, 10_000.0, 1e-6, 4096, True)
    text = kind(random_weights(shape), shape)
    return Engine(text, text.slots(5, 500), PROMPT)


@pytest.fixture(scope="module", params=SIZES, ids=lambda sizes: str(sizes[0]))
def engine(request):
    return engine_of(StableText, request.param)


def ids_of(n, seed):
    return torch.randint(0, 61, (n,), generator=torch.Generator().manual_seed(seed)).tolist()


def logits_of(engine, ids, cut):
    slot, at, out = engine.open(), len(PROMPT), []
    for n in cut:
        out += engine.step([Row(slot, at, ids[at - len(PROMPT) :][:n], num_logits=n)])
        at += n
    engine.close(slot)
    return np.concatenate(out)


@pytest.mark.parametrize("sizes", SIZES)
def test_equals_the_plain_products(sizes):
    ids = ids_of(120, 1)
    ours, theirs = (
        logits_of(engine_of(kind, sizes), ids, [70, 1, 5, 44]) for kind in (StableText, TextModel)
    )
    np.testing.assert_allclose(ours, theirs, atol=1e-5, rtol=1e-5)


@settings(max_examples=8)
@given(cut=st.lists(st.integers(1, 40), min_size=1, max_size=3))
def test_every_cut_gives_the_same_bits(engine, cut):
    ids = ids_of(sum(cut), 3)
    assert np.array_equal(logits_of(engine, ids, cut), logits_of(engine, ids, [1] * len(ids)))


@settings(max_examples=8)
@given(data=st.data())
def test_every_company_gives_the_same_bits(engine, data):
    starts = data.draw(st.lists(st.integers(1, 60), min_size=1, max_size=5))
    sizes = [data.draw(st.integers(1, 9)) for _ in starts]
    slots = [engine.open() for _ in starts]
    try:
        for slot, start in zip(slots, starts, strict=True):
            engine.step([Row(slot, len(PROMPT), ids_of(start, slot), num_logits=0)])
        rows = [
            Row(slot, len(PROMPT) + start, ids_of(size, 50 + slot), num_logits=size)
            for slot, start, size in zip(slots, starts, sizes, strict=True)
        ]
        for row, got in zip(rows, engine.step(rows), strict=True):
            assert np.array_equal(got, engine.step([row])[0])
    finally:
        for slot in slots:
            engine.close(slot)
