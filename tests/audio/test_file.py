"""Opening recordings: formats, files cut short or damaged, refusals in one line, bounded memory."""

import errno
import gc
import io
import os
import re
import resource
import shlex
import shutil
import struct
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st
from places import ROOT
from processes import ended
from sound_files import UNREADABLE, encoded, hear, noise, refusal

from streamer.audio.file import BLOCK_SAMPLES, AudioError, open_audio

needs_ffmpeg = pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="ffmpeg is not installed")
KINDS = [
    *(("WAV", f"PCM_{bits}", near) for bits, near in (("U8", 1e-2), (16, 1e-4), (24, 1e-6))),
    *(("WAV", kind, near) for kind, near in (("PCM_32", 1e-6), ("FLOAT", 0), ("DOUBLE", 0))),
    *((name, "PCM_16", 1e-4) for name in ("WAVEX", "RF64", "FLAC", "AU", "CAF")),
    ("AIFF", "PCM_24", 1e-6),
]
TONE = 0.5 * np.sin(np.arange(480_000) / 20).astype(np.float32)


@pytest.mark.parametrize(("container", "subtype", "tolerance"), KINDS)
@pytest.mark.parametrize(("rate", "channels"), [(8_000, 1), (44_100, 2), (96_000, 6)])
def test_reads_what_was_written(tmp_path, container, subtype, tolerance, rate, channels):
    path, x = tmp_path / "clip", noise(5_000, channels)
    path.write_bytes(encoded(x, rate, format=container, subtype=subtype))
    with open_audio(path) as audio:
        assert (audio.path, audio.sample_rate, audio.channels) == (str(path), rate, channels)
        assert audio.duration_s == 5_000 / rate
        heard = np.concatenate(list(audio))
        assert audio.warning is None
    assert heard.dtype == np.float32
    np.testing.assert_allclose(heard, x, atol=tolerance)


@pytest.mark.parametrize("kind", [("OGG", "VORBIS"), ("OGG", "OPUS"), ("MP3", None)])
def test_reads_lossy_formats(tmp_path, kind):
    path, tone = tmp_path / "clip", TONE[:48_000]
    path.write_bytes(encoded(tone, 48_000, format=kind[0], subtype=kind[1]))
    heard, warning = hear(path)
    assert (warning, heard.shape) == (None, (48_000, 1))
    assert abs(np.sqrt(np.mean(heard**2)) - 0.354) < 0.02
    whole, _ = soundfile.read(path, dtype="float32", always_2d=True)
    assert np.array_equal(heard, whole)  # soundfile's own block reads are not: they seek


@settings(max_examples=30, deadline=None)
@given(n=st.integers(1, 5_000), channels=st.integers(1, 40))
def test_blocks_joined_are_the_file(tmp_path_factory, n, channels):
    path, x = tmp_path_factory.mktemp("a") / "clip", noise(n * 40 // channels, channels)
    path.write_bytes(encoded(x, subtype="FLOAT"))
    with open_audio(path) as audio:
        blocks = list(audio)
    assert max(b.size for b in blocks) <= BLOCK_SAMPLES
    assert np.array_equal(np.concatenate(blocks), x)


def test_three_hours_stream_in_bounded_memory(tmp_path):
    path = tmp_path / "long.wav"
    with soundfile.SoundFile(path, "w", 8_000, 1, "PCM_16") as file:
        piece = (noise(8_000 * 600)[:, 0] * 32767).astype(np.int16)
        for _ in range(18):
            file.write(piece)
    del piece
    gc.collect()
    tracemalloc.start()
    with open_audio(path) as audio:
        total = sum(len(block) for block in audio)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert total == 3 * 3600 * 8_000
    assert peak < 4 << 20


def test_closing_is_sure_and_repeatable(tmp_path):
    path = tmp_path / "clip.wav"
    path.write_bytes(encoded(noise(100)))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(200, hard), hard))
    try:
        for _ in range(300):
            with open_audio(path) as audio:
                assert len(next(iter(audio)))  # left in the middle
            audio.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# Refusals


