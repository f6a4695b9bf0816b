"""The chunker: streamed == whole for every cut, against soxr as the oracle, and its refusals; the
mixer: as loud as the speech, whatever the other channels hold; telephone codes, the filter of 0 Hz,
the high band that is guessed at a low rate; what is heard of a turn depends on its sound alone.
"""

import io
import json
import subprocess

import numpy as np
import pytest
import soundfile
import soxr
import speech
from hypothesis import given, settings
from hypothesis import strategies as st
from places import ROOT

from streamer.audio.file import chunks_of, open_audio
from streamer.core.audio import pcm
from streamer.core.audio import turn as trim

RATES = [1_000, 8_000, 11_025, 16_000, 22_050, 24_000, 44_100, 48_000, 96_000, 384_000]


def noise(n, seed=0, channels=1):
    x = np.random.default_rng(seed).uniform(-0.9, 0.9, (n, channels)).astype(np.float32)
    return x[:, 0] if channels == 1 else x


def hear(chunker, frames, cuts=()):
    return np.concatenate([*map(chunker.push, np.split(frames, sorted(cuts))), chunker.finish()])


@settings(max_examples=60)
@given(
    rate=st.sampled_from(RATES),
    channels=st.integers(1, 9),
    length=st.integers(0, 9_000),
    cuts=st.lists(st.integers(0, 9_000), max_size=12),
)
def test_streamed_frames_equal_whole(rate, channels, length, cuts):
    x = noise(length, length, channels)
    whole = hear(pcm.Chunker(rate, channels), x)
    for frames in (x, np.asfortranarray(x)):
        assert np.array_equal(hear(pcm.Chunker(rate, channels), frames, cuts), whole)


