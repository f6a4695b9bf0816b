"""Low and high for one voice, beside the absolute pitch of the sentence."""

import numpy as np
import pytest
import soxr
from places import SAMPLES
from processes import run_here
from sessions import turn_of
from speech import RATE_HZ, recording

import streamer
from streamer import Describer


@pytest.fixture(scope="module")
def usual():
    """(samples [n], their pitch in Hz)."""
    samples = recording(2)  # the plain one
    return samples, streamer.measure_intervals((samples, RATE_HZ), [(0, 60)])[0].pitch_median_hz


@pytest.fixture(scope="module")
def higher(usual):
    """The same speech, 2.4 semitones higher."""
    return soxr.resample(usual[0], RATE_HZ, RATE_HZ / 1.15)


def test_a_reference_in_hz_changes_no_word(usual):
    samples, hz = usual
    plain = streamer.describe((samples, RATE_HZ), mode="edge")
    found = streamer.describe((samples, RATE_HZ), mode="edge", pitch_reference=hz / 1.25)
    assert plain.voice_pitch is None
    assert found.text == plain.text
    above = 12 * np.log2(found.measures.pitch_median_hz / (hz / 1.25))
    assert found.voice_pitch.semitones == pytest.approx(above, abs=1e-6)
    assert above == pytest.approx(12 * np.log2(1.25), abs=0.1)  # its frames lie elsewhere
    assert found.voice_pitch.level == 4
    assert found.as_json()["voice_pitch"]["name"] == "very high for this voice"
    assert plain.as_json()["voice_pitch"] is None


def test_auto_is_the_median_of_a_recording_s_turns(usual, higher):
    samples = np.concatenate([np.resize(usual[0], 60 * RATE_HZ), np.resize(higher, 10 * RATE_HZ)])
    found = streamer.describe((samples, RATE_HZ), mode="edge", pitch_reference="auto")
    first, last = (part.voice_pitch for part in found.parts)
    assert (first.level, last.level) == (2, 3)
    assert last.reference == "turns"
    assert last.reference_hz == pytest.approx(usual[1], rel=0.02)
    single = streamer.describe((usual[0], RATE_HZ), mode="edge", pitch_reference="auto")
    assert single.voice_pitch is None


async def test_a_session_learns_the_voice_from_its_turns_or_its_coach(usual, higher):
    samples, hz = usual
    known = streamer.Baseline(4.8, hz * 1.3, 2.5, -21, 0.1, 30, -27, 1.75, 0.25, 0.2, -0.1, 0.22)
    async with Describer.open(mode="edge") as d:
        async with d.session(RATE_HZ, measures=True, pitch_reference="auto") as session:
            turns = [(await turn_of(session, each))[-1] for each in (samples, samples, higher)]
        coach = streamer.Coach(baseline=known)
        options = {"measures": True, "pitch_reference": "auto", "coach": coach}
        async with d.session(RATE_HZ, **options) as session:
            coached = (await turn_of(session, samples))[-1].voice_pitch
        with pytest.raises(ValueError, match="needs measures"):
            async with d.session(RATE_HZ, pitch_reference=180.0):
                pass
    first, second, third = (each.voice_pitch for each in turns)
    assert first is None
    assert (second.level, third.level) == (2, 3)
    assert (coached.reference, coached.level) == ("baseline", 0)


def test_the_command_tells_it_beside_the_sentence():
    def told(*words):
        return run_here("describe", SAMPLES[0], "--mode", "edge", "--language", "en", *words)

    _, line = told("--pitch-reference", "auto")[1].splitlines()
    assert line.strip().startswith("pitch for this voice unknown: no pitch is heard, or auto")
    assert "pitch very high for this voice: +" in told("--pitch-reference", "100")[1]
    assert "pitch compared with all voices" in told("--measures")[1]
    for wrong in ("high", "5", "nan"):
        status, _, err = told("--pitch-reference", wrong)
        assert (status, err.count("\n"), "30 to 1000 Hz, or auto" in err) == (2, 1, True)
