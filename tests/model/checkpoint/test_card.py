"""A card is refused with the entry that is wrong; no card gives the defaults."""

import json

import pytest

from streamer.model.checkpoint.card import FILE, PREFIX, read_card, write_gate
from streamer.model.checkpoint.weights import ModelError

SLOW = {"name": "slow", "phrases": ["缓慢"]}
LONE = "\ud800"  # JSON can spell half a surrogate pair; no tokenizer and no terminal takes it


def gate(**fluent):
    return {"gate": {"fluent": {"entropy": 0.5, "k": 4} | fluent}}


def write(directory, text):
    (directory / FILE).write_text(text if isinstance(text, str) else json.dumps(text), "utf-8")
    return directory


PROMISE = {"risk": 0.1, "confidence": 0, "num_clips": 9, "date": "2026-11-21", "cloud": "c"}


ENGLISH = {"language": "en", "prompt": {"prefix": "Listen."}}
WRONG = [
    *(({"max_turn_s": s}, "max_turn_s") for s in (1.9, 301, "60")),
    *((gate(k=k), "float|int") for k in (0, 100, 2.5)),
    *((gate(entropy=x), "entropy") for x in (None, -1)),
    ({"gate": {"best": {"entropy": 1.0}}}, "'best'"),
    ({"gate": {"fluent": {"k": 4}}}, "required field `entropy`"),
    (gate(margin=0.1), "unknown field `margin`"),
    (gate(promise=PROMISE | {"risk": 3}), "risk"),
    ({"attributes": {"colour": [SLOW]}}, "unknown attributes colour"),
    ({"attributes": {"rate": [SLOW | {"phrases": [LONE]}]}}, "surrogate"),
    ({"attributes": {"rate": [SLOW | {"name": "a\x1b[31m"}]}}, "name"),
    ([], "Expected `object`, got `array`"),
    ({"languages": {"en": ENGLISH}}, "has another prompt before the audio; audio is prefilled"),
    (
        {"attributes": {"rate": [SLOW]}, "languages": {"en": {"no_speech": "None."}}},
        "language en has other attributes or levels than zh",
    ),
]


@pytest.mark.parametrize(("card", "reason"), WRONG)
def test_the_wrong_entry_is_named(tmp_path, card, reason):
    with pytest.raises(ModelError, match=reason) as error:
        read_card(write(tmp_path, card))
    assert str(error.value).startswith(f"{tmp_path / FILE}: is not a model card (")
    assert str(error.value).endswith("mend it, or copy it again from where the model came from")
    assert str(error.value).isprintable()


def test_a_gate_is_written_whole_or_not_at_all(tmp_path):
    before = {"name": "x", "max_turn_s": 30, "extra": ["kept"]}
    before["gate"] = {"quality": {"entropy": 1.0, "k": 6}}
    write(tmp_path, before)
    write_gate(tmp_path, tmp_path / FILE, {"fluent": {"entropy": 0.5, "k": 3}})
    after = json.loads((tmp_path / FILE).read_text("utf-8"))
    assert after == before | {"gate": before["gate"] | {"fluent": {"entropy": 0.5, "k": 3}}}
    for wrong, out in (
        ({"fluent": {"entropy": -9}}, tmp_path / FILE),
        ({"fluent": {"entropy": 0.1}}, tmp_path / "no" / FILE),
    ):
        with pytest.raises(ModelError) as error:
            write_gate(tmp_path, out, wrong)
        assert str(error.value).isprintable()
    assert json.loads((tmp_path / FILE).read_text("utf-8")) == after
    assert [path.name for path in tmp_path.iterdir()] == [FILE], "no half of a file is left"


def test_a_model_without_a_card_has_defaults_and_gets_one(tmp_path):
    card = read_card(tmp_path)
    assert (card.name, card.prompt.prefix, card.max_turn_s) == (tmp_path.name, PREFIX, 60)
    write_gate(tmp_path, tmp_path / FILE, {"fluent": {"entropy": 0.5, "k": 4}})
    assert read_card(tmp_path).presets["fluent"].threshold == 0.5
    assert not read_card(tmp_path).promises


def test_a_further_language_has_its_words_and_shares_the_rest(tmp_path):
    gate = {"fluent": {"entropy": 0.3, "promise": PROMISE}}
    english = {"prompt": {"suffix": "<en>"}, "openings": ["It is"]}
    english["attributes"] = {"rate": [{"name": "very slow", "phrases": ["slow"]}]}
    raw = {"name": "two", "max_turn_s": 30, "prompt": {"prefix": "a", "suffix": "<zh>"}}
    raw |= {"attributes": {"rate": [SLOW]}, "gate": gate}
    raw["languages"] = {"en": english}
    card = read_card(write(tmp_path, raw))
    found = card.speaking("en")
    assert card.spoken == ("zh", "en")
    assert card.speaking() is card.speaking("zh") is card
    assert (found.language, found.prompt.prefix, found.prompt.suffix) == ("en", "a", "<en>")
    assert (found.max_turn_s, found.openings) == (30, ("It is",))
    assert found.presets["fluent"].threshold == 0.3
    assert found.phrases not in ("", card.phrases)
    assert found.gate == card.gate
    with pytest.raises(
        ValueError, match="language is 'de', but this model speaks zh and en; leave"
    ):
        card.speaking("de")
    write_gate(tmp_path, tmp_path / FILE, {"fluent": {"entropy": 0.7, "promise": PROMISE}}, "en")
    own = read_card(tmp_path)
    assert [own.speaking(each).presets["fluent"].threshold for each in own.spoken] == [0.3, 0.7]
