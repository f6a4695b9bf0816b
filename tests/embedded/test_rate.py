"""The syllable network's training: phones of a text, the two counts, a run that resumes."""

import json
import random
import shutil
import sys

import numpy as np
import pytest
import torch
from speech import recording

from pipelines.embedded import rate_fit, rate_tracks
from pipelines.embedded.data import Corpus
from pipelines.embedded.mel import raw_log_mel
from pipelines.embedded.phones import NUM_NUCLEI, phones
from pipelines.embedded.rate_data import write
from pipelines.embedded.rate_net import Conditions
from pipelines.embedded.syllables import count
from streamer.core.measures import density

espeak = pytest.mark.skipif(shutil.which("espeak-ng") is None, reason="needs espeak-ng")


@espeak
@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("The little boy could not hear every bottle of water.", "en"),
        ("快点，比赛马上就要开始了", "zh-CN"),
        ("Wir haben keine neue Idee.", "de"),
        ("muli mutya ssebo", "lg"),
    ],
)
def test_phones_have_a_nucleus_for_each_syllable(text, language):
    found = phones(text, language)
    assert sum(index <= NUM_NUCLEI for index in found) == count(text, language)
    assert 0 not in found


@espeak
def test_a_text_without_a_rule_has_no_phones():
    assert phones("42 people", "en") == []
    assert phones("hello", "xx") == []
    assert density.NUM_NUCLEI == NUM_NUCLEI


def clips(num, seed=0):
    """Noise that beats as often as its row says, as `rate_data` gives it."""
    chance = np.random.default_rng(seed)
    for i in range(num):
        seconds, rate = chance.uniform(1.5, 3), chance.uniform(2, 7)
        frames = np.arange(int(100 * seconds))
        beat = -3 + np.cos(2 * np.pi * rate * frames / 100)[:, None]
        bands = (beat + chance.normal(0, 0.2, (len(frames), density.NUM_BANDS))).astype(np.float32)
        row = {"speaker": f"p{i}", "source": "test", "language": "de", "syllables": rate * seconds}
        row |= {"seconds": seconds, "rate": rate, "phones": [1, 9] * round(rate * seconds)}
        yield row, (bands, np.ones(len(frames), bool), seconds)


def test_a_run_resumes_and_writes_weights_that_count(tmp_path, monkeypatch, capsys):
    write(tmp_path, 0, list(clips(60)))
    known = ["--data", tmp_path, "--run", tmp_path / "run", "--weights", tmp_path / "density.npz"]

    def do(*arguments):
        monkeypatch.setattr(sys, "argv", ["rate_fit", *arguments, *map(str, known)])
        rate_fit.main()

    monkeypatch.setattr(rate_fit, "set_rate", lambda *_: None)
    do("train", "--minutes", "0.01")
    first = torch.load(tmp_path / "run" / "last.pt", weights_only=True)
    do("train", "--minutes", str(first["seconds"] / 60 + 0.05))
    last = torch.load(tmp_path / "run" / "last.pt", weights_only=True)
    assert last["epoch"] > first["epoch"]
    do("write")
    do("judge")
    assert "German" in capsys.readouterr().out
    with np.load(tmp_path / "density.npz") as held:
        assert held["mixture"].shape == (2,)
        assert all(np.isfinite(held[name]).all() for name in held.files)


def test_speech_keeps_its_tempo(tmp_path):
    write(tmp_path, 0, list(clips(6)))
    row = rate_fit.Clips(tmp_path).rows[0]
    conditions = Conditions(None, 3)
    for _ in range(20):
        bands, speech, tempo = conditions(row["bands"], row["speech"])
        assert len(bands) == len(speech)
        assert speech.sum() == pytest.approx(row["speech"].sum() / tempo, abs=3)


def test_tracks_hold_the_syllables_of_the_text(tmp_path):
    mel = raw_log_mel(recording(2)[:48_000]).astype(np.float16)
    rows = [{"session": "a", "voice": "v", "syllables": None, "start": 0, "end": 200}]
    counted = rate_tracks.track(mel[200:], None, None).sum()
    rows += [{**rows[0], "syllables": 1.5 * float(counted), "start": 200, "end": 300}]
    for name, values in (("mel", mel), ("f0", np.zeros(300)), ("heard", mel)):
        np.save(tmp_path / f"00000.{name}.npy", values)
    (tmp_path / "00000.json").write_text(json.dumps(rows))
    assert np.isnan(Corpus(tmp_path).draw(random.Random(0))[0].syllables_in()).all()
    rate_tracks.write(tmp_path / "00000.json")
    first, second = Corpus(tmp_path).sessions["a"]
    assert first.syllables_in().shape == (200,)
    assert second.syllables_in().sum() == pytest.approx(1.5 * counted, rel=0.01)
