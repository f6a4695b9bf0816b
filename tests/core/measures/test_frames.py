"""Frames that were made by hand give the measures that one can count in them; channels; syllables;
from measures to the chance of each level. Sentences read back into levels, how sure each level is;
forms of text in both languages.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from string import Formatter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pipelines.embedded.rate_net import Net, begun, padded
from streamer.core import attributes
from streamer.core.measures import levels
from streamer.core.measures.frames import Frames
from streamer.core.measures.speech_measures import SpeechMeasures
from streamer.core.rules.settings import ALL, FLOOR
from streamer.core.text import texts
from streamer.core.timeline import Curves, conversation_of
from streamer.model.audio import density
from streamer.model.audio.density import STEP_FRAMES, Density


def frames(num=300, level=1e-2, f0=200.0, **changed):
    """Three seconds of speech at one level and pitch, as bright as it is dark."""
    fields = {
        **dict.fromkeys(("power", "low_power", "high_power"), np.full(num, level, np.float32)),
        "density": np.full(num, 0.05, np.float32),
        "f0": np.full(num, f0, np.float32),
        "speech": np.ones(num, bool),
        "clipped": np.zeros(num, np.float32),
    }
    fields |= changed
    return Frames(**fields)


def test_even_speech():
    found = frames().measures()
    assert (found.pitch_median_hz, found.pitch_sd_semitones) == (200, 0.1)
    assert found.level_dbfs == pytest.approx(-20, abs=0.001)
    assert (found.pause_share, found.pause_count, found.longest_pause_s) == (0, 0, 0)
    assert found.timbre_db == pytest.approx(0, abs=1e-5)
    assert (found.speech_s, found.audio_s, found.snr_db) == (3, 3, None)


def test_pauses_are_counted_and_no_part_of_the_speech():
    speech = np.ones(300, bool)
    speech[:20] = speech[100:150] = speech[200:217] = speech[250:270] = False
    found = frames(speech=speech).measures()
    assert (found.pause_count, found.longest_pause_s) == (2, 0.5)
    assert found.pause_share == pytest.approx(70 / 280)
    assert found.speech_s == 2.1


@pytest.mark.parametrize(("num", "gap", "speech_s"), [(13, 11, 2), (14, 11, 2.25), (13, 10, 2.23)])
def test_a_short_stretch_apart_from_the_speech_is_the_begin_of_a_noise(num, gap, speech_s):
    """At the beginning and at the end of a turn. A longer or a nearer stretch is speech."""
    speech = np.zeros(300, bool)
    speech[50:250] = speech[250 + gap : 250 + gap + num] = True
    for one in (speech, speech[::-1]):
        assert frames(speech=one).measures().speech_s == pytest.approx(speech_s)


@pytest.mark.parametrize("seed", range(20))
def test_the_curves_have_the_pauses_and_the_speech_of_the_measures(seed):
    chance = np.random.default_rng(seed)
    speech = np.repeat(chance.random(40) < 0.5, chance.integers(1, 30, 40))
    turn = frames(num=len(speech), speech=speech)
    found, drawn = turn.measures(), Curves.of(turn, 0, len(speech))
    lengths = [end - begin for begin, end in drawn.pauses_s]
    assert len(lengths) == found.pause_count
    assert max(lengths, default=0) == pytest.approx(found.longest_pause_s)
    (begin, _), (_, end) = drawn.talk_s[0], drawn.talk_s[-1]
    assert end - begin - sum(lengths) == pytest.approx(found.speech_s)
    assert drawn.syllables.sum() == pytest.approx(found.rate_syllables_per_s * found.speech_s)


def test_the_rate_is_of_what_is_said_in_frames_of_speech():
    """Five a second; nobody counts them in a pause, and a gap in speech is time."""
    assert frames().measures().rate_syllables_per_s == pytest.approx(5)
    speech = np.ones(300, bool)
    speech[100:150] = speech[200:210] = False
    found = frames(speech=speech).measures()
    assert found.rate_syllables_per_s == pytest.approx(5 * 240 / 250)
    assert found.rate_syllables_per_min == 60 * found.rate_syllables_per_s
    silent = frames(f0=0.0).measures()
    assert (silent.rate_syllables_per_s, silent.pitch_median_hz) == (pytest.approx(5), None)


def test_a_step_doubles_where_points_are_too_many():
    f0, power = np.zeros(1_000, np.float32), np.full(1_000, 0.01, np.float32)
    f0[0], f0[2], f0[3], power[0] = 100, 150, 250, 0.03
    whole = Curves(0.01, f0, power, np.ones(1_000, bool), np.full(1_000, 0.05))
    found = whole.thinned(600)
    assert (found.step_s, len(found)) == (0.02, 500)
    assert found.f0_hz[:3].tolist() == [100, 200, 0]
    assert found.power[0] == pytest.approx(0.02)
    assert found.syllables.sum() == pytest.approx(50)
    assert whole.thinned(1_000).step_s == 0.01
    assert len(Curves.joined([whole] * 3)) == 3_000


def test_numpy_counts_syllables_as_the_trained_network_does(monkeypatch, tmp_path):
    torch.manual_seed(1)
    net = Net().eval()
    for norm in net.norms:
        norm.running_mean.normal_(0, 0.1)
        norm.running_var.uniform_(0.5, 2)
    mixture = np.array([0.4, 0.6])
    np.savez(tmp_path / "density.npz", **net.arrays(), mixture=mixture, error=np.ones(4))
    monkeypatch.setattr(density, "WEIGHTS", tmp_path / "density.npz")
    density.network.cache_clear()
    try:
        for num in (5, 100, 333):
            # log10 mel power of random bands
            raw = np.random.default_rng(0).uniform(-6, 0, (num, 128)).astype(np.float32)
            found = Density()
            found.add(raw)
            steps, here, _ = padded([(density.in_bands(raw), np.ones(num, bool))])
            with torch.no_grad():
                said, ours = net(steps, here)
            wanted = mixture[0] * begun(said)[0].numpy() + mixture[1] * ours[0].numpy()
            frames = np.repeat(wanted / STEP_FRAMES, STEP_FRAMES)[:num]
            assert found.so_far() == pytest.approx(frames, abs=1e-4)
    finally:
        density.network.cache_clear()


def of(*channels, seconds=30):
    """Each channel: the (begin, end) of its speech in s."""
    flags = np.zeros((len(channels), 100 * seconds), bool)
    for row, spans in zip(flags, channels, strict=True):
        for begin, end in spans:
            row[round(100 * begin) : round(100 * end)] = True
    return conversation_of(flags)


@pytest.mark.parametrize(
    ("first", "second", "wanted"),
    [
        (
            [(1, 5), (8, 10)],
            [(5.5, 7.5), (14, 16)],
            {"talk_share": (0.6, 0.4), "turns": (2, 2), "interruptions": (0, 0)}
            | {"gap_median_s": 0.5, "overlap_share": 0, "dead_air_s": 4},
        ),
        ([(0, 5)], [(4, 8)], {"interruptions": (0, 1), "overlap_share": 1 / 8}),
        ([(0, 5)], [(4, 8)], {"gap_median_s": None}),
        ([(0, 10)], [(4, 4.5)], {"turns": (1, 0), "interruptions": (0, 0)}),  # a yes
        ([(0, 2), (2.5, 4)], [(2.1, 2.4), (6, 8)], {"turns": (1, 1), "gap_median_s": 2}),
        ([(10, 12)], [(12.5, 14)], {"dead_air_s": 0}),
    ],
)
def test_what_is_a_turn_an_interruption_and_dead_air(first, second, wanted):
    found = of(first, second)
    for name, value in wanted.items():
        assert getattr(found, name) == pytest.approx(value), name


CLEAN = {"rate_syllables_per_s": 4.9, "pitch_median_hz": 140.0, "pitch_sd_semitones": 1.9}
CLEAN |= {"level_dbfs": -24.0, "pause_share": 0.09, "timbre_db": -9.5}
CLEAN = SpeechMeasures(**CLEAN, speech_s=6.0, audio_s=8.0, snr_db=50.0)
OURS = {name: [None] * num for name, num in levels.NUM_LEVELS.items()}
ANY = st.builds(
    SpeechMeasures,
    rate_syllables_per_s=st.none() | st.floats(0, 40),
    pitch_median_hz=st.none() | st.floats(60, 500),
    pitch_sd_semitones=st.none() | st.floats(0.1, 12),
    level_dbfs=st.none() | st.floats(-120, 0),
    pause_share=st.none() | st.floats(0, 1),
    timbre_db=st.none() | st.floats(-60, 40),
    speech_s=st.floats(0, 70),
    snr_db=st.none() | st.floats(-20, 120),
    clipped_share=st.floats(0, 1),
    dip_db=st.none() | st.floats(-25, 120),
    outside_db=st.none() | st.floats(-60, 0),
)


def assert_weights(weights):
    """The best level of each attribute has 0, the others are within bounds."""
    for each in filter(None, weights.values()):
        assert max(each) == 0
        assert min(each) >= FLOOR


def test_of_speech_without_a_pitch_none_is_said() -> None:
    whisper = replace(CLEAN, pitch_median_hz=None, pitch_sd_semitones=None)
    weights = levels.level_weights(whisper, OURS)
    assert (weights["pitch"], weights["variation"]) == ((), ())
    assert levels.level_weights(whisper, {"rate": OURS["rate"]}).keys() == {"rate"}
    assert levels.level_weights(SpeechMeasures(), OURS) == {}
    assert_weights(weights)


@given(ANY)
def test_chances_are_a_distribution_of_which_no_level_is_excluded(found) -> None:
    for name, chances in levels.level_chances(found).items():
        assert len(chances) == levels.NUM_LEVELS[name]
        assert chances.sum() == pytest.approx(1)
        assert chances.min() >= 0.99 * levels.LEAST_CHANCE / len(chances)
    assert_weights(levels.level_weights(found, OURS))


@pytest.mark.parametrize("name", levels.MEASURES)
def test_a_clean_measure_has_its_own_level_and_noise_or_little_speech_flatten_it(name) -> None:
    bounds = np.array(levels.BOUNDS[name])
    for value in (bounds[:-1] + bounds[1:]) / 2:
        changed = {levels.MEASURES[name][0]: float(value)}
        chances = levels.level_chances(replace(CLEAN, **changed))[name]
        assert chances.argmax() == levels.level_of(name, value)
        assert chances.max() > (0.6 if name == "rate" else 0.9)
    clean, noisy, short = (
        levels.level_chances(found)[name].max()
        for found in (CLEAN, replace(CLEAN, snr_db=0.0, dip_db=6.0), replace(CLEAN, speech_s=0.6))
    )
    assert noisy < clean + 0.01  # loudness is that of the loud frames
    assert short < clean + 0.04  # some measures need little speech


def test_a_model_counts_for_more_in_babble_but_not_in_noise_that_pauses_show() -> None:
    clean, crowded = levels.opinion_of(CLEAN), levels.opinion_of(replace(CLEAN, dip_db=10.0))
    noisy = levels.opinion_of(replace(CLEAN, dip_db=10.0, snr_db=9.0))
    assert clean == levels.learnt().opinion == noisy
    assert {name for name in clean if crowded[name] > clean[name] + 0.5} == clean.keys() - {"rate"}
    assert crowded["rate"] == clean["rate"]
    called = levels.opinion_of(replace(CLEAN, outside_db=-50.0))  # bands are missing
    assert {n for n in clean if called[n] > clean[n]} == {"pitch", "variation", "timbre"}


PHRASES = {
    "rate": [
        {"name": "slow", "phrases": ["语速缓慢", "慢", "不太快"]},
        {"name": "even", "phrases": ["语速适中"]},
        {"name": "fast", "phrases": ["快", "语速很快"]},
    ],
    "arousal": [
        {"name": "calm", "phrases": ["平静", "情绪平稳"]},
        {"name": "excited", "phrases": ["快活", "激动"]},
    ],
    "pitch": [{"name": "low", "phrases": ["音调平稳低沉"]}, {"name": "high", "phrases": ["尖"]}],
}


@pytest.mark.parametrize(
    ("names", "among", "said"),
    [
        (None, attributes.ATTRIBUTES, ALL),
        (",".join(reversed(attributes.ATTRIBUTES)), attributes.ATTRIBUTES, ALL),
        ("pitch, rate", attributes.ATTRIBUTES, "rate,pitch"),
        ("acoustic", attributes.ATTRIBUTES, ",".join(attributes.ATTRIBUTES[:-1])),
        ("pitch", attributes.ATTRIBUTES, "pitch"),
        ("acoustic", ("rate", "arousal"), "rate"),
    ],
)
def test_names_of_a_sentence(names, among, said):
    assert attributes.chosen(names, among) == said


@pytest.mark.parametrize(
    ("names", "among", "error"),
    [
        ("tempo", attributes.ATTRIBUTES, "attributes names 'tempo'; known are rate, pitch"),
        ("", attributes.ATTRIBUTES, "attributes names ''; known are"),
        ("arousal", attributes.ATTRIBUTES[:-1], "'arousal'; it is left out here; there are rate"),
        ("pitch", ("rate",), "'pitch'; it is left out here; there are rate"),
        ("rate", (), "it is left out here; there are none"),
        ("acoustic", ("arousal",), "attributes names none"),
    ],
)
def test_unknown_names_are_refused(names, among, error):
    with pytest.raises(ValueError, match=error):
        attributes.chosen(names, among)


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        ("说话人语速很快，音调平稳低沉，情绪平稳。", {"rate": 2, "pitch": 0, "arousal": 0}),
        # "快活" is another attribute's longer phrase
        *(
            ("不太快", {"rate": 0}),
            ("快活", {"arousal": 1}),
            ("快活地快", {"rate": 2, "arousal": 1}),
        ),
    ],
)
def test_longest_first_without_overlap(text, levels):
    found = attributes.parse(text, PHRASES)
    assert list(found) == list(attributes.ATTRIBUTES)
    assert found == dict.fromkeys(attributes.ATTRIBUTES) | levels


def test_names_of_levels_in_both_languages():
    chinese = {"rate": [{"name": "很慢", "phrases": []}, {"name": "自编", "phrases": []}]}
    english = {"rate": [{"name": "crawling", "phrases": []}, {"name": "own", "phrases": []}]}
    shipped = {"zh": "很慢", "en": "very slow"}, {"zh": "自编", "en": None}
    assert attributes.level_names({"zh": chinese}) == {"rate": list(shipped)}
    assert attributes.level_names({"en": english})["rate"][0] == {"zh": None, "en": "crawling"}
    both = attributes.level_names({"zh": chinese, "en": english})
    assert both["rate"][1] == {"zh": "自编", "en": "own"}
    other = {"zh": None, "en": None, "de": "很慢"}
    assert attributes.level_names({"zh": {}, "de": chinese})["rate"][0] == other


SPOKEN = {
    "rate": [
        {"name": "slow", "phrases": ["说得比较慢", "语速偏慢"]},
        {"name": "fast", "phrases": ["说得比较快", "语速偏快"]},
        {"name": "very fast", "phrases": ["说得非常快", "语速极快"]},
    ],
    "pitch": [{"name": "low", "phrases": ["音调低沉"]}, {"name": "high", "phrases": ["尖"]}],
}
LEVELS = {"rate": [{"name": f"level {i}", "phrases": [f"rate {w}"]} for i, w in enumerate("abc")]}


def sure(level, mass, chances, opinion, is_greedy=False):
    said = pieces(("rate ", -0.5), ("abc"[level], math.log(mass)))
    measured, opinions = {"rate": np.array(chances)}, {"rate": opinion}
    return attributes.fused_confidence(said, LEVELS, measured, opinions, is_greedy)["rate"]


def test_a_greedy_choice_was_the_most_likely_level():
    """The measures are all but sure of another level; the model gave that one almost nothing."""
    chances = [0.001, 0.998, 0.001]
    assert sure(0, 0.9, chances, 1.0) < 0.02
    assert sure(0, 0.9, chances, 1.0, is_greedy=True) == pytest.approx(0.487, abs=0.01)


def pieces(*told):
    return [attributes.SaidToken(*each) for each in told]


def test_the_mass_is_that_of_the_tokens_that_tell_levels_apart():
    said = pieces(
        *(("他", -5), ("说得", -4), ("比较", -0.25), ("快", -0.5), ("，", -3), ("尖", -0.125))
    )
    assert attributes.masses_of(said, SPOKEN) == {"rate": (1, -0.75), "pitch": (1, -0.125)}


def test_what_is_not_known_is_not_told():
    """A phrase with one unknown log-probability gives its attribute no confidence."""
    assert attributes.masses_of(pieces(("语速", None), ("极快", -1)), SPOKEN)["rate"] == (2, -1)
    assert attributes.masses_of(pieces(("语速", -1), ("极快", None)), SPOKEN) == {}
    assert attributes.masses_of([], SPOKEN) == {}


FORMS = texts()["words"] | texts()["warnings"]
ENGLISH = re.compile("[A-Za-z]{2,}")


def slots(form):
    """(number, format) of each value that a form takes, in the order of the values."""
    fields = [(name, spec) for _, name, spec, _ in Formatter().parse(form) if name is not None]
    return sorted((int(name or i), spec) for i, (name, spec) in enumerate(fields))


@pytest.mark.parametrize("english", FORMS)
def test_a_form_takes_the_same_values_in_both_languages(english):
    chinese = FORMS[english]
    assert slots(english) == slots(chinese)
    assert not ENGLISH.search(re.sub(r"auto|HZ|--\w+|\.\w+|gated|\{.*?\}", "", chinese))
