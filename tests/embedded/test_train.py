"""The training's forward is the stock's, exports load everywhere; the whole recipe in miniature; its
data: voices apart, labels of known signals, recordings of people, syllables.
"""

import importlib
import json
import random
import sys

import numpy as np
import pytest
import torch
from people import FILTERS, SENTENCES, clone_into

from pipelines.embedded import people, recordings, synthesis, train
from pipelines.embedded.batches import batch_of
from pipelines.embedded.data import Turn
from pipelines.embedded.export import export
from pipelines.embedded.labels import measured
from pipelines.embedded.model import SIZES, create, in_windows, tower
from pipelines.embedded.people_held import half
from pipelines.embedded.phones import NUM_NUCLEI, phones
from pipelines.embedded.prompted import Prompted, logits
from pipelines.embedded.rate_fit import is_apart
from pipelines.embedded.recordings import clips, decoded, held_out
from pipelines.embedded.sentences import no_speech
from pipelines.embedded.speak import SAMPLE_RATE, voices
from pipelines.embedded.syllables import count
from streamer.model.audio.density import WEIGHTS
from streamer.model.checkpoint.weights import checked
from streamer.model.engines.load import load_stock
from streamer.model.thinker import load


def names(wanted, num):
    """The first `num` speakers of whom this holds."""
    found = (f"speaker{i}" for i in range(10_000))
    return [name for name in found if wanted(name)][:num]


@pytest.fixture
def clones(tmp_path, monkeypatch):
    """People of the training side, one of them kept apart, and two of each half that is held out."""
    apart = names(lambda name: is_apart({"speaker": name}), 1)
    learnt = names(lambda name: not is_apart({"speaker": name}), 3)
    others = names(lambda name: name not in (*apart, *learnt), 12)
    held = [name for part in (0, 1) for name in [n for n in others if half(n) == part][:2]]
    folder, source = clone_into(tmp_path / "clones", [*learnt, *apart, *held])
    rows = {**source, "id": "common-voice-zh", "held_speakers": held, "licence": "CC0-1.0"}
    rows |= {"singles": 6, "gate_singles": 4, "joins": True}
    rows = "\n".join(f"{k} = {json.dumps(v)}" for k, v in (rows | {"credit": "nobody"}).items())
    filters = "\n".join(f"{name} = {value}" for name, value in FILTERS.items())
    table = tmp_path / "recordings.toml"
    table.write_text(f"noise = []\n\n[filters]\n{filters}\n\n[[source]]\n{rows}\n", "utf-8")
    monkeypatch.setattr(recordings, "TABLE", table)
    return folder


@pytest.fixture
def done(monkeypatch):
    """The stages as they are asked for, in this process; what they change of it is put back."""
    told = []

    def run(module, *arguments):
        told.append(module)
        monkeypatch.setattr(sys, "argv", [module, *map(str, arguments)])
        name = module if "." in module else f"pipelines.embedded.{module}"
        importlib.import_module(name).main()
        torch.set_default_dtype(torch.float32)

    monkeypatch.setattr(train, "run", run)
    for module, name, value in (
        (train, "LENGTHS_S", (3,)),
        (synthesis, "SESSIONS_PER_SHARD", 2),
        (people, "SESSIONS_PER_SHARD", 4),
    ):
        monkeypatch.setattr(module, name, value)
    return told


@pytest.mark.long
def test_the_recipe_from_nothing(clones, done, tmp_path):
    measures = tmp_path / "measures"
    measures.mkdir()
    tiny = {"shards": 1, "people_shards": 1, "workers": 1, "rate_minutes": 0.02}
    tiny |= {"audio_s": 6, "steps": 2, "speakers": 8}
    tiny |= {"clips": 2, "risk": 0.9, "confidence": 0}
    tiny |= {"cache": tmp_path / "cache", "out": tmp_path / "out", "measures": measures}
    words = [f"--{name.replace('_', '-')}={value}" for name, value in tiny.items()]
    args = train.options([*words, f"--clones={clones}"])
    train.train(args)
    first = list(done)
    for role in ("edge", "cloud"):
        model = load(str(args.out / role), role)
        assert model.card.gate
        assert set(model.card.promises) == {"fluent", "quality"}
    with np.load(measures / "density.npz") as made, np.load(WEIGHTS) as shipped:
        assert {n: made[n].shape for n in made.files} == {n: shipped[n].shape for n in made.files}
    assert set(json.loads((measures / "level_errors.json").read_text())) == {
        "features", "errors", "arousal", "opinion"
    }  # fmt: skip
    page = (args.out / "MODEL_CARD.md").read_text("utf-8")
    assert all(title in page for title in ("voices never", "recorded people", "The gate", "nobody"))
    kept = {file: file.stat().st_mtime_ns for file in args.cache.rglob("*.json*")}
    kept = {file: at for file, at in kept.items() if file.parent.name != "report"}
    train.train(args)
    assert len(done) < 2 * len(first), "finished stages are skipped"
    assert {file: file.stat().st_mtime_ns for file in kept} == kept, "finished work is kept"


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
    chance, turns = np.random.default_rng(1), []
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
    assert checked(tmp_path / "edge")[1] == sum(sizes)


