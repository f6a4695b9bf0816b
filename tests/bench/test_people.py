"""bench/people*.py: what it counts, what it changes in a sound, and what it says of a folder it cannot use."""

import dataclasses
import io
import json
import math
import random

import numpy as np
import pytest
import soundfile
import speech
from scipy.signal import correlate

from bench.people import speaker
from bench.people_changes import CHANGES, MP3_32, OPUS_16, Heard, falls_in, noise, room_response
from bench.people_clips import Clip, chosen, clip_of, recordings, rows_of, truth
from bench.people_joined import join, room_tone
from bench.people_pairs import compared
from bench.people_robust import against, noise_rows
from bench.people_table import attribute, gap_rows, is_no_speech, order_rows, table_rows
from bench.people_variants import ATTRIBUTES, Pair, make
from pipelines.embedded.labels import BOUNDS, Measures

RATE_HZ = 16_000
MIDDLE = Measures(4.9, 140.0, 1.8, -25.0, 0.1, -9.0, 0.0)


def clip(index=0, **changed):
    given = {"name": f"{index}.wav", "speaker": "a", "source": "s", "language": "en", "sex": "f", "syllables": 20,
             "samples": speech.recording(index), "measures": MIDDLE, "length": "3 to 6 s"}  # fmt: skip
    return Clip(**{**given, **changed})


def manifest(folder, *rows):
    (folder / "manifest.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")


@pytest.fixture(scope="module")
def say():
    """Real descriptions by the shipped edge."""
    return speaker(edge="embedded", cloud="embedded")


@pytest.fixture(scope="module")
def described(say):
    return say("edge", [speech.recording(i) for i in range(4)], "")


def saying(description, **levels):
    return dataclasses.replace(description, attributes={**description.attributes, **levels})


def test_recordings_come_with_their_own_truth(tmp_path):
    for i in range(2):
        soundfile.write(tmp_path / f"{i}.wav", speech.recording(i), RATE_HZ, subtype="FLOAT")
    soundfile.write(tmp_path / "quiet.wav", np.zeros(RATE_HZ, np.float32), RATE_HZ)
    known = {"file": "0.wav", "speaker": "x", "language": "zh", "syllables": 20}
    manifest(tmp_path, known, {"wav": "1.wav", "kind": "joined-10"}, {"file": "quiet.wav"})
    first, second = recordings(tmp_path, None, 5)
    assert first.measures == truth(speech.recording(0), 20)
    assert first.levels == first.measures.levels()
    assert (first.speaker, first.language, first.source) == ("x", "zh", "unknown")
    assert not first.is_joined
    assert second.length == "10 s, joined"
    assert set(first.levels) - set(second.levels) == {"rate", "arousal"}, "its text is unknown"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, r"manifest\.jsonl is not there"),
        ("nonsense\n", "line 1: no JSON object"),
        ('{"speaker": "a"}\n', "line 1: no JSON object"),
        ("[1]\n", "line 1: no JSON object"),
        ('{"file": "gone.wav"}\n', r"line 1: gone\.wav is not in"),
        ("", "names no recording"),
    ],
)
def test_a_folder_that_cannot_be_used_is_told_in_a_line(tmp_path, text, told):
    if text is not None:
        (tmp_path / "manifest.jsonl").write_text(text, "utf-8")
    with pytest.raises(SystemExit, match=told) as error:
        recordings(tmp_path, None, 0)
    assert "\n" not in str(error.value)


