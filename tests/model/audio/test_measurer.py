"""A turn's measurer: the same for every cut, whenever it works; beside Praat."""

import numpy as np
import parselmouth
import pytest
from speech import RATE_HZ, cuts, recording, speech

from pipelines.embedded.labels import speech_frames
from streamer.core.measures.track import LAST_S
from streamer.model.audio.ear import TurnMeasurer


def whole(samples):
    measurer = TurnMeasurer()
    measurer.push(samples)
    return measurer.finish()


def push_by_chance(measurer, samples, seed):
    """Cut anywhere, and now and then somebody works."""
    chance = np.random.default_rng(seed)
    for cut in cuts(len(samples), seed):
        measurer.push(samples[cut])
        if chance.random() < 0.7:
            measurer.work(bool(chance.random() < 0.5))


@pytest.mark.parametrize("seed", range(3))
def test_streamed_equals_whole(seed):
    samples = speech(3.3 + seed, seed)
    measurer = TurnMeasurer()
    push_by_chance(measurer, samples, seed)
    assert measurer.finish() == whole(samples)
    assert measurer.finish() == measurer.finish()


@pytest.mark.parametrize("num", [25_700, 28_840, 32_160, 32_161])
def test_it_is_no_matter_whether_all_was_heard_before_the_end(num):
    """A last frame that comes alone has the bits that it has beside others."""
    samples = recording(2)[:num]
    whole, heard = TurnMeasurer(), TurnMeasurer()
    whole.push(samples)
    for at in range(0, num, 1_600):
        heard.push(samples[at : at + 1_600])
        heard.work(True)
    heard.is_over = True
    assert heard.finish() == whole.finish()
    for name in ("power", "f0_hz", "speech"):
        found, wanted = (getattr(each.curves(), name) for each in (heard, whole))
        assert np.array_equal(found, wanted, equal_nan=True), name


@pytest.mark.parametrize("num", [0, 1, 159, 512, 4_000])
def test_a_turn_of_next_to_nothing_has_none(num):
    found = whole(recording(0)[:num] * 1e-4)
    assert (found.pitch_median_hz, found.rate_syllables_per_s) == (None, None)
    assert found.warnings[0].startswith("only 0.0 s of speech")


def test_news_come_once_in_200_ms():
    samples = speech(3, 1)
    measurer = TurnMeasurer(7)
    found = []
    for at in range(0, len(samples), 1_600):
        measurer.push(samples[at : at + 1_600])
        found.append(measurer.work(True))
    assert [news is not None for news in found] == [i % 2 == 1 for i in range(30)]
    assert {news.turn for news in found if news} == {7}
    assert tuple(found[-1].last) == LAST_S
    assert found[-1].last[7] == found[-1].so_far
    assert found[-1].last[2].audio_s == 2
    assert found[-1].heard_s == pytest.approx(3, abs=0.25)
    measurer.is_over = True
    measurer.push(samples)
    assert measurer.work(True) is None


def test_100_ms_are_heard_and_less_waits():
    samples = speech(1, 1)
    measurer = TurnMeasurer()
    for num, is_due in ((1_599, False), (1, True), (1_599, False), (1, True)):
        measurer.push(samples[:num])
        assert measurer.is_due(True) is is_due
        news = measurer.work(True)
    assert news is not None
    assert measurer.is_due(False) is True


@pytest.mark.parametrize("index", range(4))
def test_beside_praat_and_the_samples_themselves(index):
    samples = recording(index)
    found = whole(samples)
    track = parselmouth.Sound(samples, RATE_HZ).to_pitch(0.01, 60, 500)
    f0 = track.selected_array["frequency"]
    assert found.pitch_median_hz == pytest.approx(np.median(f0[f0 > 0]), rel=0.05)
    spoken = np.repeat(speech_frames(samples), 160)[: len(samples)]
    level_db = 10 * np.log10(np.mean(samples[: len(spoken)][spoken] ** 2))
    assert found.level_dbfs == pytest.approx(level_db, abs=1.5)
    assert found.audio_s == pytest.approx(len(samples) / RATE_HZ, abs=0.011)
    assert found.clipped_share == 0


def test_noise_is_found_again():
    """White noise at a known distance from the speech."""
    voice = np.concatenate([np.zeros(RATE_HZ, np.float32), recording(2)])
    spoken = np.repeat(speech_frames(voice), 160)[: len(voice)]
    power = np.mean(voice[spoken] ** 2)
    for snr_db in (5, 15):
        noise = np.random.default_rng(0).normal(0, (power / 10 ** (snr_db / 10)) ** 0.5, len(voice))
        found = whole((voice + noise).astype(np.float32))
        assert found.snr_db == pytest.approx(snr_db, abs=2)
        assert any(line.startswith("noisy") for line in found.warnings) is (snr_db < 10)


def test_clipping_is_found():
    samples = np.clip(speech(3, 1) * 30, -1, 1)
    share = np.mean(np.abs(samples) >= 0.999)
    assert share > 0.05
    assert whole(samples).clipped_share == pytest.approx(share, abs=1e-4)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("seconds", [1.0, 4.0])
def test_measures_depend_on_the_samples_alone(seconds, seed):
    """Not on the cut, nor on who has worked when."""
    samples = speech(seconds, seed)
    at_once, measurer = TurnMeasurer(), TurnMeasurer()
    at_once.push(samples)
    push_by_chance(measurer, samples, seed)
    measurer.is_over = True
    assert measurer.work(True) is None
    assert measurer.finish() == at_once.finish() == whole(samples)
