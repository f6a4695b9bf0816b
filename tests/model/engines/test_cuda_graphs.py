"""The fixed shapes against the ragged model; on a GPU the captured graphs against both."""

import numpy as np
import pytest
import torch
from random_weights import random_weights

from streamer.cli import main
from streamer.model.checkpoint.shapes import TextShape
from streamer.model.engines.cuda_graphs import NUM_IDS, NUM_ROWS, Fixed, GraphText
from streamer.model.engines.engine import Engine, Row, Span
from streamer.model.engines.text import TextModel
from streamer.model.thinker import load

PROMPT = [3, 1, 4]
# hidden, layers, heads, kv_heads, head_dim, ffn, vocab: groups of 3 and 1
SIZES = [(40, 2, 3, 1, 16, 50, 61), (64, 3, 4, 4, 16, 33, 100)]
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="captures CUDA graphs")
DEVICES = ["cpu", pytest.param("cuda", marks=needs_gpu)]


def engines(
    sizes,
    num_slots=6,
    length=700,
    dtype=torch.float32,
    device="cpu",
    kinds=(GraphText, TextModel),
    **more,
):
    """One engine of each kind, all of the same weights."""
    shape = TextShape(*sizes, 10_000.0, 1e-6, 4096, True)
    texts = [
        kind(random_weights(shape, dtype, device), shape, **(more if kind is GraphText else {}))
        for kind in kinds
    ]
    return [Engine(text, text.slots(num_slots, length), PROMPT) for text in texts]


def ids_of(n, seed, vocab=61):
    return torch.randint(0, vocab, (n,), generator=torch.Generator().manual_seed(seed)).tolist()


def prefilled(engine, contexts):
    """Open slots that hold so many ids each; returns (slot, next position)."""
    found = []
    for i, n in enumerate(contexts):
        slot = engine.open()
        engine.step([Row(slot, len(PROMPT), ids_of(n, 70 + i), num_logits=0)])
        found.append((slot, len(PROMPT) + n))
    return found


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("q", [1, 2, 5, 7, 9])
@pytest.mark.parametrize("chosen", [[0], [5], [0, 1, 2], [4, 2], [0, 1, 2, 3, 4, 5]], ids=str)
def test_a_fixed_shape_equals_the_ragged_step(sizes, q, chosen, device):
    """Any places, compact or not, ragged within the shape, at positions of one and of several
    lengths."""
    out = []
    for engine in engines(sizes, device=device):
        rows = prefilled(engine, [20, 400, 11, 252, 255, 600])
        given = [
            Row(slot, at, ids_of(max(1, q - i), i), num_logits=max(1, q - 2 * i))
            for i, (slot, at) in ((i, rows[i]) for i in chosen)
        ]
        out.append(np.concatenate(engine.step(given)))
        # rolled back, and on
        given = [Row(row.slot, row.start + 1, [7], num_logits=1) for row in given]
        out.append(np.concatenate(engine.step(given)))
    for ours, theirs in zip(out[:2], out[2:], strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5, rtol=1e-5)
        assert np.array_equal(ours.argmax(-1), theirs.argmax(-1))


@pytest.mark.parametrize("device", DEVICES)
def test_200_greedy_ids_of_every_stream_are_the_same(device):
    said = []
    for engine in engines(SIZES[0], num_slots=5, device=device):
        rows, last, ids = prefilled(engine, [20, 400, 11, 252, 100]), [1, 2, 3, 4, 5], []
        for i in range(200):
            given = [
                Row(slot, at + i, [token]) for (slot, at), token in zip(rows, last, strict=True)
            ]
            last = np.concatenate(engine.step(given)).argmax(-1).tolist()
            ids.append(last)
        said.append(ids)
    assert said[0] == said[1]


def test_the_smallest_shape_is_taken_and_others_run_ragged():
    [engine] = engines(SIZES[0], num_slots=20, kinds=(GraphText,))
    text = engine.text
    assert text._row_counts() == [1, 4, 16, 20]
    assert text._lengths() == [256, 512, 700]
    assert text.fixed((), [Span(0, 255, 0, 1)]) == Fixed(1, 1, 256, True)
    assert text.fixed((), [Span(2, 255, 0, 2)]) == Fixed(1, 5, 512, False)
    assert text.fixed((), [Span(i, 600, i, 1) for i in (3, 0, 1)]) == Fixed(4, 1, 700, True)
    assert text.fixed((), [Span(i, 9, i, 9) for i in range(20)]) == Fixed(20, 9, 256, True)
    assert text.fixed((), [Span(0, 0, 0, 10)]) is None
    assert text.fixed(((0, torch.zeros(1, 40)),), [Span(0, 0, 0, 1)]) is None
    assert (NUM_ROWS, NUM_IDS) == ((1, 4, 16, 64), (1, 5, 9))


