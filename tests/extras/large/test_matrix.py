"""Weights of 8 and 4 bits: as close as can be, and the same bits in any company."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from streamer.describer import Describer
from streamer.extras.large import engine as kernel
from streamer.extras.large.engine import pack
from streamer.model.checkpoint.layout import BITS
from streamer.model.engines.engine import Row
from streamer.model.thinker import load


def whole_numbers(matrix, form):
    """[out, groups, group] int64: what its bytes say, read as Matrix's docstring tells."""
    data = matrix.data.numpy()
    fours = data.reshape(*data.shape[:3], 1, 16, 4).astype(np.int64)
    if form[0] == 4:
        fours = np.concatenate([fours & 15, fours >> 4], 3) - 8
    # [panels, groups, lines, fours of a line, columns, 4]
    columns = fours.transpose(0, 4, 1, 2, 3, 5).reshape(-1, data.shape[1], form[1])
    return columns[: int(matrix.size[0])]


def product(matrix, form, x, bias=0):
    """As the kernel promises: rounded groups, exact sums, one rounding of each group's part."""
    f4, wide = np.float32, np.longdouble
    inner = x.shape[1]
    groups = F.pad(x, (0, -inner % form[1])).unflatten(1, (-1, form[1])).numpy()
    largest = np.maximum(np.abs(groups).max(-1), f4(1e-30))
    q = np.rint(groups * (f4(127) / largest)[..., np.newaxis]).astype(np.int64)
    sums = np.einsum("rgk,cgk->grc", q, whole_numbers(matrix, form)).astype(f4)
    total, scales = np.zeros(sums.shape[1:], f4), matrix.scales.transpose(1, 2).flatten(0, 1)
    for g, part in enumerate(sums):
        scale = scales[: int(matrix.size[0]), g].numpy() * (largest[:, g] / f4(127))[:, np.newaxis]
        total = (part.astype(wide) * scale.astype(wide) + total).astype(f4)
    return torch.from_numpy(total) + bias


def drawn(*size, seed=0):
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module", params=BITS)
def thinker(tiny_pair, request):
    return load(str(tiny_pair[1]), "cloud", num_slots=3, engine=request.param)


FORM = pytest.mark.parametrize("form", BITS.values(), ids=list(BITS))


@FORM
@pytest.mark.parametrize(("out", "inner"), [(64, 64), (1, 1), (7, 133), (40, 700), (4_100, 32)])
@pytest.mark.parametrize("n", [1, 5, 12, 20])
def test_a_product_is_that_of_the_rounded_weights(n, out, inner, form):
    x, bias = drawn(n, inner, seed=2), drawn(out, seed=3)
    matrix = pack(drawn(out, inner), *form)
    assert torch.equal(matrix.times(x, bias), product(matrix, form, x, bias))


def ids_of(n, seed):
    return torch.randint(0, 900, (n,), generator=torch.Generator().manual_seed(seed)).tolist()


def test_logits_are_the_same_bits_however_ids_are_cut(thinker, monkeypatch):
    engine, n, ids = thinker.engine, len(thinker.engine.prompt_ids), ids_of(150, 1)
    slot, other = engine.open(), engine.open()
    monkeypatch.setattr(kernel, "num_threads", lambda: 1)
    rows = [Row(slot, n, ids, num_logits=150), Row(other, n, ids_of(3, 2))]
    whole = np.array(engine.step(rows)[0])
    cuts = ([1] * 150, [1, 5, 2, 9, 1, 1, 131], [33, 117])
    for threads, cut in [(1, cuts[1]), (2, cuts[2]), (5, cuts[1]), (2, cuts[0]), (5, [150])]:
        monkeypatch.setattr(kernel, "num_threads", lambda of=threads: of)
        out, at = [], 0
        for piece in cut:
            out += engine.step([Row(slot, n + at, ids[at : at + piece], num_logits=piece)])
            at += piece
        assert np.array_equal(np.concatenate(out), whole)
    engine.close(slot)
    engine.close(other)


def test_it_hears_and_speaks_as_the_plain_weights_do(tiny_pair, thinker, request):
    """Within 3 % in 8 bits, 30 % in 4: random weights have no structure."""
    bound = 0.03 if "int8" in request.node.name else 0.3
    plain = load(str(tiny_pair[1]), "cloud", num_slots=1)
    mel = drawn(2, 128, 200).numpy()
    pairs = [[np.asarray(t.engine.encode(mel)) for t in (thinker, plain)]]
    row = Row(0, len(plain.engine.prompt_ids), ids_of(20, 5), num_logits=20)
    pairs.append([t.engine.step([row._replace(slot=t.engine.open())])[0] for t in (thinker, plain)])
    thinker.engine.close(0)
    for got, wanted in pairs:
        assert got.shape == wanted.shape
        assert np.linalg.norm(got - wanted) <= bound * np.linalg.norm(wanted)


@pytest.mark.parametrize("name", ["int8", pytest.param("int4", marks=pytest.mark.long)])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
async def test_exact_equals_the_cloud_on_the_shipped_pair(samples, temperature, name):
    said = {}
    for mode in ("cloud", "exact"):
        async with Describer.open(
            mode=mode, engine=name, temperature=temperature, seed=3
        ) as describer:
            said[mode] = [(await describer.describe(clip)).ids for clip in samples]
    assert said["exact"] == said["cloud"]
    assert all(said["cloud"])