@pytest.mark.parametrize(
    "content", [b"These are words.\n" * 50, b"x", bytes(1000), b"RIFF", os.urandom(999)]
)
def test_no_recording_at_all(tmp_path, content):
    (tmp_path / "text.wav").write_bytes(content)
    assert UNREADABLE.match(refusal(tmp_path / "text.wav"))
    whole = encoded(noise(1_000))
    for size in (5, 12, 20, 36, 40):  # cut inside its header
        (tmp_path / "cut.wav").write_bytes(whole[:size])
        assert UNREADABLE.match(refusal(tmp_path / "cut.wav"))


def test_paths_that_lead_to_no_recording(tmp_path):
    assert refusal(tmp_path / "none.wav") == "no such file"
    assert refusal(tmp_path).startswith("is a directory that holds no recording by name")
    with pytest.raises(AudioError, match=r"cannot be opened \(embedded null"):
        open_audio("a\0b")
    with pytest.raises(AudioError) as caught:
        open_audio(tmp_path / "a\nb.wav")
    assert "\n" not in str(caught.value)
    if os.geteuid() != 0:  # root may read everything
        (tmp_path / "secret.wav").write_bytes(encoded(noise(10)))
        (tmp_path / "secret.wav").chmod(0)
        assert refusal(tmp_path / "secret.wav") == "no permission to read it"


# Cut short, damaged, or of an unknown length


@pytest.mark.parametrize("container", ["WAV", "AIFF", "AU", "FLAC", "MP3"])
def test_a_file_cut_short_is_read_as_far_as_it_goes(tmp_path, container):
    path, x = tmp_path / "cut", noise(160_000)
    data = encoded(x, format=container, subtype=None if container == "MP3" else "PCM_16")
    path.write_bytes(data[: len(data) // 2])
    heard, warning = hear(path)
    assert 60_000 < len(heard) <= 80_500
    assert re.fullmatch(r"is cut short: \d\.\d\d s of the 10.00 s it promises are there", warning)
    if container != "MP3":
        np.testing.assert_allclose(heard, x[: len(heard)], atol=1e-4)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_damaged_files_give_samples_or_one_line(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("d") / "clip"
    kind = data.draw(st.sampled_from(["WAV", "FLAC", "AIFF"]))
    content = bytearray(encoded(noise(2_000), format=kind))
    changes = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 255)), max_size=4)
    for place, value in data.draw(changes):
        content[place] = value
    path.write_bytes(content[: data.draw(st.integers(1, len(content)))])
    try:
        got = len(hear(path)[0])
    except AudioError as error:
        got = 1 - str(error).count("\n")
    assert got >= 1  # samples, or one line


def without_frame_count(data):
    """An MP3 as sox writes it: the first frame, which only says how many there are, is gone."""
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
    path = tmp_path / "clip.flac"
    data = bytearray(encoded(noise(9_000), format="FLAC"))
    data[21] &= 0xF0  # the count of samples, 36 bits: 0 is unknown
    data[22:26] = bytes(4)
    path.write_bytes(data)
    heard, warning = hear(path)
    assert (len(heard), warning) == (9_000, None)
    with open_audio(path) as audio:
        assert audio.duration_s < 10


# Full scale


@pytest.mark.parametrize("kind", ["WAV", "float32", "float64"])
def test_integers_as_floats_are_refused_with_the_way_out(tmp_path, kind):
    """Heard as they are, they give a sentence about noise."""
    x = noise(9_000) * np.float32(32_768)
    x[:4_000] = 0
    (tmp_path / "int.wav").write_bytes(encoded(x, subtype="FLOAT"))
    source = tmp_path / "int.wav" if kind == "WAV" else (x.astype(kind), 16_000)
    told = r": its samples reach \d+(\.\d+)? at 0\.\d\d s, but full scale is 1\.0; divide them by "
    with pytest.raises(AudioError, match=told) as caught, open_audio(source) as audio:
        list(audio)
    assert str(caught.value).endswith("32768 if they are int16's, else by the loudest")


