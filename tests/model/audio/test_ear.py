"""A turn's measures: the same for every cut, whenever they are computed; beside Praat."""

from dataclasses import replace

import numpy as np
import parselmouth
import pytest
import soxr
from speech import RATE_HZ, cuts, recording, speech

import streamer
from pipelines.embedded.codecs import telephone
from pipelines.embedded.labels import speech_frames
from streamer.core.audio.pcm import OffsetFilter, on_grid
from streamer.core.measures.levels import levels_of
from streamer.model.audio.ear import SoundTrack, measure
from streamer.model.audio.turns import Part
from streamer.model.audio.vad import VoiceActivity


class Turn:
    """A turn that is measured."""

    def __init__(self, turn=0):
        self.part = Part(turn, measures=True)
        self.measurer = self.part.measurer

    def push(self, samples):
        self.part.hear(samples)

    def finish(self):
        return self.part.finish(shows_measures=True)[-1].measures()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("seconds", "before_s"), [(1.0, 0), (4.3, 0), (4.3, 6)])
def test_streamed_equals_whole_whenever_it_is_computed(seconds, before_s, seed):
    noise = np.random.default_rng(seed).normal(0, 0.005, int(before_s * RATE_HZ))
    samples = np.concatenate([noise.astype(np.float32), speech(seconds, seed)])
    turn, chance = Turn(), np.random.default_rng(seed)
    for cut in cuts(len(samples), seed):
        turn.push(samples[cut])
        if chance.random() < 0.7:
            turn.measurer.work(bool(chance.random() < 0.5))
    assert turn.finish() == measure(samples)
    assert turn.measurer.work(True) is None


@pytest.mark.parametrize("num", [0, 1, 159, 512, 4_000])
def test_a_turn_of_next_to_nothing_has_none(num):
    found = measure(recording(0)[:num] * 1e-4)
    assert (found.pitch_median_hz, found.rate_syllables_per_s, found.speech_s) == (None, None, 0)
    assert found.warnings[0].startswith("only 0.0 s of speech")


@pytest.mark.parametrize("index", range(4))
def test_beside_praat_and_the_samples_themselves(index):
    samples = recording(index)
    found = measure(samples)
    track = parselmouth.Sound(samples, RATE_HZ).to_pitch(0.01, 60, 500)
    f0 = track.selected_array["frequency"]
    assert found.pitch_median_hz == pytest.approx(np.median(f0[f0 > 0]), rel=0.05)
    spoken = np.repeat(speech_frames(samples), 160)[: len(samples)]
    level_db = 10 * np.log10(np.mean(samples[: len(spoken)][spoken] ** 2))
    assert found.level_dbfs == pytest.approx(level_db, abs=1.5)
    assert found.audio_s == pytest.approx(len(samples) / RATE_HZ, abs=0.011)
    assert found.clipped_share == 0


def test_noise_and_clipping_are_found_again():
    voice = np.concatenate([np.zeros(RATE_HZ, np.float32), recording(2)])
    spoken = np.repeat(speech_frames(voice), 160)[: len(voice)]
    power = np.mean(voice[spoken] ** 2)
    for snr_db in (5, 15):
        noise = np.random.default_rng(0).normal(0, (power / 10 ** (snr_db / 10)) ** 0.5, len(voice))
        found = measure((voice + noise).astype(np.float32))
        assert found.snr_db == pytest.approx(snr_db, abs=2)
        assert any(line.startswith("noisy") for line in found.warnings) is (snr_db < 10)
    loud = np.clip(speech(3, 1) * 30, -1, 1)
    share = np.mean(np.abs(np.trim_zeros(loud)) >= 0.999)
    assert share > 0.05
    assert measure(loud).clipped_share == pytest.approx(share, rel=0.02)


@pytest.mark.parametrize("seed", range(3))
def test_a_track_that_forgets_says_the_same_of_the_rest(seed):
    """The session's coach holds the last seconds only. F0 alone depends on what came before."""
    samples, voice = np.tile(recording(seed), 3), VoiceActivity()
    whole, short, dropped = SoundTrack(), SoundTrack(), 0
    for at in range(0, len(samples), 3_200):
        piece = samples[at : at + 3_200]
        frames = voice.push(piece)
        for track in (whole, short):
            track.add(piece, frames)
        if short.num_frames > 500:
            short.forget(400)
            dropped += 400
        kept, every = short.frames(), whole.frames()
        for name in ("power", "low_power", "speech", "clipped", "density"):
            assert np.array_equal(getattr(kept, name), getattr(every, name)[dropped:]), name
    assert dropped >= 400
    assert short.num_frames == whole.num_frames - dropped


def babble(index):
    """A recording, and the other three 10 dB under it."""
    voice = recording(index)
    others = [recording(i) for i in range(4) if i != index]
    added = sum(np.resize(v / v.std(), len(voice)) for v in others)
    return voice + 0.3 * voice.std() / added.std() * added


def test_babble_fills_the_dips_and_a_telephone_leaves_nothing_outside_its_band():
    """In babble, pitch and pauses are those of the one in front."""
    clean, crowded, narrow = map(heard, (recording(2), babble(2), telephone(recording(2))))
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


def heard(samples):
    return measure(OffsetFilter().push(on_grid(samples)))


def test_the_syllable_rate_is_that_of_the_measures_at_any_sampling_rate():
    samples = recording(2)
    found = streamer.syllable_rate(samples, RATE_HZ)
    assert found == measure(OffsetFilter().push(on_grid(samples))).rate_syllables_per_s
    wide = soxr.resample(samples, RATE_HZ, 44_100)
    assert streamer.syllable_rate(wide, 44_100) == pytest.approx(found, rel=0.05)
