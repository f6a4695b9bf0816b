"""The kernels equal torch, and a row's bits depend on nothing but its own ids; compiled ones on disk:
which directories are trusted, and what a bad one costs.
"""

import functools
import os
import resource
import shutil
import stat
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import ended

from streamer.model.audio.mel import num_embeddings
from streamer.model.checkpoint.weights import AudioShape, ModelWarning, TextShape, expected
from streamer.model.engines.engine import Engine, FastText, FastTower, Row
from streamer.model.engines.load import AudioTower, StableText, TextModel
from streamer.model.kernels.library import kernel_directory

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


STREAMER = Path(sys.executable).with_name("streamer")
SAMPLE = Path("samples/plain.wav").absolute()
ANOTHER = 12_345  # a user
DESCRIBE = f"import streamer; print(streamer.describe({str(SAMPLE)!r}).stop_reason)"
DOORS = {
    "the command": [STREAMER, "describe", "--quiet", SAMPLE],
    "a notebook": [sys.executable, "-P", "-c", DESCRIBE],
    "workers": [STREAMER, "label", SAMPLE, "--jobs", "2", "--out", "rows.jsonl"],
}


@pytest.mark.parametrize("door", DOORS)
def test_nothing_of_the_working_directory_is_read(door, tmp_path):
    (tmp_path / ".numba_config.yaml").write_text("[cache_dir, here]\n")
    for name in ("numpy", "yaml", "pickle", "multiprocessing", "anyio"):
        (tmp_path / f"{name}.py").write_text("open('it_ran', 'w').close()\n")
    done = ended(*DOORS[door], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert not [*tmp_path.rglob("it_ran"), *tmp_path.rglob("*.nb?")]


SPOILERS = {  # what happens to a directory, and why it is not used then
    "shared": (lambda path: path.chmod(0o777), "can be written by others"),
    "given away above": (
        lambda path: os.chown(path.parent, ANOTHER, ANOTHER),
        "belongs to another user",
    ),
}


@pytest.mark.parametrize("spoiler", SPOILERS)
def test_what_others_could_have_written_is_not_used(spoiler, tmp_path, monkeypatch):
    spoil, why = SPOILERS[spoiler]
    if "given" in spoiler and os.geteuid() != 0:
        pytest.skip("only root gives files away")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "chosen"))
    chosen, is_kept = kernel_directory.__wrapped__()
    assert is_kept
    assert {stat.S_IMODE(path.stat().st_mode) for path in (chosen, chosen.parent)} == {0o700}
    spoil(chosen)
    with pytest.warns(ModelWarning, match=why) as told:
        assert not kernel_directory.__wrapped__()[1]
    assert len(told) == 1
    assert str(chosen.parent) in str(told[0].message)


NUMBERS = """
import numpy as np
from streamer.model.kernels.library import kernel
random = np.random.default_rng(0)
w = random.normal(0, .1, 40 * 32).astype(np.float32)
x, y = random.normal(0, 1, 3 * 40).astype(np.float32), np.zeros(3 * 32, np.float32)
kernel("filter rows")(x, w, np.array([3, 40, 32]), y)
print(y.tobytes().hex())
"""


def run(folder, limit=resource.RLIM_INFINITY):
    """stdout and stderr of NUMBERS with kernels in `folder`, where files have at most `limit` bytes."""
    limited = functools.partial(resource.setrlimit, resource.RLIMIT_FSIZE, (limit, limit))
    env = os.environ | {"NUMBA_CACHE_DIR": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    done = ended(sys.executable, "-c", NUMBERS, env=env, preexec_fn=limited)
    return done.stdout, done.stderr


def test_a_file_that_was_cut_is_made_anew_and_a_full_disk_is_one_line(tmp_path):
    directory = kernel_directory()[0]
    there = tmp_path / "streamer" / "kernels"
    file = shutil.copytree(directory, there / directory.name) / "filter rows.o"
    for path in (tmp_path / "streamer", there, file.parent):
        path.chmod(0o700)
    wanted = run(tmp_path)
    file.write_bytes(file.read_bytes()[:-1])
    out, told = run(tmp_path, limit=10)
    assert out == ""
    assert "File too large); make room there" in told.splitlines()[-1]
    assert run(tmp_path) == wanted
