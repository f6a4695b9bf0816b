"""Recordings become turns, speakers and sentences, before any model is there."""

import os

import numpy as np
import pytest
import soundfile
import speech
from stock import hear_turn

from streamer.commands.process import Failed
from streamer.core.attributes import ATTRIBUTES, parse
from streamer.core.audio.turn_items import Closed, Heard
from streamer.core.rules.form import SentenceForm
from streamer.extras.tune.data import Turn, files_in, listen, speakers, split, turns_of
from streamer.extras.tune.learn import IGNORED, examples_of, sentence_of
from streamer.model.checkpoint.card import read_card
from streamer.model.offline import items_of
from streamer.model.thinker import load, resolve

EDGE = resolve("embedded", "edge")
CARD = read_card(EDGE)
LEVELS = dict(zip(ATTRIBUTES, (4, 0, 2, 3, 0, 1, 2), strict=True))


def turn(file, **levels):
    return Turn(file, file, sound="", num_embeddings=1, levels=LEVELS | levels)


def test_a_sentence_says_the_levels_and_what_is_unknown_is_not_learnt():
    text, unknown = sentence_of(turn("a"), CARD.attributes)
    vocabulary = load("embedded", "edge").vocabulary
    assert SentenceForm(vocabulary, CARD.attributes, openings=CARD.openings).is_whole(text)
    assert parse(text, CARD.attributes) == LEVELS
    assert unknown == []
    text, unknown = sentence_of(turn("a", rate=None, arousal=None), CARD.attributes)
    assert None not in parse(text, CARD.attributes).values()
    for (begin, end), name in zip(unknown, ("rate", "arousal"), strict=True):
        assert text[begin:end] in [level["phrases"][0] for level in CARD.attributes[name]]


def test_the_split_parts_speakers_and_stays():
    turns = [turn(f"{who}/{i}.wav") for who in range(40) for i in range(3)]
    learnt, held = split(turns, speakers("folder"), seed=1)
    folders = [{t.file.split("/")[0] for t in side} for side in (learnt, held)]
    assert not folders[0] & folders[1]
    assert 2 <= len(folders[1]) <= 14
    assert len(learnt) + len(held) == len(turns)
    more = [*turns, *(turn(f"{who}/{i}.wav") for who in range(40, 60) for i in range(3))]
    apart = {t.name for t in split(more, speakers("folder"), seed=1)[1]}
    assert {t.name for t in held} <= apart


def test_a_table_names_speakers(tmp_path):
    file = tmp_path / "who.csv"
    file.write_text("file,speaker\na.wav,x\nb.wav,x\n", "utf-8-sig")  # as a spreadsheet writes it
    who = speakers(str(file))
    assert who(str(tmp_path / "a.wav")) == who(str(tmp_path / "b.wav")) == "x"
    assert who("elsewhere.wav") == "elsewhere.wav"


def test_a_long_recording_is_heard_in_turns_as_the_engine_hears_them(tmp_path):
    """Same windows, same ids: what is learnt is what is fed."""
    samples = speech.speech(13.0, seed=3)
    soundfile.write(tmp_path / "long.wav", samples, 16_000, subtype="FLOAT")
    turns = listen(str(tmp_path / "long.wav"), tmp_path, 6.0)[1]
    assert len(turns) >= 2
    thinker = load("embedded", "edge")
    windows, mels = [], []
    for item in items_of([samples], 6.0):
        windows += item.windows if isinstance(item, Heard) else []
        if isinstance(item, Closed):
            every = [*windows, *item.rest]
            mels.append(np.concatenate([w.features(item.maximum) for w in every], 1))
            windows = []
    begin = 0
    for each, mel in zip(turns, mels, strict=True):
        sound = np.load(each.sound)
        cut = samples[begin : begin + len(sound["samples"])]
        begin += len(cut)
        np.testing.assert_allclose(sound["samples"], cut, atol=1e-4)
        np.testing.assert_array_equal(sound["mel"], mel)
    listener = hear_turn(thinker, np.load(turns[0].sound)["samples"])
    prompt = tuple(listener.sequence.ids)
    (example,) = examples_of(turns[:1], EDGE, CARD, CARD.attributes, thinker.shapes.audio_id)
    assert example.ids[: len(prompt)] == prompt
    assert set(example.labels[: len(prompt)]) == {IGNORED}
    assert example.labels[-1] == example.ids[-1]
    listener.close()


def test_broken_and_silent_recordings_are_left_out(tmp_path, capsys):
    """Also under names that are no UTF-8. The turns of an earlier run are taken."""
    clips = tmp_path / "clips"
    clips.mkdir()
    files = [os.fsdecode(os.fsencode(clips) + b"/caf\xe9 %d.wav" % i) for i in range(8)]
    for i, file in enumerate(files):
        soundfile.write(os.fsencode(file), speech.speech(3.5, i), 16_000)
    (clips / "broken.wav").write_bytes(b"RIFF but no recording")
    soundfile.write(clips / "silent.wav", np.zeros(48_000, np.float32), 16_000)
    found = files_in([str(clips)])
    before = turns_of(found, tmp_path)
    told = capsys.readouterr().err
    assert "1 of 10 recordings cannot be read" in told
    assert "broken.wav" in told
    assert "1 turns hold less than 1.5 s" in told
    assert [t.file for t in before] == files
    assert turns_of(found, tmp_path) == before
    (tmp_path / "other").mkdir()
    with pytest.raises(Failed, match="8 are needed"):
        turns_of(files[:1], tmp_path / "other")
    with pytest.raises(Failed, match="no recording there"):
        files_in([str(tmp_path / "other")])