def test_few_recordings_are_of_many_speakers(tmp_path):
    rows = [{"file": f"{i}.wav", "speaker": i // 10} for i in range(50)]
    assert sorted(row["speaker"] for row in chosen(rows, 5)) == [0, 1, 2, 3, 4]
    assert chosen(rows, 20) == chosen(rows[::-1][::-1], 50)[:20]
    assert sorted(row["file"] for row in chosen(rows, None)) == sorted(row["file"] for row in rows)
    (tmp_path / "0.wav").touch()
    manifest(tmp_path, rows[0])
    assert rows_of(tmp_path) == [rows[0]]


def test_an_attribute_that_is_not_said_is_wrong_and_has_no_bias():
    found = attribute([(1, 1), (1, 2), (1, 3), (0, None)])
    assert found == {"n": 4, "exact": 0.25, "within": 0.5, "bias": 1.0, "constant": 0.75}
    assert attribute([])["exact"] is None


def test_the_table_counts_groups_and_gaps(described):
    right = described[0]
    clips = [clip(i % 4, speaker=str(i), language="zh" if i < 40 else "en") for i in range(75)]
    clips.append(clip(0, length="30 s, joined", speaker="0"))
    levels = MIDDLE.levels()
    cloud = [saying(right, **levels)] * len(clips)
    edge = [
        saying(right, **levels | {"rate": 0} if i % 3 == 0 else levels) for i in range(len(clips))
    ]
    rows = table_rows(clips, {"edge": edge, "cloud": cloud})
    found = {(row["mode"], row["by"], row["group"]): row for row in rows}
    assert found["edge", "all", "all"]["rate"]["exact"] == pytest.approx(2 / 3)
    assert found["edge", "all", "all"]["mean"] == pytest.approx((6 + 2 / 3) / 7)
    assert found["cloud", "all", "all"]["mean"] == 1.0
    assert found["edge", "all", "all"]["speakers"] == found["edge", "all", "all"]["clips"] == 75
    assert [group for mode, by, group in found if by == "language" and mode == "edge"] == [
        "en",
        "zh",
    ]
    assert found["edge", "length", "30 s, joined"]["clips"] == 1
    gap = next(row for row in gap_rows(clips, {"edge": edge, "cloud": cloud}) if row["by"] == "all")
    assert gap["mean"] == pytest.approx(1 / 21)
    deviation = math.sqrt(75 / 74 * (1 / 3) * (2 / 3)) / 7
    assert gap["se"] == pytest.approx(deviation / math.sqrt(75))


def test_small_groups_are_told_together(described):
    clips = [clip(language=name) for name in ("de", "fr", *["en"] * 32)]
    rows = table_rows(clips, {"edge": [described[0]] * len(clips)})
    assert [(r["group"], r["clips"]) for r in rows if r["by"] == "language"] == [
        ("en", 32),
        ("others", 2),
    ]


def test_the_order_of_rates_is_spearmans(described):
    rates = np.linspace(2, 9, 40)
    clips = [clip(measures=dataclasses.replace(MIDDLE, rate=float(rate))) for rate in rates]
    upward = [
        saying(described[0], rate=int(np.searchsorted(BOUNDS["rate"], rate))) for rate in rates
    ]
    up, down = order_rows(clips, {"edge": upward})[0], order_rows(clips, {"edge": upward[::-1]})[0]
    assert up["spearman"] > 0.95
    assert down["spearman"] == pytest.approx(-up["spearman"])


def heard(index=0):
    samples = speech.recording(index)
    others = [speech.recording(i) for i in range(4) if i != index]
    return Heard(samples, truth(samples, None).loudness, others, np.random.default_rng(index))


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_sound_is_the_same_speech(name):
    clean = heard()
    changed = CHANGES[name](clean)
    assert changed.dtype == np.float32
    assert np.abs(changed).max() <= 1
    assert abs(len(changed) - len(clean.samples)) <= 2 * RATE_HZ
    assert not np.array_equal(changed[: len(clean.samples)], clean.samples[: len(changed)])
    piece = clean.samples[RATE_HZ : 2 * RATE_HZ]
    lag = correlate(changed[: 6 * RATE_HZ], piece, "valid", "fft").argmax() - RATE_HZ
    assert -141 <= lag <= RATE_HZ


@pytest.mark.parametrize("snr_db", [10, 20])
def test_noise_lies_so_far_under_the_active_level(snr_db):
    clean = dataclasses.replace(
        heard(), samples=heard().samples * 0.1, level_db=heard().level_db - 20
    )
    added = noise(clean, snr_db) - clean.samples
    assert clean.level_db - 20 * np.log10(added.std()) == pytest.approx(snr_db, abs=0.1)


def test_a_telephone_leaves_its_band():
    clean = heard()
    power = [
        np.abs(np.fft.rfft(s, 2**17)) ** 2 for s in (clean.samples, CHANGES["telephone"](clean))
    ]
    hz = np.fft.rfftfreq(2**17, 1 / RATE_HZ)
    kept = [
        10 * np.log10(power[1][band].sum() / power[0][band].sum())
        for band in (hz < 150, (hz > 500) & (hz < 3000), hz > 4000)
    ]
    assert kept[0] < -15
    assert kept[1] == pytest.approx(0, abs=1.5)
    assert kept[2] < -15


@pytest.mark.parametrize(
    ("container", "codec", "kbit_s", "options"),
    [
        ("OGG", "OPUS", 16, {"compression_level": OPUS_16}),
        ("MP3", "MPEG_LAYER_III", 32, {"compression_level": MP3_32, "bitrate_mode": "CONSTANT"}),
    ],
)
def test_a_codec_has_the_rate_that_its_name_says(container, codec, kbit_s, options):
    samples, file = speech.speech(6.0), io.BytesIO()
    soundfile.write(file, samples, RATE_HZ, format=container, subtype=codec, **options)
    assert len(file.getvalue()) * 8 / 6 / 1000 == pytest.approx(kbit_s, rel=0.15)


def test_a_room_begins_with_the_direct_sound_and_falls():
    for seed in range(3):
        response = room_response(np.random.default_rng(seed), (0.5, 1.0), (0.2, 0.5))
        assert response[0] > 0.9 * response.max()
        assert (response**2).sum() == pytest.approx(1)
        assert 0.15 < falls_in(response) < 0.7


def test_joined_turns_keep_the_speaker_and_count_the_syllables():
    clips = [clip(i, measures=truth(speech.recording(i), 20)) for i in range(4)]
    turn = join(clips, 20, random.Random(1))
    assert 0.85 * 20 <= len(turn.samples) / RATE_HZ <= 20
    assert turn.is_joined
    assert turn.syllables == 80
    assert join(clips, 60, random.Random(1)) is None
    unknown = [dataclasses.replace(c, syllables=None) for c in clips]
    assert join(unknown, 20, random.Random(1)).syllables is None


def test_a_gap_sounds_as_the_room_does():
    hiss = np.random.default_rng(0).standard_normal(4 * RATE_HZ).astype(np.float32) * 1e-3
    loud = hiss + np.pad(speech.recording(1), (0, 10 * RATE_HZ))[: 4 * RATE_HZ]
    loud[2 * RATE_HZ : 3 * RATE_HZ] = hiss[2 * RATE_HZ : 3 * RATE_HZ]
    tone = room_tone(loud, RATE_HZ, random.Random(0))
    assert 20 * np.log10(tone.std() / 1e-3) == pytest.approx(0, abs=1.0)


@pytest.mark.parametrize("attribute", ATTRIBUTES)
def test_a_pair_differs_where_it_should(attribute):
    samples = speech.recording(2)
    own = clip_of({"file": "2.wav", "syllables": 18}, samples)
    pair = make(own, attribute, "moderate")
    low, high = pair.labels
    assert low[attribute] < high[attribute]
    if attribute in ("pitch", "loudness", "timbre"):
        found = [getattr(truth(sound, 18), attribute) for sound in (pair.low, pair.high)]
        bound = min(BOUNDS[attribute], key=lambda b: abs(b - np.mean(found)))
        assert found[0] < bound < found[1]


def test_pairs_are_strict_tied_or_reversed(described):
    silent = np.zeros(1, np.float32)
    levels = MIDDLE.levels()
    pairs = [
        Pair("rate", "large", silent, silent, (levels, levels | {"rate": 4, "pitch": 3}))
        for _ in range(4)
    ]
    one = levels | {"rate": 1}
    said = [
        (one, one | {"rate": 3, "timbre": 0}),
        (one, one),
        (one | {"rate": 2}, one),
        (one, one | {"rate": None}),
    ]
    row = compared(list(zip(pairs, said, strict=True)))
    assert (row["pairs"], row["strict"], row["ties"], row["reversed"]) == (4, 0.25, 0.5, 1)
    assert row["others moved"] == (levels["timbre"] - 0) / 4
    assert row["others moved, labels"] == 3 - levels["pitch"]


def test_levels_are_counted_that_change(described):
    clean = described[:2]
    changed = [saying(clean[0], rate=None), saying(clean[1], rate=clean[1].attributes["rate"])]
    row = against([clip(0), clip(1)], clean, changed)
    assert (row["levels changed"], row["rate"], row["pitch"]) == (0.5, 0.5, 0.0)


def test_noises_are_told_apart_from_speech(tmp_path, say):
    for folder, sound in (
        ("hiss", np.random.default_rng(0).standard_normal(3 * RATE_HZ) * 0.05),
        ("people", speech.recording(0)),
    ):
        (tmp_path / folder).mkdir()
        soundfile.write(tmp_path / folder / "a.wav", sound, RATE_HZ)
    rows = noise_rows(tmp_path, ["edge"], say)
    assert {row["noise"]: row["called no speech"] for row in rows} == {
        "all": 0.5,
        "hiss": 1.0,
        "people": 0.0,
    }
    (tmp_path / "empty").mkdir()
    with pytest.raises(SystemExit, match="--noise takes a folder"):
        noise_rows(tmp_path / "empty", ["edge"], say)


def test_the_shipped_edge_hears_the_bundled_people(described):
    assert not any(map(is_no_speech, described))
