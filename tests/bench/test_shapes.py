"""bench/shapes.py: a directory that everything takes for a release's."""

import json
import shutil
import sys

import pytest

from bench import shapes
from streamer.model.checkpoint.layout import check_layout
from streamer.model.checkpoint.tokenizer import Tokenizer, vocabulary_of
from streamer.model.thinker import load, shapes_of


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    out = tmp_path_factory.mktemp("shapes") / "toy"
    shapes.write_model(out, shapes.SIZES["toy"], shard_bytes=10_000_000)
    return out


def test_it_is_in_the_published_layout(made):
    index = json.loads((made / "model.safetensors.index.json").read_text())
    assert len(set(index["weight_map"].values())) > 1
    assert all(name.startswith("thinker.") for name in index["weight_map"])
    assert shapes_of(made) == shapes.SIZES["toy"]
    num_bytes = sum(entry.num_bytes for entry in check_layout(made, shapes_of(made)))
    assert num_bytes == shapes.num_bytes(shapes.SIZES["toy"]) == index["metadata"]["total_size"]


def test_special_tokens_have_the_ids_of_the_release(made):
    tokenizer = Tokenizer.load(made)
    named = {"<|endoftext|>": 151643, "<|im_end|>": 151645, "<|AUDIO|>": 151646}
    named |= {"<|audio_bos|>": 151647, "<|audio_eos|>": 151648, "<|VIDEO|>": 151656}
    for token, i in named.items():
        assert tokenizer.encode(token) == [i]


def test_any_text_comes_back(made):
    text = "说话人语速很快，Hello wörld 123！😀\n  def f(x): return x"
    found, _ = Tokenizer.load(made).token_bytes(151_936)
    ids = Tokenizer.load(made).encode(text)
    assert b"".join(found[i] for i in ids).decode() == text
    assert len(ids) < len(text.encode()) / 1.5
    assert vocabulary_of(made, 151_936).num_ids == 151_936


@pytest.mark.filterwarnings("ignore::streamer.model.checkpoint.card.ModelWarning")
def test_it_loads(made):
    assert load(str(made), "edge", num_slots=1).num_params > 19_000_000


@pytest.mark.parametrize("size", ["3b", "7b"])
def test_the_published_sizes(size):
    """Parameters of the thinker without its eyes: text model, head and tower."""
    billions = shapes.num_bytes(shapes.SIZES[size]) / 2 / 1e9
    assert billions == pytest.approx({"3b": 4.03, "7b": 8.25}[size], abs=0.06)


def test_no_room_is_one_line(tmp_path, monkeypatch, capsys):
    usage = shutil.disk_usage(tmp_path)._replace(free=10**9)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    monkeypatch.setattr(sys, "argv", ["bench.shapes", "--size", "7b", "--out", str(tmp_path / "m")])
    with pytest.raises(SystemExit):
        shapes.main()
    assert "GB are needed" in capsys.readouterr().err
    assert not (tmp_path / "m").exists()