def test_padding_touches_nobody_s_memory():
    """Places without a row, and ids beyond a row's own, write into the spare slot alone; also at a
    slot's very end."""
    [engine] = engines(SIZES[0], num_slots=4, length=300, kinds=(GraphText,))
    slots = engine.slots
    rows = prefilled(engine, [296, 250, 100])
    before = slots.keys.clone(), slots.values.clone()
    engine.step([Row(rows[0][0], 299, [9]), Row(rows[2][0], 103, [9] * 4, num_logits=4)])
    for old, new in zip(before, (slots.keys, slots.values), strict=True):
        changed = (old != new).flatten(4).any(-1).any(0).any(1)  # [slots, positions]
        places = {(int(slot), int(at)) for slot, at in changed.nonzero() if slot != slots.spare}
        assert places == {(0, 299), (2, 103), (2, 104), (2, 105), (2, 106)}


def test_the_spare_slot_is_nobody_s():
    [engine] = engines(SIZES[0], num_slots=3, kinds=(GraphText,))
    assert sorted(engine.open() for _ in range(3)) == [0, 1, 2]
    assert engine.slots.spare == 3
    assert engine.slots.keys.shape[1] == 4


@pytest.mark.parametrize("device", DEVICES)
def test_logits_outlive_the_next_step(device):
    [engine] = engines(SIZES[0], device=device, kinds=(GraphText,))
    [(slot, at)] = prefilled(engine, [30])
    first = engine.step([Row(slot, at, [7])])[0]
    kept = first.copy()
    engine.step([Row(slot, at + 1, [8])])
    assert np.array_equal(first, kept)


@pytest.mark.parametrize("device", DEVICES)
def test_in_one_shape_company_changes_no_bit(device):
    """With one entry in num_ids a draft's step and a block's are one shape: the same bits alone,
    cut, in company."""
    [engine] = engines(SIZES[1], num_slots=4, device=device, kinds=(GraphText,), num_ids=(5,))
    rows, ids = prefilled(engine, [40, 90, 10, 200]), ids_of(5, 3)
    others = [Row(slot, at, ids_of(3, i)) for i, (slot, at) in enumerate(rows[1:])]
    slot, at = rows[0]
    block = engine.step([Row(slot, at, ids, num_logits=5), *others])[0]
    one = [engine.step([Row(slot, at + i, [token]), *others[:2]])[0] for i, token in enumerate(ids)]
    assert np.array_equal(block, np.concatenate(one))


@pytest.mark.parametrize("device", DEVICES)
def test_bfloat16_runs_and_stays_near(device):
    out = []
    for dtype in (torch.bfloat16, torch.float32):
        [engine] = engines(SIZES[1], dtype=dtype, device=device, kinds=(GraphText,))
        rows = prefilled(engine, [20, 300])
        out.append(
            np.concatenate(
                engine.step([Row(slot, at, ids_of(5, 1), num_logits=5) for slot, at in rows])
            )
        )
    assert out[0].dtype == np.float32
    assert np.isfinite(out[0]).all()
    correlation = np.corrcoef([part.flatten() for part in out])[0, 1]
    assert 0.9 < correlation < 1 - 1e-9


@needs_gpu
def test_every_shape_is_captured_ahead():
    [engine] = engines(SIZES[0], num_slots=6, device="cuda", kinds=(GraphText,))
    assert engine.text.prepare() == (2 * 2 + 1) * len(NUM_IDS) * 3
    assert all(step._graph is not None for step in engine.text._steps.values())


@pytest.mark.skipif(torch.cuda.is_available(), reason="tells that there is no GPU")
@pytest.mark.parametrize(
    "command",
    [
        ["describe", "--device", "cuda", "samples/one.wav"],
        ["verifier", "--device", "cuda", "--port", "0"],
    ],
    ids=lambda c: c[0],
)
def test_no_gpu_is_one_clear_line(command, samples, capsys):
    assert main([str(samples[0]) if word.endswith(".wav") else word for word in command]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    [told] = [line for line in err.splitlines() if not line.startswith("loading ")]
    assert "device cuda: there is no GPU that torch" in told
    assert "take --device cpu" in told


def test_a_whole_model_loads_for_the_cpu_as_before(tiny_pair):
    assert not isinstance(load(str(tiny_pair[0]), "edge").engine.text, GraphText)
