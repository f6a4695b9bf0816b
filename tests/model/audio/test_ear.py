"""A turn's measures and its F0: beside Praat, beside noise, and the same for every cut; voice activity
beside silero's; turns, the same for every cut, where it or the client says.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soxr
from speech import RATE_HZ, cuts, pcm, recording, speech

import streamer
from pipelines.embedded.codecs import telephone
from pipelines.embedded.labels import f0_track, speech_frames
from streamer.core.audio.pcm import OffsetFilter, on_grid
from streamer.core.audio.turn import Closed, Heard, TurnOpened
from streamer.core.measures.levels import levels_of
from streamer.model.audio.ear import PitchTrack, TurnMeasurer, f0_of
from streamer.model.audio.turns import Part, TurnCutter, measure
from streamer.model.audio.vad import Frame, TurnDetector, VoiceActivity
from streamer.stages.events import TurnDetection


def heard(samples):
    return measure(OffsetFilter().push(on_grid(samples)))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("seconds", "before_s"), [(1.0, 0), (4.3, 0), (4.3, 6)])
def test_streamed_equals_whole_whenever_it_is_computed(seconds, before_s, seed):
    noise = np.random.default_rng(seed).normal(0, 0.005, int(before_s * RATE_HZ))
    samples = np.concatenate([noise.astype(np.float32), speech(seconds, seed)])
    turn, chance = Part(measurer=TurnMeasurer()), np.random.default_rng(seed)
    for cut in cuts(len(samples), seed):
        turn.hear(samples[cut])
        if chance.random() < 0.7:
            turn.measurer.work(bool(chance.random() < 0.5))
    assert turn.finish(shows_measures=True)[-1].measures() == measure(samples)
    assert turn.measurer.work(True) is None


@pytest.mark.parametrize("num", [0, 1, 159, 512, 4_000])
def test_a_turn_of_next_to_nothing_has_none(num):
    found = measure(recording(0)[:num] * 1e-4)
    assert (found.pitch_median_hz, found.rate_syllables_per_s, found.speech_s) == (None, None, 0)
    assert found.warnings[0].startswith("only 0.0 s of speech")


@pytest.mark.parametrize("index", range(4))
def test_beside_praat_and_the_samples_themselves(index):
    samples = recording(index)
    found, f0 = measure(samples), f0_track(samples, len(samples) // 160)
    assert found.pitch_median_hz == pytest.approx(np.median(f0[f0 > 0]), rel=0.05)
    spoken = np.repeat(speech_frames(samples), 160)[: len(samples)]
    level_db = 10 * np.log10(np.mean(samples[: len(spoken)][spoken] ** 2))
    assert found.level_dbfs == pytest.approx(level_db, abs=1.5)
    assert found.audio_s == pytest.approx(len(samples) / RATE_HZ, abs=0.011)
    assert found.clipped_share == 0


def test_noise_and_clipping_are_found_again():
    voice = np.concatenate([np.zeros(RATE_HZ, np.float32), recording(2)])
    power = np.mean(voice[np.repeat(speech_frames(voice), 160)[: len(voice)]] ** 2)
    for snr_db in (5, 15):
        noise = np.random.default_rng(0).normal(0, (power / 10 ** (snr_db / 10)) ** 0.5, len(voice))
        found = measure((voice + noise).astype(np.float32))
        assert found.snr_db == pytest.approx(snr_db, abs=2)
        assert any(line.startswith("noisy") for line in found.warnings) is (snr_db < 10)
    loud = np.clip(speech(3, 1) * 30, -1, 1)
    share = np.mean(np.abs(np.trim_zeros(loud)) >= 0.999)
    assert share > 0.05
    found = measure(loud)
    assert found.clipped_share == pytest.approx(share, rel=0.02)
    assert any(line.startswith("clipped: ") for line in found.warnings)


def test_babble_fills_the_dips_and_a_telephone_leaves_nothing_outside_its_band():
    """In babble, pitch and pauses are those of the one in front. The others are 10 dB under it."""
    voice = recording(2)
    others = sum(np.resize(v / v.std(), len(voice)) for v in map(recording, (0, 1, 3)))
    babble = voice + 0.3 * voice.std() / others.std() * others
    clean, crowded, narrow = map(heard, (voice, babble, telephone(voice)))
    assert crowded.pitch_sd_semitones == pytest.approx(clean.pitch_sd_semitones, abs=0.65)
    assert crowded.pause_share > 0.1 or clean.pause_share < 0.1
    assert crowded.dip_db < 18 < clean.dip_db - 5
    assert crowded.crowd_db > 5 > clean.crowd_db == narrow.crowd_db == 0
    assert [line.split(":")[0] for line in crowded.warnings] == ["crowded"]
    assert not clean.warnings
    assert narrow.outside_db < -40 < clean.outside_db - 8


@pytest.mark.parametrize("seconds", [0.37, 5.0137])
@pytest.mark.parametrize("index", range(4))
def test_silence_around_a_recording_changes_no_measure(index, seconds):
    """Not in the last bit, if it is digital; levels beside a bound, if a room of -70 dBFS."""
    alone = heard(recording(index))
    room = np.random.default_rng(index).normal(0, 10 ** (-70 / 20), int(seconds * RATE_HZ))
    for around in (np.zeros_like(room), room):
        for before, after in ((around, []), ([], around), (around, around)):
            found = heard(np.concatenate([before, recording(index), after]))
            assert found.audio_s > alone.audio_s
            if not around.any():
                assert replace(found, audio_s=alone.audio_s) == alone
            levels, wanted = levels_of(found), levels_of(alone)
            assert sum(levels[name] != wanted[name] for name in wanted) <= 2


def test_the_syllable_rate_is_that_of_the_measures_at_any_sampling_rate():
    samples = recording(2)
    found = streamer.syllable_rate(samples, RATE_HZ)
    assert found == heard(samples).rate_syllables_per_s
    wide = soxr.resample(samples, RATE_HZ, 44_100)
    assert streamer.syllable_rate(wide, 44_100) == pytest.approx(found, rel=0.05)


def track(samples, speech=None):
    speech = np.ones(-(-len(samples) // 160), bool) if speech is None else speech
    turn = PitchTrack()
    rows = turn.push(samples, speech)
    rows = np.concatenate([rows, turn.push(samples[:0], speech[len(rows) :], is_last=True)])
    return f0_of(rows, speech)


def pulses(hz, num=24_000):
    """A harmonic sound whose F0 is hz [num], as of a gliding voice."""
    phase = 2 * np.pi * np.cumsum(hz) / RATE_HZ
    return sum(np.sin(k * phase) / k for k in range(1, 9)).astype(np.float32) / 8


@pytest.mark.parametrize("index", range(4))
def test_frames_are_praats(index):
    """Which looks twice, too. It stands on frames of its own, up to 5 ms beside these."""
    samples = recording(index)
    found = track(samples)
    wanted = f0_track(samples, len(found))
    assert np.mean((found > 0) == (wanted > 0)) > 0.93
    both = (found > 0) & (wanted > 0)
    assert both.sum() > 50
    assert np.mean(np.abs(found[both] / wanted[both] - 1) < 0.04) > 0.96


@pytest.mark.parametrize("hz", [65, 80, 110, 149, 152, 220, 340, 480])
def test_a_voice_of_known_f0(hz):
    assert track(pulses(np.full(24_000, float(hz))))[10:-10] == pytest.approx(hz, rel=2e-3)


def test_noise_silence_and_a_hum_have_no_pitch():
    noise = np.random.default_rng(0).normal(0, 0.1, 32_000).astype(np.float32)
    assert np.mean(track(noise) > 0) < 0.05
    assert not track(np.zeros(8_000, np.float32)).any()
    assert not track(np.full(8_000, 0.5, np.float32))[3:-3].any()
    voice = pulses(np.full(24_000, 120.0))
    soft = np.concatenate([voice, 1e-3 * voice])  # 60 dB under the loudest
    assert (track(soft)[160:] == 0).all()
    # a hum where nobody speaks
    samples = np.concatenate([5 * pulses(np.full(48_000, 400.0)), pulses(np.full(24_000, 120.0))])
    found = track(samples, np.arange(450) > 305)
    assert not found[:306].any()
    assert found[310:-10] == pytest.approx(120, rel=0.01)
    assert not track(samples, np.zeros(450, bool)).any()


SILENCE = np.zeros(RATE_HZ, np.float32)


def hear(hearing, data, pieces=(slice(None),)):
    """All items to a commit."""
    return [item for piece in pieces for item in hearing.push(data[piece])] + hearing.commit()


def turns(items):
    """Bounds, heard samples and the bytes of all windows, of each turn."""
    found = []
    for item in items:
        match item:
            case TurnOpened():
                found.append({"opened": item.at_ms, "windows": []})
            case Heard():
                found[-1]["windows"] += [np.asarray(w.raw).tobytes() for w in item.windows]
            case Closed():
                found[-1]["windows"] += [np.asarray(w.raw).tobytes() for w in item.rest]
                found[-1] |= {"samples": item.num_samples, "speech": item.has_speech}
                found[-1] |= {"maximum": item.maximum, "stopped": item.stopped_ms}
                found[-1]["last"] = item.last_speech_ms
    return found


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("rate", [16_000, 24_000])
def test_turns_by_voice_activity_do_not_depend_on_the_cut(seed, rate):
    data = pcm(SILENCE, speech(3, seed), SILENCE, speech(4, seed + 1), SILENCE, SILENCE)
    whole = turns(hear(TurnCutter(rate, 60.0, TurnDetection()), data))
    assert len(whole) >= 2
    assert all(turn["stopped"] is not None for turn in whole)
    pieces = cuts(len(data), seed)
    assert turns(hear(TurnCutter(rate, 60.0, TurnDetection()), data, pieces)) == whole


@pytest.mark.parametrize("settled", [None, 0, 1, 1_600])
@pytest.mark.parametrize(
    ("total", "limit", "lengths"),
    [
        *((0, 60.0, []), (100, 60.0, [100]), (960_000, 60.0, [960_000])),
        # a rest too short to be described gets 2 s of the part before it
        *((96_001, 6.0, [64_000, 32_001]), (127_999, 6.0, [64_000, 63_999])),
        (128_000, 6.0, [96_000, 32_000]),
        (50_000, 1.0, [16_000, 16_000, 8_000, 10_000]),
    ],
)
def test_parts_keep_every_sample_in_order(total, limit, lengths, settled):
    """The cutter may know how many samples are left, or not."""
    source = 0.25 + np.arange(total, dtype=np.float32) / 2**21  # nowhere silent, no rumble
    source[::2] *= -1
    wanted = OffsetFilter().push(on_grid(source))
    ends = [*range(7_000, total, 7_000), total]
    cutter, items, at = TurnCutter(16_000, limit, is_recording=True), [], 0
    if settled is not None and total > settled:
        ends = sorted({*(end for end in ends if end < total - settled), total - settled, total})
    for end in ends:
        items += cutter.push(source[at:end].tobytes())
        at = end
        if settled is not None and end == total - settled:
            items += cutter.settle(settled)
    items += cutter.commit()
    heard = [item.samples for item in items if isinstance(item, Heard)]
    whole = np.concatenate([source[:0], *heard])
    # each part has silence before and after it
    np.testing.assert_array_equal(whole[whole != 0], wanted[wanted != 0])
    closed = [item for item in items if isinstance(item, Closed)]
    assert [item.num_samples for item in closed] == lengths
    assert [item.goes_on for item in closed] == [True] * (len(closed) - 1) + [False] * bool(closed)


def test_half_a_sample_waits_and_at_the_end_is_dropped():
    hearing, data = TurnCutter(RATE_HZ, 60.0), pcm(speech(1))
    whole = turns(hear(hearing, data))
    for _ in range(2):  # the lost byte does not shift the next turn
        assert turns(hear(hearing, data + b"\1", [slice(0, 999), slice(999, None)])) == whole


def test_an_hour_of_silence_says_nothing_and_holds_a_second():
    hearing = TurnCutter(16_000, 60.0, TurnDetection())
    quiet = (np.random.default_rng(0).normal(0, 20, RATE_HZ * 10)).astype("<i2").tobytes()
    for _ in range(12):  # two minutes stand for the hour: what is held does not grow
        assert hearing.push(quiet) == []
        assert hearing._past.end - hearing._past.begin <= RATE_HZ + 512
    assert hearing.num_turns == 0


def test_frames_equal_silero_and_the_counts_follow_from_them(monkeypatch):
    monkeypatch.setenv("ORT_DISABLE_TELEMETRY", "1")  # read when onnxruntime is imported
    import silero_vad
    from silero_vad.sequence_vad import SileroVADSequence

    x = np.concatenate([np.zeros(8_000), recording(0), np.zeros(8_000)]).astype(np.float32)
    x = x[: len(x) // 512 * 512]
    data = Path(silero_vad.__file__).parent / "data"
    expected = SileroVADSequence(data / "silero_vad_16k_sequence.onnx").audio_forward(x)
    voice = VoiceActivity()
    pieces = np.split(x, range(700, len(x), 700))
    frames = [frame for piece in pieces for frame in voice.push(piece)]
    assert np.abs([f.probability for f in frames] - expected).max() < 1e-4
    (spoken,) = np.nonzero(expected >= 0.5)
    assert voice.last_speech_sample == 512 * (spoken[-1] + 1)
    assert 7_000 < 512 * spoken[0] < 12_000


@pytest.mark.parametrize(
    ("probabilities", "is_speech"),
    [
        ([0.9] * 7, False),
        ([0.9] * 8, True),
        ([0.9] * 3 + [0.1] + [0.9] * 3, False),  # 7 frames with the gap
        ([0.9] * 3 + [0.1] + [0.9] * 4, True),
        ([0.9, 0.1, 0.1] * 500, False),
        ([0.1] + [0.9] * 7, False),  # a gap before the stretch does not count
        ([0.9] * 8 + [0.0] * 500, True),  # stays true
    ],
)
def test_the_rule_wants_one_stretch_with_at_most_single_gaps(probabilities, is_speech):
    voice = VoiceActivity()
    for i, p in enumerate(probabilities, 1):
        voice.count(Frame(512 * i, p))
    assert voice.has_speech is is_speech


def bounds(probabilities):
    """(ms where a turn begins, None), or (ms where it ends, ms of the last speech)."""
    detector = TurnDetector(TurnDetection())
    events = [detector.push(Frame(512 * i, p)) for i, p in enumerate(probabilities, 1)]
    return [e for e in events if e is not None]


def test_a_turn_begins_with_its_padding_and_ends_with_its_silence():
    quiet, voiced = [0.01] * 20, [0.9] * 30
    assert bounds(quiet + voiced + quiet) == [(20 * 32 - 300, None), (50 * 32 + 500, 50 * 32)]
    # clicks do not begin a turn, and pauses do not end it
    assert bounds([0.9, 0.9, 0.1] * 50) == []
    assert bounds([0.9] * 3 + ([0.0] * 15 + [0.9]) * 20) == [(0, None)]
    assert bounds([0.9] * 3 + [0.36] * 100) == [(0, None)]  # fading speech goes on
    assert len(bounds([0.9] * 3 + [0.34] * 16)) == 2