def tone(f0, seconds=2.0, gain=0.1, pauses=()):
    """A voiced sound of harmonics; `pauses` in seconds (from, to) are silent."""
    t = np.arange(int(seconds * SAMPLE_RATE)) / SAMPLE_RATE
    sound = sum(np.sin(2 * np.pi * f0 * k * t) / k for k in range(1, 20)) * gain
    for start, end in pauses:
        sound[int(start * SAMPLE_RATE) : int(end * SAMPLE_RATE)] = 0
    return sound.astype(np.float32)


def test_training_never_hears_a_held_out_voice():
    train, held = ({(v.engine, v.variant) for v in voices(side)} for side in (False, True))
    assert train.isdisjoint(held)
    assert {engine for engine, _ in held} == {"espeak", "flite"}


def test_pitch_loudness_pauses_and_rate_are_what_was_made():
    assert measured(tone(220), 10).pitch == pytest.approx(220, rel=0.02)
    quiet, loud = (measured(tone(150, gain=gain), 10) for gain in (0.02, 0.2))
    assert loud.loudness - quiet.loudness == pytest.approx(20.0, abs=0.1)
    paused = measured(tone(150, 4.0, pauses=((1.0, 1.5), (2.0, 2.5))), syllables=15)
    assert paused.pauses == pytest.approx(0.25, abs=0.03)
    assert paused.rate == pytest.approx(5.0, rel=0.05), "syllables over speech, pauses left out"
    with pytest.raises(ValueError, match="no voiced speech"):
        measured(np.random.default_rng(0).normal(0, 0.01, 32_000).astype(np.float32), 10)


@pytest.fixture(scope="module")
def cloned(tmp_path_factory):
    return clone_into(tmp_path_factory.mktemp("clones"))


def test_clips_come_from_the_commit_with_their_facts_and_a_speaker_is_on_one_side(cloned):
    clones, source = cloned
    found = clips(clones, source)
    assert len(found) == 24
    assert {clip.speaker for clip in found} == {f"person{i}" for i in range(8)}
    first = next(clip for clip in found if clip.path.endswith("/1_0.mp3"))
    assert (first.said.text, first.said.sex, first.said.language) == (SENTENCES[0], "f", "zh-CN")
    usable = list(decoded(found))
    assert len(usable) == 22, "the pointer and the one that is too soft are left out"
    assert all(samples.dtype == np.float32 and len(samples) > SAMPLE_RATE for _, samples in usable)

    sides = {}
    for clip in found:
        assert sides.setdefault(clip.speaker, clip.held) == clip.held
    share = np.mean([held_out(f"person{i}", source) for i in range(2000)])
    assert share == pytest.approx(1 / 7, abs=0.03)


@pytest.mark.parametrize(
    ("text", "language", "syllables"),
    [
        ("一会儿去那儿找儿子", "zh-CN", 7),
        ("快点，比赛马上就要开始了", "zh-CN", 11),
        ("這是什麼？", "zh-TW", 4),
        ("我有3个", "zh-CN", None),
        ("A little water.", "en", 5),
        ("The little boy could not hear every bottle of water.", "en", 14),
        ("Guten Morgen, Frau Müller", "de", 7),
        ("Wir haben keine neue Idee.", "de", 9),
        ("buenos días", "es", 4),
        ("Я считаю, к дому", "ru", 6),
        ("Võimalus kaitseb head meest.", "et", 7),
        ("Dažniausiai reikia vaiko.", "lt", 7),
        ("Una storia di noi, ma che paura!", "it", 11),
        ("Có khi nào nó theo thật", "vi", 6),
        ("The area had an idea of science", "en", 12),
        ("La escuadra regresó a La Habana", "es", 9),
        ("Os portos não são a sorte", "pt", 8),
        ("Els governs, la producció", "ca", 8),
        ("Zuiek eta ahari baten artean", "eu", 11),
        ("acum două săptămâni", "ro", 7),
        ("huit nuits cruelles", "fr", 4),
        ("kaikkien miehen", "fi", 5),
        ("महिलाओं के", "hi", 5),
        ("muli mutya ssebo omuto", "lg", 8),
        ("سلام", "fa", None),
        ("", "en", None),
    ],
)
def test_syllables_are_counted_where_they_can_be(text, language, syllables):
    """And each has its nucleus."""
    assert count(text, language) == syllables
    if syllables and "儿" not in text:  # such texts have no phones
        found = phones(text, language)
        assert sum(index <= NUM_NUCLEI for index in found) == syllables
        assert 0 not in found
