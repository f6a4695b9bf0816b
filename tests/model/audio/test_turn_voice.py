"""Voice activity of a turn: the same for every cut and whoever asks; the network hears it once."""

import numpy as np
import pytest
from speech import cuts, speech

from streamer.core.audio.pcm import OffsetFilter
from streamer.model.audio import vad
from streamer.model.audio.ear import TurnMeasurer
from streamer.model.audio.turns import PartCutter, TurnCutter
from streamer.model.audio.vad import FRAME_SAMPLES, TurnRule, TurnVoice, VoiceActivity
from streamer.model.audio.vad_network import probabilities


@pytest.fixture
def calls(monkeypatch):
    """Frames in each call of the network."""
    found = []

    def counting(rows, state):
        found.append(len(rows))
        return probabilities(rows, state)

    monkeypatch.setattr(vad, "probabilities", counting)
    return found


def padded(samples):
    return np.pad(samples, (0, -len(samples) % FRAME_SAMPLES))


@pytest.mark.parametrize("seed", range(4))
def test_streamed_equals_whole_whoever_asks(seed):
    samples = speech(2.1 + 0.3 * seed, seed)
    chance = np.random.default_rng(seed)
    alone = VoiceActivity()
    alone.push(samples)
    wanted = [frame.probability for frame in VoiceActivity().push(padded(samples))]
    voice = TurnVoice(is_read=True)
    found = []
    for cut in cuts(len(samples), seed):
        (voice.hold if chance.random() < 0.5 else voice.push)(samples[cut])
        match chance.integers(4):
            case 0:
                found += voice.read().tolist()
            case 1:
                voice.last_speech_sample()
    found += voice.finish().tolist()
    assert found == np.array(wanted, np.float32).tolist()
    assert voice.has_speech == alone.has_speech
    assert voice.last_speech_sample() == alone.last_speech_sample


def test_a_rest_that_is_judged_counts_for_nothing():
    """A turn that ends in the middle of a frame of speech has the same end of speech as ever."""
    samples = speech(2, 1)[: 40 * FRAME_SAMPLES + 400]
    voice = VoiceActivity()
    frames = voice.finish(samples)
    assert len(frames) == 41
    assert frames[-1].probability >= voice.rule.threshold
    assert voice.last_speech_sample == 40 * FRAME_SAMPLES


@pytest.mark.parametrize("live_update_s", [None, 0.5])
def test_measures_and_the_turn_share_the_network(calls, live_update_s):
    samples = speech(4.3, 2)
    plain, shared = (PartCutter(60.0, live_update_s, measures=asked) for asked in (False, True))
    (closed,) = _closed(plain, samples)
    wanted = closed.has_speech, closed.last_speech()
    del calls[:]
    (closed,) = _closed(shared, samples)
    closed.measures()
    assert (closed.has_speech, closed.last_speech()) == wanted
    assert sum(calls) == len(padded(samples)) // FRAME_SAMPLES


def test_with_turn_detection_they_do_not():
    """Its frames begin where the session does, so they are no frames of the turn: measures of the
    same turn would differ with where it lies."""
    data = (np.concatenate([np.zeros(7_777, np.float32), speech(3, 3)]) * 32767).astype("<i2")
    cutter = TurnCutter(16_000, 60.0, TurnRule(), measures=True)
    cutter.push(data.tobytes())
    measurer = cutter.measurer
    cutter.commit()
    alone = TurnMeasurer()
    whole = OffsetFilter().push(data / np.float32(32768))
    alone.push(whole[-measurer.num_pushed :])
    assert measurer.num_pushed % FRAME_SAMPLES != len(data) % FRAME_SAMPLES
    assert measurer.finish() == alone.finish()


def _closed(cutter, samples):
    items = []
    for at in range(0, len(samples), 1_600):
        items += cutter.push(samples[at : at + 1_600])
        if cutter.measurer is not None:
            cutter.measurer.work(True)
    return cutter.close()[-1:]


def test_little_is_left_to_hear_when_a_live_turn_ends(calls):
    """Under 100 ms and the frame that its end makes, in one call."""
    for num in range(64_000, 67_200, 400):
        samples = speech(5, 1)[:num]
        measurer = TurnMeasurer()
        for at in range(0, num, 1_600):
            measurer.push(samples[at : at + 1_600])
            if at + 1_600 < num:
                measurer.work(True)
        measurer.is_over = True
        del calls[:]
        measurer.finish()
        assert len(calls) == 1
        assert calls[0] <= 5
