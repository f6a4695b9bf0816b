"""Weights of 8 bits: as close as 8 bits can be, the same bits in any company and however ids are
cut."""

import numpy as np
import pytest
import torch

from streamer.config import Config, ConfigError
from streamer.describer import Describer
from streamer.model.engines.engine import Row
from streamer.model.engines.int8 import Packed
from streamer.model.thinker import load


def drawn(*size, seed=0):
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def thinker(tiny_pair):
    return load(str(tiny_pair[1]), "cloud", num_slots=3, engine="int8")


@pytest.mark.parametrize(
    ("out", "inner"), [(64, 64), (30, 20), (1, 1), (7, 33), (96, 11), (4_100, 32)]
)
def test_as_close_as_eight_bits(out, inner):
    """Half a step of each weight's scale, bfloat16's rounding of scale and result: no more may be
    lost."""
    weight, x = drawn(out, inner), drawn(5, inner, seed=2).bfloat16()
    got, wanted = Packed(weight).times(x).float(), x.float() @ weight.T
    steps = weight.abs().amax(-1) / 127 * (0.5 + 2**-8 * 127)
    bound = x.float().abs().sum(-1, keepdim=True) * steps + 2**-7 * wanted.abs() + 1e-6
    assert got.shape == wanted.shape
    assert ((got - wanted).abs() <= bound).all()


def test_a_row_of_zeros_stays_zero():
    weight = drawn(3, 40)
    weight[1] = 0
    out = Packed(weight).times(drawn(2, 40, seed=1).bfloat16())
    assert torch.isfinite(out).all()
    assert (out[:, 1] == 0).all()


@pytest.mark.parametrize("n", [2, 3, 5, 8, 17, 64])
def test_a_row_is_the_same_bits_in_any_company(n):
    packed, x = Packed(drawn(160, 96)), drawn(n, 96, seed=n).bfloat16()
    assert torch.equal(packed.times(x), torch.cat([packed.times(row[None]) for row in x]))


def ids_of(n, seed):
    return torch.randint(0, 900, (n,), generator=torch.Generator().manual_seed(seed)).tolist()


@pytest.mark.parametrize("cut", [[1] * 40, [1, 5, 2, 9, 1, 1, 21], [33, 7]])
def test_logits_are_the_same_bits_however_ids_are_cut(thinker, cut):
    engine, ids, n = thinker.engine, ids_of(40, 1), len(thinker.engine.prompt_ids)
    slot, other = engine.open(), engine.open()
    whole = engine.step([Row(slot, n, ids, num_logits=40), Row(other, n, ids_of(3, 2))])[0]
    out, at = [], 0
    for piece in cut:
        out += engine.step([Row(other, n + at, ids[at : at + piece], num_logits=piece)])
        at += piece
    engine.close(slot)
    engine.close(other)
    assert np.array_equal(np.concatenate(out), whole)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
async def test_exact_equals_the_cloud_on_the_shipped_pair(samples, temperature):
    said = {}
    for mode in ("cloud", "exact"):
        async with Describer.open(
            mode=mode, engine="int8", temperature=temperature, seed=3
        ) as describer:
            said[mode] = [(await describer.describe(clip)).ids for clip in samples]
    assert said["exact"] == said["cloud"]
    assert all(said["cloud"])


def test_only_on_a_cpu():
    with pytest.raises(ConfigError, match="engine int8 is for the CPU only"):
        Config(engine="int8", device="cuda")
