"""Voice activity: silero's probabilities however audio is cut, what is speech, turns."""

from pathlib import Path

import numpy as np
from speech import recording

from streamer.model.audio.vad import Frame, TurnDetector, VoiceActivity
from streamer.stages.events import TurnDetection


def test_frames_equal_silero_and_the_counts_follow_from_them(monkeypatch):
    monkeypatch.setenv("ORT_DISABLE_TELEMETRY", "1")  # read when onnxruntime is imported
    import silero_vad
    from silero_vad.sequence_vad import SileroVADSequence

    x = np.concatenate([np.zeros(8_000), recording(0), np.zeros(8_000)]).astype(np.float32)
    x = x[: len(x) // 512 * 512]
    data = Path(silero_vad.__file__).parent / "data"
    expected = SileroVADSequence(data / "silero_vad_16k_sequence.onnx").audio_forward(x)
    voice = VoiceActivity()
    frames = [
        frame for piece in np.split(x, range(700, len(x), 700)) for frame in voice.push(piece)
    ]
    assert np.abs([f.probability for f in frames] - expected).max() < 1e-4
    (spoken,) = np.nonzero(expected >= 0.5)
    assert voice.last_speech_sample == 512 * (spoken[-1] + 1)
    assert 7_000 < 512 * spoken[0] < 12_000


class Played(VoiceActivity):
    """Counts given probabilities instead of the network's."""

    def __init__(self, probabilities):
        super().__init__()
        for i, p in enumerate(probabilities):
            self.count(Frame(512 * i, p))


def test_the_rule_wants_one_stretch_with_at_most_single_gaps():
    assert not Played([0.9] * 7).has_speech
    assert Played([0.9] * 8).has_speech
    assert not Played(([0.9] * 3 + [0.1]) * 1 + [0.9] * 3).has_speech  # 7 frames with the gap
    assert Played(([0.9] * 3 + [0.1]) * 1 + [0.9] * 4).has_speech
    assert not Played([0.9, 0.1, 0.1] * 500).has_speech
    assert not Played([0.1] + [0.9] * 7).has_speech  # a gap before the stretch does not count
    assert Played([0.9] * 8 + [0.0] * 500).has_speech  # stays true


def turns(probabilities):
    """(ms where a turn begins, None), or (ms where it ends, ms of the last speech)."""
    detector = TurnDetector(TurnDetection())
    events = [detector.push(Frame(512 * i, p)) for i, p in enumerate(probabilities)]
    return [e for e in events if e is not None]


def test_a_turn_begins_with_its_padding_and_ends_with_its_silence():
    quiet, voiced = [0.01] * 20, [0.9] * 30
    assert turns(quiet + voiced + quiet) == [(20 * 32 - 300, None), (50 * 32 + 500, 50 * 32)]


def test_clicks_do_not_begin_a_turn_and_pauses_do_not_end_it():
    assert turns([0.9, 0.9, 0.1] * 50) == []
    assert turns([0.9] * 3 + ([0.0] * 15 + [0.9]) * 20) == [(0, None)]
    assert turns([0.9] * 3 + [0.36] * 100) == [(0, None)]  # fading speech goes on
    assert len(turns([0.9] * 3 + [0.34] * 16)) == 2
