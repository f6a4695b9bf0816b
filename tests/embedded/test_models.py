"""The training's forward is the stock's, and exports load everywhere."""

import random

import numpy as np
import torch

from pipelines.embedded.batches import batch_of
from pipelines.embedded.data import Turn
from pipelines.embedded.export import export
from pipelines.embedded.model import SIZES, create, in_windows, tower
from pipelines.embedded.prompted import Prompted, logits
from pipelines.embedded.sentences import no_speech
from streamer.model.checkpoint.layout import check_layout
from streamer.model.engines.load import load_stock
from streamer.model.thinker import load


def test_the_training_tower_is_the_stock_tower():
    model = create(SIZES["edge"], seed=1).eval()
    chance = np.random.default_rng(1)
    mels = [
        torch.from_numpy(chance.normal(0, 1, (n, 128)).astype(np.float32))
        for n in (90, 200, 431, 402, 203)
    ]
    with torch.inference_mode():
        windows, lengths, counts = in_windows(mels)
        flat = tower(model.model.audio_tower, windows, lengths)
        for mel, own in zip(mels, flat.split(counts), strict=True):
            lengths = torch.tensor([len(mel)])
            after = model.model.audio_tower._get_feat_extract_output_lengths(lengths)
            stock = model.model.audio_tower(
                mel.T, feature_lens=lengths, aftercnn_lens=after[0]
            ).last_hidden_state
            torch.testing.assert_close(own, stock, atol=1e-5, rtol=1e-5)


def test_answers_learn_from_the_rows_that_the_stock_model_reads():
    model, prompted = create(SIZES["edge"], seed=1).eval(), Prompted()
    chance = np.random.default_rng(1)
    turns = []
    for n, language in ((90, "zh"), (431, "en"), (200, "zh")):
        mel, tracks = chance.normal(0, 1, (n, 128)), np.zeros((n, 5), np.float32)
        words = no_speech(language)
        turns.append(Turn(mel.astype(np.float32), tracks, words, None, None, "none", language))
    straight = random.Random(1)
    straight.random = lambda: 1.0  # no jump in the positions
    batch = batch_of(turns, prompted, straight)
    with torch.inference_mode():
        heard = tower(model.model.audio_tower, batch.windows.float(), batch.lengths)
        _, said = logits(model, heard, batch.rows)
        embed = model.model.language_model.embed_tokens
        for i, turn in enumerate(turns):
            answer = prompted.answer(turn)
            before, after = embed(prompted.prefix), embed(prompted.suffixes[turn.language])
            audio = heard[batch.owner == i]
            row = torch.cat([before, audio, after, embed(answer[:-1])])[None]
            stock = model.model.language_model(inputs_embeds=row).last_hidden_state[0]
            mine, said = said[: len(answer)], said[len(answer) :]
            own = model.lm_head(stock[-len(answer) :])
            torch.testing.assert_close(mine, own, atol=1e-4, rtol=1e-4)
    assert len(batch.frames) == len(heard)


def test_an_export_loads_in_transformers_and_here(tmp_path):
    model = create(SIZES["edge"], seed=2).eval()
    export(model, "edge", tmp_path / "edge")
    stock, ours = load_stock(tmp_path / "edge"), load(str(tmp_path / "edge"), "edge")
    half = {name: weight.half().float() for name, weight in model.state_dict().items()}
    assert all(torch.equal(weight, half[name]) for name, weight in stock.state_dict().items())
    assert ours.card.max_turn_s >= 60
    used = ("model.language_model", "model.audio_tower", "lm_head")
    sizes = [w.numel() for n, w in stock.named_parameters() if n.startswith(used)]
    assert check_layout(tmp_path / "edge", ours.shapes)[0] == sum(sizes)
