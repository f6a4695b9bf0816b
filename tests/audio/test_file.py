"""Opening recordings: every format and shape, every refusal in one line, bounded memory, no handle
left open."""

import gc
import os
import resource
import shlex
import shutil
import subprocess
import tracemalloc

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st
from sound_files import UNREADABLE, encoded, hear, noise, refusal

from streamer.audio.file import BLOCK_SAMPLES, AudioError, open_audio

KINDS = [
    ("WAV", "PCM_U8", 1e-2),
    ("WAV", "PCM_16", 1e-4),
    ("WAV", "PCM_24", 1e-6),
    ("WAV", "PCM_32", 1e-6),
    ("WAV", "FLOAT", 0),
    ("WAV", "DOUBLE", 0),
    ("WAVEX", "PCM_16", 1e-4),
    ("RF64", "PCM_16", 1e-4),
    ("FLAC", "PCM_16", 1e-4),
    ("AIFF", "PCM_24", 1e-6),
    ("AU", "PCM_16", 1e-4),
    ("CAF", "PCM_16", 1e-4),
]


@pytest.mark.parametrize(("container", "subtype", "tolerance"), KINDS)
@pytest.mark.parametrize(("rate", "channels"), [(8_000, 1), (44_100, 2), (96_000, 6)])
def test_reads_what_was_written(tmp_path, container, subtype, tolerance, rate, channels):
    path, x = tmp_path / "clip", noise(5_000, channels)
    path.write_bytes(encoded(x, rate, format=container, subtype=subtype))
    with open_audio(path) as audio:
        assert (audio.path, audio.sample_rate, audio.channels) == (str(path), rate, channels)
        assert audio.num_frames == 5_000
        assert audio.duration_s == 5_000 / rate
        heard = np.concatenate(list(audio))
        assert audio.warning is None
    assert heard.dtype == np.float32
    np.testing.assert_allclose(heard, x, atol=tolerance)


@pytest.mark.parametrize(
    ("container", "subtype"), [("OGG", "VORBIS"), ("OGG", "OPUS"), ("MP3", None)]
)
def test_reads_lossy_formats(tmp_path, container, subtype):
    path = tmp_path / "clip"
    tone = 0.5 * np.sin(np.arange(48_000) / 20).astype(np.float32)
    path.write_bytes(encoded(tone, 48_000, format=container, subtype=subtype))
    heard, warning = hear(path)
    assert warning is None
    assert heard.shape == (48_000, 1)
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


def test_no_such_file(tmp_path):
    assert refusal(tmp_path / "none.wav") == "no such file"


def test_a_directory(tmp_path):
    assert refusal(tmp_path).startswith("is a directory that holds no recording by name")


@pytest.mark.parametrize(
    "content", [b"These are words.\n" * 50, b"x", bytes(1000), b"RIFF", os.urandom(999)]
)
def test_no_recording_at_all(tmp_path, content):
    path = tmp_path / "text.wav"
    path.write_bytes(content)
    reason = refusal(path)
    assert UNREADABLE.match(reason)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may read everything")
def test_no_permission(tmp_path):
    path = tmp_path / "secret.wav"
    path.write_bytes(encoded(noise(10)))
    path.chmod(0)
    assert refusal(path) == "no permission to read it"


def test_a_name_that_cannot_be_and_one_that_breaks_lines(tmp_path):
    with pytest.raises(AudioError, match=r"cannot be opened \(embedded null"):
        open_audio("a\0b")
    with pytest.raises(AudioError) as caught:
        open_audio(tmp_path / "a\nb.wav")
    assert "\n" not in str(caught.value)


# Files cut short


# Lengths that nobody promised


# Full scale


# What libsndfile cannot read

needs_ffmpeg = pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="ffmpeg is not installed")


@needs_ffmpeg
@pytest.mark.parametrize("suffix", [".m4a", ".mp4", ".webm", ".wma"])
def test_ffmpeg_reads_what_libsndfile_cannot(tmp_path, suffix):
    tone = 0.5 * np.sin(np.arange(480_000) / 20).astype(np.float32)
    (tmp_path / "tone.wav").write_bytes(encoded(np.stack([tone, tone], 1), 48_000))
    path = tmp_path / f"a file{suffix}"
    subprocess.run(
        ["ffmpeg", "-v", "error", "-i", tmp_path / "tone.wav", path],
        check=True,
        stdin=subprocess.DEVNULL,
    )
    before = len(os.listdir("/proc/self/fd"))
    with open_audio(path) as audio:
        assert (audio.path, audio.sample_rate, audio.channels) == (str(path), 48_000, 2)
        assert abs(audio.duration_s - 10) < 0.3
        blocks = list(audio)
    heard = np.concatenate(blocks)
    assert max(block.size for block in blocks) <= BLOCK_SAMPLES
    assert abs(len(heard) - 480_000) < 6_000
    assert abs(np.sqrt(np.mean(heard**2)) - 0.354) < 0.02
    assert audio.warning is None
    with open_audio(path) as audio:
        next(iter(audio))  # left in the middle: ffmpeg is ended
    assert len(os.listdir("/proc/self/fd")) == before


def test_without_ffmpeg_the_command_is_told_with_the_file_s_name(tmp_path, monkeypatch):
    path = tmp_path / "it's.m4a"
    path.write_bytes(b"\0\0\0\x20ftypM4A " + bytes(999))
    monkeypatch.setenv("PATH", str(tmp_path))
    command = f"ffmpeg -i {shlex.quote(str(path))} {shlex.quote(str(path.with_suffix('.wav')))}"
    assert refusal(path).endswith(f"install ffmpeg, or convert it where there is one: {command}")


# Pipes
