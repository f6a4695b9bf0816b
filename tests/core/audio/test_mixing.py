"""One channel of several: as loud as the speech, whatever the other channels hold."""

import json
import subprocess

import numpy as np
import pytest
from places import ROOT

from streamer.core.audio.chunker import Mixer

RATE = 16_000
CASES = json.loads((ROOT / "tests" / "support" / "mixing.json").read_text("utf-8"))
VOICE = np.random.default_rng(0).normal(0, 0.1, 2 * RATE).astype(np.float32)
OTHER = np.random.default_rng(1).normal(0, 0.1, 2 * RATE).astype(np.float32)


def mixed(*channels):
    mixer = Mixer(len(channels), RATE)
    return np.concatenate([mixer.push(np.column_stack(channels)), mixer.finish()])


def sound_of(case):
    """Frames [n, channels] of a case of mixing.json: tones of [Hz, amplitude, from s, to s]."""
    time = np.arange(RATE) / RATE
    frames = np.zeros((RATE, len(case["channels"])), np.float32)
    for channel, tones in enumerate(case["channels"]):
        for hz, amplitude, begin, end in tones:
            tone = amplitude * np.sin(2 * np.pi * hz * time)
            frames[:, channel] += tone * ((time >= begin) & (time < end))
    return frames


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_a_case_of_the_table(case):
    found = mixed(*sound_of(case).T)
    assert 10 * np.log10(np.mean(found**2) + 1e-12) == pytest.approx(case["dbfs"], abs=0.1)


def test_the_page_mixes_the_table_as_python_does():
    mixer = ROOT / "streamer" / "net" / "page" / "mixer.js"
    sounds = [sound_of(case) for case in CASES]
    program = (
        mixer.read_text("utf-8").replace("export ", "")
        + """
    const cases = JSON.parse(require("fs").readFileSync(0, "utf8"));
    const of = (channels) => ({
      numberOfChannels: channels.length, length: channels[0].length, sampleRate: 16000,
      getChannelData: (i) => Float32Array.from(channels[i]),
    });
    console.log(JSON.stringify(cases.map((channels) => Array.from(toPcm(of(channels))))));
    """
    )
    told = json.dumps([sound.T.tolist() for sound in sounds])
    done = subprocess.run(["node", "-e", program], input=told, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for sound, pcm in zip(sounds, json.loads(done.stdout), strict=True):
        wanted = np.clip(mixed(*sound.T), -1, 1)
        assert np.abs(np.array(pcm) / 32_768 - wanted).max() <= 1 / 32_768


@pytest.mark.parametrize("delay", [2, 8, 32, 112, 320])
@pytest.mark.parametrize("gain", [1.0, -1.0, 0.8, -0.8])
@pytest.mark.parametrize("silence_s", [0, 12])
def test_a_voice_is_heard_through_one_microphone_at_a_time(delay, gain, silence_s):
    """Two microphones at different distances: their sum would cancel some frequencies."""
    voice = np.concatenate([np.zeros(silence_s * RATE, np.float32), VOICE])
    other = gain * np.concatenate([np.zeros(delay, np.float32), voice[:-delay]])
    assert np.array_equal(mixed(voice, other, 0 * voice), voice)


def test_another_channel_is_heard_once_it_is_louder():
    """3 dB, over a quarter of a second."""
    for gain, heard in ((1.3, VOICE), (2.0, 2 * OTHER)):
        found = mixed(VOICE, np.concatenate([0.1 * OTHER[:RATE], gain * OTHER[RATE:]]))
        assert np.array_equal(found[:RATE], VOICE[:RATE])
        assert np.array_equal(found[RATE * 3 // 2 :], heard[RATE * 3 // 2 :])
