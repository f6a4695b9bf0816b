"""People's recordings as turns: a rate that is unknown is not learnt, and loudness is that of the
voice."""

import json
import random
import shutil

import numpy as np
import pytest
from people import FILTERS, SENTENCES, say

from pipelines.embedded.corpus import Corpus
from pipelines.embedded.data import Composer, as_loud
from pipelines.embedded.labels import frame_power
from pipelines.embedded.mel import raw_log_mel
from pipelines.embedded.people import sessions, write_shard
from pipelines.embedded.prompted import Prompted
from pipelines.embedded.sentences import LANGUAGES
from streamer.core.measures.frames import band_hz

pytestmark = pytest.mark.skipif(shutil.which("espeak-ng") is None, reason="needs espeak-ng")


@pytest.fixture(scope="module")
def corpus(cloned, tmp_path_factory):
    """Shards and noise made from the clone, as training makes them."""
    clones, source = cloned
    folder = tmp_path_factory.mktemp("people")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "pipelines.embedded.people.table",
            lambda: {"source": [source], "noise": [], "filters": FILTERS},
        )
        chunks = sessions(clones, 1)
    assert all(not clip.held for chunk in chunks for clip in chunk)
    write_shard(folder, 0, chunks, FILTERS, 1)
    return folder, chunks


def test_a_rate_that_nobody_knows_is_not_learnt(corpus, tmp_path):
    """Neither the rate nor the arousal that is made from it; all other words count."""
    folder, _ = corpus
    for file in folder.iterdir():
        shutil.copy(file, tmp_path / file.name)
    rows = json.loads((tmp_path / "00000.json").read_text())
    (tmp_path / "00000.json").write_text(json.dumps([{**row, "syllables": None} for row in rows]))
    turn = Composer(Corpus(tmp_path), seed=1).speech(600, random.Random(3))
    assert [name for name, level in turn.levels.items() if level is None] == ["rate", "arousal"]
    prompted = Prompted()
    known, ids = prompted.known(turn), prompted.answer(turn)
    assert len(known) == len(ids)
    left = prompted.tokenizer.decode(ids[~known].tolist())
    of = LANGUAGES[turn.language]
    assert left.count(of.comma) == 1
    assert left.count(of.end) == 1
    assert known.sum() > 0.5 * len(known)


def test_what_is_heard_is_as_loud_as_what_was_said():
    said = raw_log_mel(say(SENTENCES[0]))
    thin = np.where(band_hz() < 600, said - 2.0, said)  # 20 dB less of the low
    both = as_loud(np.concatenate([said, thin], 1))
    levels = [10 * np.log10(frame_power(half).mean()) for half in (both[:, :128], both[:, 128:])]
    assert levels[1] == pytest.approx(levels[0], abs=0.05)
    np.testing.assert_array_equal(both[:, :128], said)
