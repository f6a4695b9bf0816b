"""Weights of 8 and 4 bits: as close as they can be, the same bits in any company and however ids
are cut."""

import numpy as np
import pytest
import torch

from streamer.config import Config, ConfigError
from streamer.describer import Describer
from streamer.model.engines.engine import Row
from streamer.model.engines.few_bits import FORMS, pack
from streamer.model.engines.few_bits_graphs import Graph
from streamer.model.engines.few_bits_model import Part, even
from streamer.model.thinker import load

ENGINES = list(FORMS)


def drawn(*size, seed=0):
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module", params=ENGINES)
def engine(request):
    return request.param


@pytest.fixture(scope="module")
def thinker(tiny_pair, engine):
    return load(str(tiny_pair[1]), "cloud", num_slots=3, engine=engine)


def product(weight, form, bias=None):
    graph = Graph(form)
    x = graph.take("x", weight.shape[1])
    return Part(graph.bytes(graph.times(x, weight, bias), len(weight)))


@pytest.mark.parametrize("form", FORMS.values(), ids=ENGINES)
@pytest.mark.parametrize(("out", "inner"), [(64, 64), (30, 20), (1, 1), (7, 133), (4_100, 32)])
def test_a_weight_is_at_most_a_step_off(out, inner, form):
    weight = drawn(out, inner)
    packed = pack(weight, form)
    steps = np.repeat(np.abs(packed.scales), form.group, -1)[:, :inner]
    off = np.abs(packed.plain() - weight.numpy())
    # the end of the range that reaches less far is one step short of the largest weight
    assert (off <= (1.01 if form.bits == 8 else 2.01) * steps).all()
    assert np.median(off / steps) < 0.5


@pytest.mark.parametrize("form", FORMS.values(), ids=ENGINES)
@pytest.mark.parametrize(("out", "inner"), [(64, 64), (30, 20), (96, 200), (4_100, 32)])
def test_a_product_is_that_of_the_rounded_weights(out, inner, form):
    """Activations are rounded to 8 bits in the same groups: half a step of each, no more is lost."""
    weight, x, bias = drawn(out, inner), drawn(6, inner, seed=2), drawn(out, seed=3)
    got = product(weight, form, bias).run(x=x).numpy()
    plain = pack(weight, form).plain()
    groups = np.split(np.arange(inner), range(form.group, inner, form.group))
    steps = [np.abs(x.numpy()[:, g]).max(-1)[:, None] / 127 for g in groups]
    sums = [np.abs(plain[:, g]).sum(-1)[None] for g in groups]
    bound = sum(0.51 * step * total for step, total in zip(steps, sums, strict=True)) + 1e-4
    assert (np.abs(got - (x.numpy() @ plain.T + bias.numpy())) <= bound).all()


@pytest.mark.parametrize("form", FORMS.values(), ids=ENGINES)
def test_a_row_of_zeros_stays_zero(form):
    weight = drawn(4, 40)
    weight[1] = 0
    out = product(weight, form).run(x=drawn(2, 40, seed=1))
    assert torch.isfinite(out).all()
    assert (out[:, 1] == 0).all()


@pytest.mark.parametrize("form", FORMS.values(), ids=ENGINES)
@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 17, 64])
def test_a_row_is_the_same_bits_in_any_company(n, form):
    part, x = product(drawn(160, 96), form), drawn(n, 96, seed=n)
    alone = torch.cat([part.run(x=even(row[None]))[:1] for row in x])
    assert torch.equal(part.run(x=even(x))[:n], alone)


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


def test_it_hears_and_speaks_as_the_plain_weights_do(tiny_pair, thinker, engine):
    """The tower's embeddings and the logits, in 8 bits within 3 %, in 4 within 40 %: random weights
    have no structure that rounding would spare."""
    bound = 0.03 if engine == "int8" else 0.4
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


@pytest.mark.parametrize("name", ENGINES)
def test_only_on_a_cpu(name):
    with pytest.raises(ConfigError, match=f"engine {name} is for the CPU only"):
        Config(engine=name, device="cuda")