@pytest.mark.parametrize("rate", RATES)
def test_equals_soxr_offline(rate):
    x = noise(rate // 2)
    expected = x if rate == 16_000 else soxr.resample(x, rate, 16_000, quality="MQ")
    heard = hear(pcm.Chunker(rate), x, range(0, len(x), 997))
    assert abs(len(heard) - len(x) * 16_000 / rate) <= 1
    if rate == pcm.TELEPHONE_HZ:  # it has a guess of what was cut off beside it
        expected = pcm.HighBand().push(expected, is_last=True)
    np.testing.assert_allclose(heard, expected, atol=1e-6)


@pytest.mark.parametrize("rate", [24_000, 44_100, 48_000, 96_000])
def test_added_delay_is_at_most_50_ms(rate):
    chunker, heard = pcm.Chunker(rate), 0
    for i in range(100):
        heard += len(chunker.push(np.zeros(rate // 100, np.float32)))
        assert (i + 1) / 100 - heard / 16_000 <= 0.05 + 1e-9


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 2 * pcm.MAX_MAGNITUDE])
@pytest.mark.parametrize("cuts", [[], [100, 8_000], range(0, 30_000, 7)])
def test_bad_samples_are_refused_with_their_place(value, cuts):
    x = noise(30_000, channels=2)
    x[24_000, 1] = value
    with pytest.raises(pcm.BadAudio, match=r"^bad audio at 0\.500 s: .* channel 1") as caught:
        hear(pcm.Chunker(48_000, 2), x, cuts)
    assert "\n" not in str(caught.value)


def test_a_refused_push_changes_nothing():
    chunker, x = pcm.Chunker(24_000), noise(4000)
    first = chunker.push(x[:2000])
    with pytest.raises(pcm.BadAudio):
        chunker.push(np.full(9, np.nan))
    rest = [chunker.push(x[2000:]), chunker.finish()]
    assert np.array_equal(np.concatenate([first, *rest]), hear(pcm.Chunker(24_000), x))


RATE = 16_000
CASES = json.loads((ROOT / "tests" / "support" / "mixing.json").read_text("utf-8"))
VOICE, OTHER = (np.float32(0.1) * noise(2 * RATE, seed) for seed in (0, 1))


def mixed(*channels):
    """(samples, the line about silent channels)"""
    mixer = pcm.Mixer(len(channels), RATE)
    return mixer.push(np.column_stack(channels), is_last=True), mixer.told()


def sound_of(case):
    """Channels [channels, n] of a case of mixing.json: tones of [Hz, amplitude, from s, to s]."""
    time = np.arange(RATE) / RATE
    found = np.zeros((len(case["channels"]), RATE), np.float32)
    for channel, tones in zip(found, case["channels"], strict=True):
        for hz, amplitude, begin, end in tones:
            channel += amplitude * np.sin(2 * np.pi * hz * time) * ((time >= begin) & (time < end))
    return found


def test_the_table_is_mixed_as_loud_as_it_says_and_the_page_mixes_it_so():
    wanted = [mixed(*sound_of(case)) for case in CASES]
    for case, (found, told) in zip(CASES, wanted, strict=True):
        assert told == case["told"], case["name"]
        level = 10 * np.log10(np.mean(found**2) + 1e-12)
        assert level == pytest.approx(case["dbfs"], abs=0.1), case["name"]
    program = (ROOT / "streamer/net/page/mixer.js").read_text("utf-8").replace("export ", "")
    program += """
    const cases = JSON.parse(require("fs").readFileSync(0, "utf8"));
    const of = (channels) => ({
      numberOfChannels: channels.length, length: channels[0].length, sampleRate: 16000,
      getChannelData: (i) => Float32Array.from(channels[i]),
    });
    console.log(JSON.stringify(cases.map((channels) => Array.from(toPcm(of(channels))))));
    """
    told = json.dumps([sound_of(case).tolist() for case in CASES])
    done = subprocess.run(["node", "-e", program], input=told, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for (found, _), other in zip(wanted, json.loads(done.stdout), strict=True):
        assert np.abs(np.array(other) / 32_768 - np.clip(found, -1, 1)).max() <= 1 / 32_768


def test_another_channel_is_heard_once_it_is_louder():
    """3 dB, over a quarter of a second."""
    for gain, heard in ((1.3, VOICE), (2.0, 2 * OTHER)):
        found, _ = mixed(VOICE, np.concatenate([0.1 * OTHER[:RATE], gain * OTHER[RATE:]]))
        assert np.array_equal(found[:RATE], VOICE[:RATE])
        assert np.array_equal(found[RATE * 3 // 2 :], heard[RATE * 3 // 2 :])


def test_a_silent_channel_is_told_unless_another_is_named():
    both = np.column_stack([VOICE, 0 * VOICE])
    for channel, warning in ((None, "channel 1 holds no sound"), (0, None)):
        with open_audio((both, RATE)) as audio:
            list(chunks_of(audio, channel))
        assert audio.warning == warning


SECOND = pcm.SAMPLE_RATE_HZ


def sound(seconds, seed=0):
    noise = np.random.default_rng(seed).standard_normal(int(seconds * SECOND))
    return pcm.on_grid((0.05 * noise).astype(np.float32))


@pytest.mark.parametrize(("law", "subtype"), [("pcmu", "ULAW"), ("pcma", "ALAW")])
def test_every_code_is_the_level_that_libsndfile_reads(law, subtype):
    codes = bytes(range(256))
    raw = {"samplerate": 8_000, "channels": 1, "format": "RAW", "subtype": subtype}
    wanted, _ = soundfile.read(io.BytesIO(codes), dtype="float32", **raw)
    assert np.array_equal(pcm.from_g711(codes, law), wanted)


@given(st.lists(st.integers(0, 3 * SECOND), max_size=12), st.sampled_from([0.0, 0.3, -0.01]))
def test_no_cut_changes_a_bit(cuts, offset):
    whole = pcm.on_grid(sound(3) + np.float32(offset))
    whole[SECOND : SECOND + 5_000] = 0
    cut = pcm.OffsetFilter()
    pieces = [cut.push(piece) for piece in np.split(whole, sorted(cuts))]
    assert np.array_equal(np.concatenate(pieces), pcm.OffsetFilter().push(whole))


@pytest.mark.parametrize("hz", [60, 83, 100, 250, 1000])
def test_a_voice_keeps_its_level(hz):
    tone = np.sin(2 * np.pi * hz * np.arange(2 * SECOND) / SECOND).astype(np.float32) / 2
    found = pcm.OffsetFilter().push(tone)[SECOND:]
    assert 20 * np.log10(found.std() / tone[SECOND:].std()) == pytest.approx(0, abs=0.2)


def test_a_voice_is_nearly_as_bright_as_it_was():
    """In each second of recordings, above what a telephone lets pass."""
    off, high = [], np.fft.rfftfreq(SECOND, 1 / SECOND) >= 3_800
    for index in range(4):
        samples = speech.recording(index)
        narrow = soxr.resample(samples, SECOND, pcm.TELEPHONE_HZ)
        narrow = soxr.resample(narrow, pcm.TELEPHONE_HZ, SECOND, "MQ")
        both = pcm.HighBand().push(narrow, is_last=True), samples
        for at in range(0, len(samples) - SECOND, SECOND):
            powers = [np.abs(np.fft.rfft(x[at : at + SECOND])) ** 2 for x in both]
            found, was = (10 * np.log10(power[high].mean()) for power in powers)
            off.append(found - was)
    assert np.sqrt(np.mean(np.square(off))) < 12


LEAD = trim.LEAD_SAMPLES + trim.STEP_SAMPLES  # at most


def silence(num_samples):
    return np.zeros(num_samples, np.float32)


@given(cuts=st.lists(st.integers(0, 4 * SECOND), max_size=12), noise=st.sampled_from([-90, -45]))
def test_no_cut_changes_what_is_heard(cuts, noise):
    """Half a second of a room at -74 dBFS, sound, a pause in the room, sound, the room."""
    room = pcm.on_grid((0.0002 * np.random.default_rng(1).standard_normal(4 * SECOND)).astype("f4"))
    room[SECOND // 2 : SECOND] += sound(0.5)
    room[2 * SECOND : 3 * SECOND] += sound(1, 2)
    louder = 10 ** (noise / 20) * np.random.default_rng(5).standard_normal(len(room))
    whole, one = pcm.on_grid((pcm.on_grid(room) + louder).astype(np.float32)), trim.Trim()
    heard = [one.push(piece)[0] for piece in np.split(whole, sorted(cuts))]
    heard.append(one.push(trim.NOTHING, is_last=True)[0])
    assert np.array_equal(np.concatenate(heard), trim.trimmed(whole))


@pytest.mark.parametrize("begin", [0, 7_001])
@pytest.mark.parametrize("pause", [1, 9])
@pytest.mark.parametrize("piece", [160, 30_000])
def test_a_span_is_what_is_heard_with_its_pauses_whole(begin, pause, piece):
    voice = np.concatenate([sound(1), silence(pause * SECOND), sound(1, 3)])
    turn = np.concatenate([silence(begin), voice, silence(3 * SECOND)])
    one = trim.Trim()
    given = [one.push(turn[at : at + piece])[1] for at in range(0, len(turn), piece)]
    found = np.concatenate([*given, one.push(trim.NOTHING, is_last=True)[1]])
    assert holds(found[trim.MARGIN_SAMPLES : -trim.MARGIN_SAMPLES], voice)
    assert one.span_begin == begin - int(np.flatnonzero(found)[0])


def test_a_pause_inside_is_heard_up_to_two_seconds():
    short = np.concatenate([sound(1), silence(2 * SECOND), sound(1, 3)])
    assert holds(trim.trimmed(short), short)
    for seconds in (3, 7, 70):
        long = np.concatenate([sound(1), silence(seconds * SECOND), sound(1, 3)])
        pause = silence(trim.TAIL_SAMPLES + trim.MAX_PAUSE_SAMPLES)
        heard = np.concatenate([sound(1), pause, sound(1, 3)])
        assert abs(len(trim.trimmed(long)) - len(trim.trimmed(heard))) <= 640


@pytest.mark.parametrize("room", [silence(30 * SECOND), sound(30) * np.float32(0.1)])
def test_without_any_sound_the_last_two_seconds_are_heard(room):
    one, room = trim.Trim(), pcm.on_grid(room)
    assert not any(map(len, one.push(room)))
    heard, span = one.push(trim.NOTHING, is_last=True)
    assert np.array_equal(span, heard)
    assert len(heard) == trim.KEPT_SAMPLES
    assert [len(trim.trimmed(room[:num])) for num in (200, 0)] == [200, 0]


def holds(heard, whole):
    """Whether it is all of it, with silence where the turn has no lead and no tail."""
    at = int(np.flatnonzero(heard)[0] - np.flatnonzero(whole)[0])
    lead, speech, tail = np.split(heard, [at, at + len(whole)])
    is_silent = not lead.any() and not tail.any()
    num_more = len(tail) - trim.TAIL_SAMPLES
    is_placed = len(lead) <= LEAD and 0 <= num_more <= trim.SOUND_SAMPLES
    return is_silent and is_placed and np.array_equal(speech, whole)


@pytest.mark.parametrize("hz", [3, 11])
def test_a_rumble_is_no_sound(hz):
    rumble = np.cos(2 * np.pi * hz * np.arange(SECOND) / SECOND).astype(np.float32) / 70
    voice = sound(2)
    lone = trim.trimmed(pcm.on_grid(np.concatenate([silence(SECOND), voice])))
    assert abs(len(trim.trimmed(pcm.on_grid(np.concatenate([rumble, voice])))) - len(lone)) <= 2560
