"""Weights of 8 and 4 bits: as close as can be, the same bits in any company and from the disk."""

import shutil
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from streamer.cli import main
from streamer.describer import Describer
from streamer.extras.large import engine as kernel
from streamer.extras.large.engine import Prepared, pack
from streamer.model import thinker as memory
from streamer.model.checkpoint.weights import ModelError, ModelWarning, shapes_of
from streamer.model.engines.engine import Row
from streamer.model.thinker import BITS, load, weight_bytes


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
    groups = F.pad(x, (0, -x.shape[1] % form[1])).unflatten(1, (-1, form[1])).numpy()
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
    pairs = [[np.asarray(t.engine.tower.encode(mel)) for t in (thinker, plain)]]
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


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("STREAMER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def model(tiny_pair):
    return tiny_pair[0]


def prepared_of(model, engine="int8"):
    return Prepared(model, shapes_of(model), engine)


def logits_of(model, engine):
    loaded = load(str(model), "edge", num_slots=1, engine=engine).engine
    return loaded.step([Row(loaded.open(), len(loaded.prompt_ids), [7, 8, 9], num_logits=3)])[0]


@pytest.mark.parametrize("engine", ["int8", "int4"])
def test_it_is_the_same_bits(model, home, engine, capsys):
    wanted = logits_of(model, engine)
    assert main(["warm", "--cloud", str(model), "--engine", engine]) == 0
    at = prepared_of(model, engine).at
    assert capsys.readouterr().out.endswith(f" GB in {at}\n")
    assert list(at.parent.iterdir()) == [at]
    size = sum(file.stat().st_size for file in at.iterdir())
    # files have headers, and panels are filled up, which a large model does not see
    assert 0 < size - weight_bytes(shapes_of(model), engine) < 8_000 * len(list(at.iterdir()))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ModelWarning)
        assert np.array_equal(logits_of(model, engine), wanted)


@pytest.mark.parametrize("name", ["ends", "text.0"])
def test_a_damaged_one_is_told_and_not_used(model, home, name):
    """One file is cut short, the other is gone."""
    wanted, prepared = logits_of(model, "int8"), prepared_of(model)
    prepared.write(lambda done, total: None)
    data = (prepared.at / name).read_bytes()
    (prepared.at / name).unlink()
    if name == "ends":
        (prepared.at / name).write_bytes(data[:-5])
    with pytest.warns(ModelWarning, match=f"{name} cannot be read .*streamer warm") as told:
        assert np.array_equal(logits_of(model, "int8"), wanted)
    assert "\n" not in str(told[0].message)


def test_no_room_is_told_before_any_work(model, home, monkeypatch, capsys):
    usage = shutil.disk_usage(home.parent)._replace(free=1_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    assert main(["warm", "--cloud", str(model), "--engine", "int8"]) == 1
    told = capsys.readouterr().err
    assert "GB are needed" in told
    assert "STREAMER_CACHE" in told
    assert told.count("\n") == 1
    assert not [path for path in home.rglob("*") if path.is_file()]


def test_of_a_run_that_is_killed_nothing_is_used_and_nothing_stays(model, home):
    prepared = prepared_of(model)
    killed = """import os, sys
from pathlib import Path
from streamer.extras.large.engine import Prepared
from streamer.model.checkpoint.weights import shapes_of
model = Path(sys.argv[1])
Prepared(model, shapes_of(model), "int8").write(lambda done, total: done < 3 or os.abort())"""
    assert subprocess.run([sys.executable, "-c", killed, str(model)]).returncode < 0
    assert not prepared.at.exists()
    assert list(prepared.at.parent.iterdir())
    prepared.at.with_name(prepared.at.name[:-1] + "0").mkdir()
    for _ in range(2):  # once over the one that is there
        prepared.write(lambda done, total: None)
        assert list(prepared.at.parent.iterdir()) == [prepared.at]


def test_too_little_memory_is_told(model, monkeypatch):
    shapes = shapes_of(model)
    needed = weight_bytes(shapes, "fast") * memory.PEAK
    monkeypatch.setattr(memory, "free_bytes", lambda: needed)
    memory.check_memory(model, shapes, "fast", 0)
    with pytest.raises(ModelError, match=r"are needed, .* GB are free; take a machine with more"):
        memory.check_memory(model, shapes, "fast", 1)
