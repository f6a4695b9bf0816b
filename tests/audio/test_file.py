"""Opening recordings: every format and shape, every refusal in one line, bounded memory, no handle
left open."""

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

from streamer.audio.file import BLOCK_SAMPLES, AudioError, open_audio

# ffmpeg is asked where it is installed, and named where it is not
UNREADABLE = re.compile(r"is no recording that libsndfile (or ffmpeg )?can read \(.+\)")


def noise(n: int, channels: int = 1) -> np.ndarray:
    return np.random.default_rng(n).uniform(-0.5, 0.5, (n, channels)).astype(np.float32)


def encoded(x: np.ndarray, rate: int = 16_000, **kind) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, x, rate, **{"format": "WAV", "subtype": "PCM_16", **kind})
    return file.getvalue()


def hear(path) -> tuple[np.ndarray, str | None]:
    with open_audio(path) as audio:
        blocks = [np.zeros((0, audio.channels), np.float32), *audio]
        return np.concatenate(blocks), audio.warning


def refusal(path) -> str:
    before = len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0
    with pytest.raises(AudioError) as caught:
        hear(path)
    if sys.platform == "linux":
        assert len(os.listdir("/proc/self/fd")) == before
    assert caught.value.path == str(path)
    message = str(caught.value)
    assert "\n" not in message
    assert message == f"{path}: {caught.value.reason}"
    return caught.value.reason


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
                next(iter(audio))  # left in the middle
            audio.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# Refusals


def test_no_such_file(tmp_path):
    assert refusal(tmp_path / "none.wav") == "no such file"


def test_a_directory(tmp_path):
    assert refusal(tmp_path).startswith("is a directory that holds no recording by name")


def test_an_empty_file(tmp_path):
    path = tmp_path / "empty.wav"
    path.touch()
    assert refusal(path) == "is empty (0 bytes)"


@pytest.mark.parametrize(
    "content", [b"These are words.\n" * 50, b"x", bytes(1000), b"RIFF", os.urandom(999)]
)
def test_no_recording_at_all(tmp_path, content):
    path = tmp_path / "text.wav"
    path.write_bytes(content)
    reason = refusal(path)
    assert UNREADABLE.match(reason)


def test_zero_frames(tmp_path):
    path = tmp_path / "zero.wav"
    path.write_bytes(encoded(noise(0)))
    assert refusal(path) == "holds no samples, only a header"


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may read everything")
def test_no_permission(tmp_path):
    path = tmp_path / "secret.wav"
    path.write_bytes(encoded(noise(10)))
    path.chmod(0)
    assert refusal(path) == "no permission to read it"


def test_no_permission_as_the_system_says_it(tmp_path, monkeypatch):
    def deny(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", deny)
    with pytest.raises(AudioError, match="no permission to read it"):
        open_audio(tmp_path / "secret.wav")


@pytest.mark.parametrize("rate", [500, 500_000])
def test_a_senseless_rate(tmp_path, rate):
    path = tmp_path / "rate.wav"
    path.write_bytes(encoded(noise(10), rate))
    assert refusal(path) == f"its sample rate of {rate} Hz is outside 1000..384000 Hz"


def test_a_name_that_cannot_be_and_one_that_breaks_lines(tmp_path):
    with pytest.raises(AudioError, match=r"cannot be opened \(embedded null"):
        open_audio("a\0b")
    with pytest.raises(AudioError) as caught:
        open_audio(tmp_path / "a\nb.wav")
    assert "\n" not in str(caught.value)


# Files cut short


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


def test_a_wav_cut_right_behind_its_header(tmp_path):
    path = tmp_path / "cut.wav"
    for size in (43, 44, 45):
        path.write_bytes(encoded(noise(1_000))[:size])
        assert refusal(path) == "holds no samples, only a header"


def test_a_flac_without_a_decodable_sample(tmp_path):
    path = tmp_path / "cut.flac"
    path.write_bytes(encoded(noise(9_000), format="FLAC")[:200])
    assert refusal(path).startswith("not one sample of it can be decoded")


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


# Lengths that nobody promised


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


# Full scale


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


def test_int16_and_rounding_are_within_full_scale():
    for x in (np.full(9, -32_768, np.int16), np.full(9, 1.0 + 2**-16, np.float32)):
        with open_audio((x, 16_000)) as audio:
            assert np.abs(np.concatenate(list(audio))).max() >= 1.0
            assert audio.warning is None


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

SAY = """
import sys; from streamer.audio.file import AudioError, open_audio
try:
    with open_audio(sys.argv[1]) as audio:
        print(audio.sample_rate, audio.channels, sum(len(b) for b in audio), audio.warning)
except AudioError as error:
    print(error)
"""


def say(data: bytes | None, path: str = "-") -> str:
    stdin = {"stdin": subprocess.DEVNULL} if data is None else {"input": data}
    done = subprocess.run(
        [sys.executable, "-c", SAY, path], capture_output=True, check=True, cwd=ROOT, **stdin
    )
    assert done.stderr == b""
    return done.stdout.decode().strip()


def test_a_wav_on_stdin():
    assert say(encoded(noise(1_000_000, 2), 44_100)) == "44100 2 1000000 None"


@pytest.mark.parametrize("promised", [0xFFFFFFFF, 0x7FFFF000])
def test_a_length_unknown_to_the_writer_is_no_warning(promised):
    data = bytearray(encoded(noise(1_000)))
    data[4:8] = data[40:44] = struct.pack("<I", promised)
    assert say(bytes(data)) == "16000 1 1000 None"


def test_a_truncated_wav_on_stdin():
    assert say(encoded(noise(32_000))[:16_044]) == (
        "16000 1 8000 is cut short: 0.50 s of the 2.00 s it promises are there"
    )


def test_nothing_or_nonsense_on_stdin():
    assert say(None) == "-: brings no data; pipe a WAV file into it"
    assert UNREADABLE.match(say(b"words").removeprefix("-: "))


@pytest.mark.skipif(not os.path.exists("/dev/stdin"), reason="needs /dev/stdin")
def test_a_named_pipe():
    assert say(encoded(noise(1_000)), "/dev/stdin") == "16000 1 1000 None"
    assert say(b"", "/dev/stdin") == "/dev/stdin: brings no data; pipe a WAV file into it"


def test_a_pipe_without_end_is_cut_off(monkeypatch, tmp_path):
    monkeypatch.setattr("streamer.audio.file.MAX_SPOOL_BYTES", 10 << 20)
    if os.path.exists("/dev/zero"):
        assert refusal("/dev/zero").startswith("brings more than 0 GiB")


@pytest.mark.parametrize(("stdin", "cause"), [(None, "is closed"), ("tty", "is a terminal")])
def test_no_pipe_at_all(monkeypatch, stdin, cause):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr("sys.stdin", Terminal() if stdin else None)
    with pytest.raises(AudioError, match=f"^-: stdin {cause}; pipe a WAV file into it"):
        open_audio("-")


def test_importing_it_loads_no_decoder():
    code = "import sys, streamer.audio.file; assert not {'soundfile', 'torch'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
