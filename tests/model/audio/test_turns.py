"""Voice activity beside silero's; turns, the same for every cut, where it or the client says."""

from pathlib import Path

import numpy as np
import pytest
from speech import RATE_HZ, cuts, pcm, recording, speech

from streamer.core.audio.pcm import OffsetFilter, on_grid
from streamer.core.audio.turn import Closed, Heard, TurnOpened
from streamer.model.audio.turns import TurnCutter
from streamer.model.audio.vad import Frame, TurnDetector, VoiceActivity
from streamer.stages.events import TurnDetection

SILENCE = np.zeros(RATE_HZ, np.float32)


def hear(hearing, data, pieces=(slice(None),)):
    """All items to a commit."""
    items = [item for piece in pieces for item in hearing.push(data[piece])]
    return items + hearing.commit()


def turns(items):
    """What matters of each turn: bounds, the samples heard, all windows' bytes."""
    found = []
    for item in items:
        match item:
            case TurnOpened():
                found.append({"opened": item.at_ms, "windows": []})
            case Heard():
                found[-1]["windows"] += [np.asarray(w.raw).tobytes() for w in item.windows]
            case Closed():
                found[-1]["windows"] += [np.asarray(w.raw).tobytes() for w in item.rest]
                found[-1] |= {
                    "samples": item.num_samples,
                    "speech": item.has_speech,
                    "maximum": item.maximum,
                    "stopped": item.stopped_ms,
                    "last": item.last_speech_ms,
                }
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
        (0, 60.0, []),
        (100, 60.0, [100]),
        (960_000, 60.0, [960_000]),
        # a rest too short to be described gets 2 s of the part before it
        (96_001, 6.0, [64_000, 32_001]),
        (127_999, 6.0, [64_000, 63_999]),
        (128_000, 6.0, [96_000, 32_000]),
        (50_000, 1.0, [16_000, 16_000, 8_000, 10_000]),
    ],
)
def test_parts_keep_every_sample_in_order(total, limit, lengths, settled):
    """Also where the cutter is told ahead how many samples are left."""
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
    # silence stands before and behind each part
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
    frames = [
        frame for piece in np.split(x, range(700, len(x), 700)) for frame in voice.push(piece)
    ]
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
