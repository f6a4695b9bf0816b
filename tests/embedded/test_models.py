"""The training's forward is the stock's, exports load everywhere, silence is no speech."""

import random

import numpy as np
import pytest
import torch

from pipelines.embedded.batches import batch_of
from pipelines.embedded.data import Turn
from pipelines.embedded.export import export
from pipelines.embedded.labels import ATTRIBUTES, NUM_LEVELS
from pipelines.embedded.model import SIZES, create, in_windows, tower
from pipelines.embedded.prompted import Prompted, logits
from pipelines.embedded.sentences import LANGUAGES, MARKS, no_speech, sentence
from streamer.model.engines.load import load_stock
from streamer.model.thinker import load, resolve


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
    """Turns of other lengths in one batch, padded, change nothing."""
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
    assert ours.num_params == sum(sizes)


def silences():
    """Noise, hum, tones, music-like chords, breathing, nothing: as (name, log-mel)."""
    from pipelines.embedded.data import Composer

    class NoVoices:
        sessions, names = {}, []

    composer = Composer(NoVoices(), seed=99)
    cases = [(n, random.Random(f"{n}/{i}")) for n in (200, 600, 2000) for i in range(6)]
    return [composer.silence(*case).mel for case in cases]


@pytest.mark.parametrize("role", ["edge", "cloud"])
def test_the_shipped_models_know_when_nobody_speaks(role):
    """The second line of defence after voice activity."""
    model, prompted = load_stock(resolve("embedded", role)), Prompted()
    said = [spoken(model, prompted, torch.from_numpy(mel)) for mel in silences()]
    right = said.count("".join(no_speech()))
    assert right >= 0.94 * len(said), said


def spoken(model, prompted, mel):
    """The sentence that transformers generates of a log-mel [n_frames, 128]."""
    audio = torch.full((in_windows([mel])[2][0],), model.config.audio_token_id)
    ids = torch.cat([prompted.prefix, audio, prompted.suffixes["zh"]])[None]
    more = {"feature_attention_mask": torch.ones(1, len(mel), dtype=torch.long)}
    found = model.generate(ids, input_features=mel.T[None], max_new_tokens=64, **more)[0]
    return prompted.tokenizer.decode(found[ids.shape[1] :].tolist())


@pytest.mark.parametrize("language", list(LANGUAGES))
def test_a_sentence_reads_back_and_says_no_word_twice(language):
    prompted = Prompted()
    for seed in range(1000):
        rng = random.Random(seed)
        levels = {name: rng.randrange(n) for name, n in NUM_LEVELS.items()}
        prominence = {name: rng.gauss(0, 1) for name in ATTRIBUTES}
        words = sentence(levels, prominence, rng, language)
        text = "".join(words)
        assert prompted.levels(text, language) == levels, text
        said = [word for word in words if word not in MARKS]
        assert len(set(said)) == len(said), text
        assert text.index(LANGUAGES[language].end) == len(text) - 1
