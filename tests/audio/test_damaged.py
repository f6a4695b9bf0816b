"""Files that are cut short, damaged, or out of range: read as far as they go, or one line."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sound_files import UNREADABLE, encoded, hear, noise, refusal

from streamer.audio.file import AudioError, open_audio


def test_a_truncated_wav_is_read_as_far_as_it_goes(tmp_path):
    path, x = tmp_path / "cut.wav", noise(32_000)
    path.write_bytes(encoded(x)[: 44 + 2 * 8_000])
    heard, warning = hear(path)
    assert warning == "is cut short: 0.50 s of the 2.00 s it promises are there"
    np.testing.assert_allclose(heard, x[:8_000], atol=1e-4)


@pytest.mark.parametrize("container", ["AIFF", "AU", "FLAC", "MP3"])
def test_other_formats_cut_short(tmp_path, container):
    path, x = tmp_path / "cut", noise(160_000)
    data = encoded(x, format=container, subtype=None if container == "MP3" else "PCM_16")
    path.write_bytes(data[: len(data) // 2])
    heard, warning = hear(path)
    assert 60_000 < len(heard) <= 80_500
    assert warning
    assert warning.startswith("is cut short: ")
    assert warning.endswith("of the 10.00 s it promises are there")


@pytest.mark.parametrize("size", [5, 12, 20, 36, 40])
def test_a_wav_cut_inside_its_header(tmp_path, size):
    path = tmp_path / "cut.wav"
    path.write_bytes(encoded(noise(1_000))[:size])
    assert UNREADABLE.match(refusal(path))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_damaged_files_give_samples_or_one_line(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("d") / "clip"
    content = bytearray(
        encoded(noise(2_000), format=data.draw(st.sampled_from(["WAV", "FLAC", "AIFF"])))
    )
    for place, value in data.draw(
        st.lists(st.tuples(st.integers(0, 60), st.integers(0, 255)), max_size=4)
    ):
        content[place] = value
    path.write_bytes(content[: data.draw(st.integers(1, len(content)))])
    try:
        got = len(hear(path)[0])
    except AudioError as error:
        got = 1 - str(error).count("\n")
    assert got >= 1  # samples, or one line


def without_frame_count(data: bytes) -> bytes:
    """An MP3 as sox writes it: the first frame, which only says how many there are, is gone."""
    assert data[:2] == b"\xff\xf3"
    assert b"Xing" in data[:40]
    kbit = (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160)[data[2] >> 4]
    rate = (22_050, 24_000, 16_000)[data[2] >> 2 & 3]
    return data[72_000 * kbit // rate + (data[2] >> 1 & 1) :]


def test_an_mp3_that_does_not_say_how_long_it_is_is_whole(tmp_path):
    """Its bit rate varies, so libsndfile's guess is far off; the file is healthy all the same."""
    path, x = tmp_path / "clip.mp3", noise(160_000)
    x[:120_000] = 0
    data = encoded(x, format="MP3", subtype=None, bitrate_mode="VARIABLE")
    path.write_bytes(without_frame_count(data))
    heard, warning = hear(path)
    with open_audio(path) as audio:
        assert audio.num_frames > len(heard) >= 160_000, "the guess is wrong"
    assert warning is None


def test_a_flac_that_was_written_to_a_pipe_is_whole(tmp_path):
    path, x = tmp_path / "clip.flac", noise(9_000)
    data = bytearray(encoded(x, format="FLAC"))
    data[21] &= 0xF0  # the count of samples, 36 bits: 0 is unknown
    data[22:26] = bytes(4)
    path.write_bytes(data)
    heard, warning = hear(path)
    assert (len(heard), warning) == (9_000, None)
    with open_audio(path) as audio:
        assert audio.duration_s < 10


@pytest.mark.parametrize("kind", ["WAV", "array", "float64"])
def test_integers_as_floats_are_refused_with_the_way_out(tmp_path, kind):
    """Heard as they are they give a sentence about noise."""
    x = noise(9_000) * np.float32(32_768)
    x[:4_000] = 0
    source = tmp_path / "int.wav"
    if kind == "WAV":
        source.write_bytes(encoded(x, subtype="FLOAT"))
    else:
        source = (x.astype(kind) if kind == "float64" else x, 16_000)
    with pytest.raises(AudioError) as caught, open_audio(source) as audio:
        list(audio)
    assert re.search(
        r": its samples reach \d+(\.\d+)? at 0\.\d\d s, but full scale is 1\.0; "
        r"divide them by 32768 if they are int16's, else by the loudest$",
        str(caught.value),
    )


@pytest.mark.parametrize("is_file", [True, False])
def test_a_little_over_full_scale_is_clipped_and_told(tmp_path, is_file):
    x = noise(20_000) * np.float32(2.5)
    (tmp_path / "over.wav").write_bytes(encoded(x, subtype="FLOAT"))
    with open_audio(tmp_path / "over.wav" if is_file else (x, 16_000)) as audio:
        heard = np.concatenate(list(audio))
    np.testing.assert_array_equal(heard, np.clip(x, -1, 1))
    num_over = int((np.abs(x) > 1.0 + 1 / 32_768).sum())
    assert audio.warning == f"{num_over} samples beyond full scale were clipped, the loudest 1.25"
    assert audio.cut is None
