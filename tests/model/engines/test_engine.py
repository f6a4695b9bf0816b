"""The engine against transformers' own modules: the tower, ragged rows, rollback, slots."""

import numpy as np
import pytest
import torch

from streamer.model.engines.engine import Row, SlotsFull
from streamer.model.engines.load import load_stock
from streamer.model.thinker import load


@pytest.fixture(scope="module")
def thinker(tiny_pair):
    return load(str(tiny_pair[1]), "cloud", num_slots=3)


def ids_of(n, seed, num_ids=900):
    return torch.randint(0, num_ids, (n,), generator=torch.Generator().manual_seed(seed)).tolist()


def test_slots_are_bounded_and_come_back(thinker):
    engine = thinker.engine
    taken = [engine.open() for _ in range(3)]
    with pytest.raises(SlotsFull, match="3 KV slots"):
        engine.open()
    for slot in taken:
        engine.close(slot)
    assert engine.num_free == 3
    with pytest.raises(KeyError):
        engine.close(0)


@pytest.mark.parametrize("role", [0, 1])
@torch.inference_mode()
def test_ragged_rows_and_a_rollback_say_what_the_stock_model_says(tiny_pair, role):
    """Its features of the sound are the same, too. The logits are those of each row's whole text."""
    engine = load(str(tiny_pair[role]), "edge", num_slots=3).engine
    stock, ids, prompt = load_stock(tiny_pair[role]), ids_of(60, 9), engine.prompt_ids
    windows = torch.randn(2, 128, 200, generator=torch.Generator().manual_seed(9))
    a, b, n = engine.open(), engine.open(), len(prompt)
    first, second = engine.encode(windows)
    rows = [Row(a, n, [0] * 50 + ids[:2], first, num_logits=2), Row(b, n, ids[:7])]
    out = [*engine.step(rows)]
    rows = [Row(b, n + 7, [0] * 50, second, num_logits=0), Row(a, n + 52, ids[2:9], num_logits=7)]
    out += engine.step(rows)
    rows = [Row(a, n + 54, ids[20:25], num_logits=5), Row(b, n + 57, ids[7:8])]
    out += engine.step(rows)
    size = torch.tensor([200])
    heard = [stock.model.audio_tower(w, feature_lens=size).last_hidden_state for w in windows]
    told = ((heard[0], ids[:2]), (ids[:7],), (heard[0], ids[:9]))
    told += ((heard[0], ids[:4], ids[20:25]), (ids[:7], heard[1], ids[7:8]))
    embed = stock.get_input_embeddings()
    for got, parts in zip([logits for logits in out if len(logits)], told, strict=True):
        x = [p if torch.is_tensor(p) else embed(torch.tensor(p)) for p in (list(prompt), *parts)]
        hidden = stock.model.language_model(inputs_embeds=torch.cat(x)[None]).last_hidden_state[0]
        wanted = stock.lm_head(hidden[-len(got) :])
        np.testing.assert_allclose(got, wanted, atol=2e-4, rtol=1e-5)
        assert np.array_equal(got.argmax(-1), wanted.argmax(-1))
