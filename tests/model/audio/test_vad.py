"""Voice activity: streamed == whole, silero's front end, what is speech, turns."""

import functools
import io
import itertools
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer.model.audio.vad import (
    FRAME_MS,
    Frame,
    SpeechBegan,
    SpeechEnded,
    TurnDetector,
    TurnRule,
    VoiceActivity,
)

RATE = 16_000
needs_espeak = pytest.mark.skipif(shutil.which("espeak-ng") is None, reason="needs espeak-ng")


@functools.cache
def speech(voice, rate=160, pitch=50, text="今天天气很好，我们去公园散步吧。"):
    spoken = ["espeak-ng", "-v", voice, "-s", str(rate), "-p", str(pitch), "--stdout", text]
    wav = subprocess.run(spoken, capture_output=True, check=True).stdout
    samples, sample_rate = soundfile.read(io.BytesIO(wav))
    return soxr.resample(samples, sample_rate, RATE)


def hear(x, cuts=()):
    voice = VoiceActivity()
    edges = [0, *sorted(min(c, len(x)) for c in cuts), len(x)]
    return voice, [frame for a, b in itertools.pairwise(edges) for frame in voice.push(x[a:b])]


@needs_espeak
def test_frames_equal_silero_and_the_counts_follow_from_them(monkeypatch):
    monkeypatch.setenv("ORT_DISABLE_TELEMETRY", "1")  # read when onnxruntime is imported
    import silero_vad
    from silero_vad.sequence_vad import SileroVADSequence

    x = np.concatenate([np.zeros(8_000), speech("cmn") * 0.5, np.zeros(8_000)]).astype(np.float32)
    x = x[: len(x) // 512 * 512]
    data = Path(silero_vad.__file__).parent / "data"
    expected = SileroVADSequence(data / "silero_vad_16k_sequence.onnx").audio_forward(x)
    voice, frames = hear(x, range(0, len(x), 700))
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


def turns(probabilities, rule=None):
    detector = TurnDetector(rule)
    events = [detector.push(Frame(512 * i, p)) for i, p in enumerate(probabilities)]
    return [e for e in events if e is not None]


def test_a_turn_begins_with_its_padding_and_ends_with_its_silence():
    quiet, voiced = [0.01] * 20, [0.9] * 30
    assert turns(quiet + voiced + quiet) == [
        SpeechBegan(at_ms=20 * 32 - 300),
        SpeechEnded(at_ms=50 * 32 + 500, last_speech_ms=50 * 32),
    ]


def test_clicks_do_not_begin_a_turn_and_pauses_do_not_end_it():
    assert turns([0.9, 0.9, 0.1] * 50) == []
    assert turns([0.9] * 3 + ([0.0] * 15 + [0.9]) * 20) == [SpeechBegan(0)]
    assert turns([0.9] * 3 + [0.36] * 100) == [SpeechBegan(0)]  # fading speech goes on
    assert len(turns([0.9] * 3 + [0.34] * 16)) == 2


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.floats(0, 1), max_size=300),
    st.integers(0, 1000),
    st.integers(0, 1000),
    st.integers(0, 200),
)
def test_turns_alternate_in_order(probabilities, padding, silence, start):
    events = turns(probabilities, TurnRule(0.5, padding, silence, start))
    kinds = [type(e) for e in events]
    assert kinds == [SpeechBegan, SpeechEnded] * (len(kinds) // 2) + [SpeechBegan] * (
        len(kinds) % 2
    )
    times = [e.at_ms for e in events]
    assert times == sorted(times)
    assert all(0 <= t <= FRAME_MS * len(probabilities) for t in times)