@pytest.mark.parametrize("is_file", [True, False])
def test_a_little_over_full_scale_is_clipped_with_a_warning(tmp_path, is_file):
    x = noise(20_000) * np.float32(2.5)
    (tmp_path / "over.wav").write_bytes(encoded(x, subtype="FLOAT"))
    with open_audio(tmp_path / "over.wav" if is_file else (x, 16_000)) as audio:
        heard = np.concatenate(list(audio))
    np.testing.assert_array_equal(heard, np.clip(x, -1, 1))
    num_over = int((np.abs(x) > 1.0 + 1 / 32_768).sum())
    told = "samples beyond full scale were clipped; divide all by the loudest"
    assert audio.warning == f"{num_over} {told}, 1.25, to keep them"
    assert audio.cut is None


# ffmpeg


@needs_ffmpeg
@pytest.mark.parametrize("suffix", [".m4a", ".mp4", ".webm", ".wma"])
def test_ffmpeg_reads_what_libsndfile_cannot(tmp_path, suffix):
    (tmp_path / "tone.wav").write_bytes(encoded(np.stack([TONE, TONE], 1), 48_000))
    path = tmp_path / f"a file{suffix}"
    command = ["ffmpeg", "-v", "error", "-i", tmp_path / "tone.wav", path]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    before = len(os.listdir("/proc/self/fd"))
    with open_audio(path) as audio:
        assert (audio.path, audio.sample_rate, audio.channels) == (str(path), 48_000, 2)
        promised_s = 0 if suffix == ".wma" else 10  # ASF may have a placeholder
        assert abs(audio.duration_s - promised_s) < 0.3
        blocks = list(audio)
    heard = np.concatenate(blocks)
    assert max(block.size for block in blocks) <= BLOCK_SAMPLES
    assert abs(len(heard) - 480_000) < 6_000
    assert abs(np.sqrt(np.mean(heard**2)) - 0.354) < 0.02
    assert audio.warning is None
    with open_audio(path) as audio:
        next(iter(audio))  # left in the middle: ffmpeg is ended
    assert len(os.listdir("/proc/self/fd")) == before


def test_without_ffmpeg_the_command_has_the_file_s_name(tmp_path, monkeypatch):
    path = tmp_path / "it's.m4a"
    path.write_bytes(b"\0\0\0\x20ftypM4A " + bytes(999))
    monkeypatch.setenv("PATH", str(tmp_path))
    command = f"ffmpeg -i {shlex.quote(str(path))} {shlex.quote(str(path.with_suffix('.wav')))}"
    assert refusal(path).endswith(f"install ffmpeg, or convert it where there is one: {command}")


# Pipes

SAY = """
import sys; from streamer.audio.file import AudioError, open_audio
try:
    with open_audio(sys.argv[1]) as audio:
        print(audio.sample_rate, audio.channels, sum(len(b) for b in audio), audio.warning)
except AudioError as error:
    print(error)
"""


def say(data, path="-"):
    stdin = {"stdin": subprocess.DEVNULL} if data is None else {"input": data}
    done = ended(sys.executable, "-c", SAY, path, check=True, cwd=ROOT, text=False, **stdin)
    assert done.stderr == b""
    return done.stdout.decode().strip()


@pytest.mark.parametrize("promised", [2_000, 0xFFFFFFFF, 0x7FFFF000])
@pytest.mark.parametrize("path", ["-", "/dev/stdin"])
def test_a_wav_in_a_pipe(promised, path):
    """A length unknown to the writer is no warning."""
    data = bytearray(encoded(noise(1_000)))
    data[40:44] = struct.pack("<I", promised)
    assert say(bytes(data), path) == "16000 1 1000 None"


def test_nothing_or_nonsense_on_stdin():
    assert say(None) == "-: brings no data; pipe a recording into it"
    assert UNREADABLE.match(say(b"words").removeprefix("-: "))


def test_a_pipe_without_end_is_cut_off(monkeypatch):
    monkeypatch.setattr("streamer.audio.file.MAX_SPOOL_BYTES", 10 << 20)
    assert refusal("/dev/zero").startswith("brings more than 0 GiB")


def test_a_full_directory_for_temporary_files_is_named(monkeypatch, tmp_path):
    class Full(io.BytesIO):
        def write(self, data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("tempfile.TemporaryFile", Full)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    told = f"cannot be kept in {tmp_path} .No space left on device.; make room, or set TMPDIR"
    with pytest.raises(AudioError, match=told):
        open_audio(io.BytesIO(b"RIFF"))
