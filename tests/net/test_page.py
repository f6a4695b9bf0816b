"""The page in a real Chromium: a recording in the place of its microphone, files, keys, cuts, a keyboard, a phone."""

import json

import numpy as np
import pytest
import soxr
from browser import replay, save_speech, taken, visiting
from scipy.signal import correlate
from speech import SAMPLES, recording


def samples_of(messages):
    """(PCM16 in a session's messages as floats, its rate)."""
    rate = json.loads(messages[0])["session"]["audio"]["input"]["format"]["rate"]
    data = b"".join(message for message in messages if isinstance(message, bytes))
    return np.frombuffer(data, "<i2").astype(np.float32) / 32_768, rate


def likeness(heard, speech, rate_hz):
    """Median (correlation, gain) of the loud quarter seconds of speech, each with the place in `heard` most like it.

    In pieces, because a busy machine drops or doubles buffers of the browser's fake device now and then.
    """
    n, found = rate_hz // 4, []
    for at in range(0, len(speech) - n, n):
        piece = speech[at : at + n]
        if np.sqrt(np.mean(piece**2)) < 0.3 * np.sqrt(np.mean(speech**2)):
            continue
        where = int(np.argmax(correlate(heard, piece, mode="valid", method="fft")))
        place = heard[where : where + n]
        norms = np.linalg.norm(place), np.linalg.norm(piece)
        found.append((float(place @ piece / norms[0] / norms[1]), float(norms[0] / norms[1])))
    return np.median(found, axis=0)


@pytest.mark.parametrize("rate_hz", [8_000, 44_100, 48_000])
async def test_a_microphone_is_described(server, wanted, tmp_path, rate_hz):
    """In three steps: the page sends what the microphone hears (neither levelled nor filtered); what it shows is what
    the server says of those very bytes to another client; and the loudness is that of the recording."""
    index = 0 if rate_hz == 44_100 else 2
    speech = save_speech(tmp_path / "speech.wav", recording(index), rate_hz)
    async with visiting(server, tmp_path / "speech.wav") as guest:
        await guest.page.click("#mic")
        sentence = await guest.until_described()
        messages = taken(guest.sockets)
    heard, heard_hz = samples_of(messages)
    correlation, gain = likeness(heard, soxr.resample(speech, rate_hz, heard_hz), heard_hz)
    assert correlation > 0.999
    assert 0.98 < gain < 1.02
    assert [sentence] == await replay(server, messages)
    assert sentence.endswith("。")


async def test_chosen_and_dropped_files_say_what_describe_says(server, wanted):
    async with visiting(server) as guest:
        await guest.page.set_input_files("#file", SAMPLES[:2])
        await guest.until_said("#history", wanted[SAMPLES[0].name]["text"])
        assert await guest.until_described() == wanted[SAMPLES[1].name]["text"]


