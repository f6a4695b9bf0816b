"""Opening recordings: formats, tracks, files cut short, damaged or joined, refusals in one line."""

import io
import itertools
import os
import re
import struct
import subprocess
import sys
import threading
import tracemalloc

import numpy as np
import pytest
import soundfile
from places import ROOT
from processes import ended, wait_for

from streamer.audio.file import AudioError, open_audio

RATE = 16_000
UNREADABLE = re.compile(r"is no recording that can be read \((?!/dev).+\)")


def noise(num, channels=1):
    return np.random.default_rng(num).uniform(-0.5, 0.5, (num, channels)).astype(np.float32)


def encoded(samples, rate=RATE, **kind):
    file = io.BytesIO()
    soundfile.write(file, samples, rate, **{"format": "WAV", "subtype": "PCM_16", **kind})
    return file.getvalue()


def hear(path):
    """(samples, warning)"""
    with open_audio(path) as audio:
        return np.concatenate([np.zeros((0, audio.channels), np.float32), *audio]), audio.warning


def refusal(path):
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(AudioError) as caught:
        hear(path)
    assert len(os.listdir("/proc/self/fd")) == before
    assert str(caught.value) == f"{path}: {caught.value.reason}"
    assert "\n" not in caught.value.reason
    return caught.value.reason


NOISE = noise(10 * RATE)
TONES = [
    np.sin(np.arange(RATE * s) * 2 * np.pi * hz / RATE).astype("f4") / 2
    for s, hz in ((2, 200), (1, 330), (3, 150))
]
OGG, OPUS = {"format": "OGG", "subtype": "VORBIS"}, {"format": "OGG", "subtype": "OPUS"}
MP3 = {"format": "MP3", "subtype": None}
KINDS = [
    *(("WAV", kind, near) for kind, near in (("PCM_U8", 1e-2), ("PCM_24", 1e-6), ("FLOAT", 0))),
    *((name, "PCM_16", 1e-4) for name in ("WAV", "RF64", "FLAC", "CAF", "W64")),
    *(("AIFF", "PCM_24", 1e-6), ("WAV", "ULAW", 2e-2)),
]


@pytest.fixture
def heard(tmp_path):
    """(samples, warning) of these bytes as a file."""

    def run(data):
        (tmp_path / "a").write_bytes(data)
        return hear(tmp_path / "a")

    return run


@pytest.fixture
def made(tmp_path):
    """The path of a file of this name that ffmpeg makes of the tones, or of what is given."""

    def run(name, *options):
        (tmp_path / "sound.wav").write_bytes(encoded(np.concatenate(TONES)))
        given = options or ("-i", tmp_path / "sound.wav")
        subprocess.run(("ffmpeg", "-v", "fatal", *given, tmp_path / name), check=True)
        return tmp_path / name

    return run


@pytest.mark.parametrize(("container", "subtype", "tolerance"), KINDS)
@pytest.mark.parametrize(("rate", "channels"), [(8_000, 1), (44_100, 2), (96_000, 6)])
def test_samples_are_those_of_libsndfile(tmp_path, container, subtype, tolerance, rate, channels):
    path, x = tmp_path / "clip", noise(20_000, channels)
    path.write_bytes(encoded(x, rate, format=container, subtype=subtype))
    with open_audio(path) as audio:
        assert (audio.path, audio.sample_rate, audio.channels) == (str(path), rate, channels)
        assert audio.duration_s == pytest.approx(20_000 / rate)
        found = np.concatenate(list(audio))
        assert audio.warning is None
    np.testing.assert_allclose(found, x, atol=tolerance)
    assert np.array_equal(found, soundfile.read(path, dtype="float32", always_2d=True)[0])


@pytest.mark.parametrize("kind", ["ogg", "opus", "mp3", "m4a", "mp4", "webm", "mka", "aac", "wma"])
def test_reads_lossy_formats_also_of_phones_and_browsers(made, kind):
    path, before = made(f"a.{kind}"), len(os.listdir("/proc/self/fd"))
    found, warning = hear(path)
    with open_audio(path) as audio:
        assert len(next(iter(audio)))  # left in the middle
        assert (len(found) / audio.sample_rate, warning) == (pytest.approx(6, abs=0.15), None)
    assert np.sqrt(np.mean(found**2)) == pytest.approx(0.354, abs=0.02)
    assert len(os.listdir("/proc/self/fd")) == before


def test_three_hours_stream_in_bounded_memory(tmp_path):
    path = tmp_path / "long.wav"
    with soundfile.SoundFile(path, "w", 8_000, 1, "PCM_16") as file:
        for _ in range(18):
            file.write(np.zeros(8_000 * 600, np.int16))
    tracemalloc.start()
    with open_audio(path) as audio:
        total = sum(len(block) for block in audio)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert total == 3 * 3600 * 8_000
    assert peak < 4 << 20


def test_of_a_film_the_default_track_is_heard(tmp_path, made):
    sounds = [tmp_path / f"{i}.wav" for i in (0, 1)]
    for path, tone in zip(sounds, TONES, strict=False):
        path.write_bytes(encoded(tone))
    picture = ("-f", "lavfi", "-i", "color=size=16x16:duration=5")
    maps = ("-map", "0", "-map", "1", "-map", "2")
    flags = ("-disposition:a:0", "0", "-disposition:a:1", "default")
    film = made("film.mkv", "-i", sounds[0], "-i", sounds[1], *picture, *maps, *flags)
    for track, seconds in ((None, 1), (0, 2), (1, 1)):
        with open_audio(film, track) as audio:
            num = sum(len(block) for block in audio)
            assert (round(num / RATE, 1), audio.warning) == (seconds, None)
    for path, has in ((film, "2 sound tracks"), (sounds[0], "1 sound track")):
        with pytest.raises(AudioError, match=f"has {has}, counted from 0; there is no track 2"):
            open_audio(path, 2)
    assert refusal(made("mute.mp4", *picture)) == "has no sound track"


@pytest.mark.parametrize("content", [b"These are words.\n" * 50, b"x", bytes(1000), b"RIFF"])
def test_no_recording_at_all(tmp_path, content):
    (tmp_path / "text.wav").write_bytes(content)
    assert UNREADABLE.match(refusal(tmp_path / "text.wav"))
    whole = encoded(noise(1_000))
    for size in (5, 12, 20, 36, 40):  # cut inside its header
        (tmp_path / "cut.wav").write_bytes(whole[:size])
        assert UNREADABLE.match(refusal(tmp_path / "cut.wav"))
    (tmp_path / "head.wav").write_bytes(encoded(noise(0)))
    assert refusal(tmp_path / "head.wav") == "holds no samples, only a header"


LISTS = {
    "hls": "#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\n{path}\n#EXT-X-ENDLIST\n",
    "concat": "ffconcat version 1.0\nfile '{path}'\n",
}


@pytest.mark.parametrize("kind", LISTS)
@pytest.mark.parametrize("name", ["a", "a.wav", "a.m3u8"])
def test_a_list_opens_no_other_file(tmp_path, kind, name):
    (tmp_path / "secret.wav").write_bytes(encoded(TONES[0]))
    (tmp_path / name).write_text(LISTS[kind].format(path=tmp_path / "secret.wav"))
    assert UNREADABLE.match(refusal(tmp_path / name))


def test_paths_that_lead_to_no_recording(tmp_path):
    assert refusal(tmp_path / "none.wav") == "no such file"
    assert refusal(tmp_path).startswith("is a directory that holds no recording by name")
    with pytest.raises(AudioError, match=r"cannot be opened \(embedded null"):
        open_audio("a\0b")
    with pytest.raises(AudioError) as caught:
        open_audio(tmp_path / "a\nb.wav")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("container", ["WAV", "AIFF", "FLAC", "MP3"])
@pytest.mark.parametrize("size", [0.5, 0.7])
def test_a_file_cut_short_is_read_as_far_as_it_goes(heard, container, size):
    data = encoded(NOISE, format=container, subtype=None if container == "MP3" else "PCM_16")
    found, warning = heard(data[: int(size * len(data))])
    assert len(found) == pytest.approx(size * 160_000, rel=0.03)
    assert warning.startswith(f"is cut short: {len(found) / RATE:.2f} s of the ")
    if container != "MP3":
        assert warning.endswith("of the 10.00 s it promises are there")
        np.testing.assert_allclose(found, NOISE[: len(found)], atol=1e-4)


@pytest.mark.parametrize("name", ["a.webm", "a.aac", "a.ogg", "a.opus", "a.m4a"])
def test_a_cut_file_of_another_kind_is_told(heard, made, name):
    data = made(name).read_bytes()
    assert heard(data)[1] is None
    try:
        told = heard(data[: len(data) * 3 // 5 + 301])[1]
    except AudioError as error:  # an .m4a has its index at the end
        told = error.reason
    assert re.search("is cut short|it was cut short, or never finished", told)


JOINED = [
    (kind, b, None) for kind in (MP3, OGG, OPUS) for b in (b"", bytes(999), b"TAG" + b"a" * 125)
]
LOST = "holds further recordings, of whose first samples some may be lost"


@pytest.mark.parametrize(("kind", "between", "told"), [*JOINED, ({"format": "FLAC"}, b"", LOST)])
def test_all_parts_of_a_joined_file_are_heard(heard, kind, between, told):
    parts = [encoded(tone, **kind) for tone in TONES]
    found, warning = heard(between.join(parts))
    lengths = [len(heard(part)[0]) for part in parts]
    assert (len(found), warning) == (pytest.approx(sum(lengths), rel=0.08), told)


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (MP3, "holds a further recording, of 32000 Hz and 1 channels, unlike the first"),
        ({"format": "FLAC"}, "holds a further recording, of 32000 Hz"),
        (OGG, ("cannot be read to its end (", "holds a further recording")),  # by PyAV's release
        ({"format": "WAV"}, "holds 32088 bytes after the end that its header declares"),
    ],
)
def test_a_joined_part_that_is_not_heard_is_told(heard, kind, told):
    found, warning = heard(encoded(TONES[0], **kind) + encoded(TONES[1][::2], 2 * RATE, **kind) * 2)
    assert len(found) < 2.2 * RATE
    assert warning.startswith(told)


def test_a_wav_is_judged_by_its_chunks(heard):
    """Programs state a wrong size at the head, or write chunks after that."""
    whole = encoded(TONES[0])
    for size in (36, len(whole) // 2, 0xFFFFFFFF):
        wrong = whole[:4] + struct.pack("<I", size) + whole[8:]
        assert heard(wrong)[1] is None
        assert heard(wrong[: len(wrong) // 2])[1].endswith("of the 2.00 s it promises are there")
    assert heard(whole + b"LIST" + struct.pack("<I", 5_000) + bytes(range(250)) * 20)[1] is None


def test_a_recording_whose_size_was_never_written_is_whole(heard):
    wav, flac = (encoded(TONES[0], format=kind) for kind in ("WAV", "FLAC"))
    piped, at = bytearray(flac), wav.index(b"data")
    piped[21] &= 0xF0  # the count of samples, 36 bits: 0 is unknown
    piped[22:26] = bytes(4)
    written = [(piped, flac)]
    for riff, data in itertools.product((0, 36, 0xFFFFFFFF), (0, 0xFFFFFFFF, 0x7FFFF000)):
        sizes = struct.pack("<I", riff) + wav[8 : at + 4] + struct.pack("<I", data)
        written.append((wav[:4] + sizes + wav[at + 8 :], wav))
    for each, whole in written:
        found, warning = heard(each)
        assert np.array_equal(found, heard(whole)[0])
        assert warning is None


@pytest.mark.parametrize("kind", ["WAV", "float32", "float64"])
def test_integers_as_floats_are_refused_with_the_way_out(tmp_path, kind):
    """Heard as they are, they give a sentence about noise."""
    x = noise(9_000) * np.float32(32_768)
    x[:4_000] = 0
    (tmp_path / "int.wav").write_bytes(encoded(x, subtype="FLOAT"))
    source = tmp_path / "int.wav" if kind == "WAV" else (x.astype(kind), RATE)
    told = r": its samples reach \d+(\.\d+)? at 0\.\d\d s, but full scale is 1\.0; divide them by "
    with pytest.raises(AudioError, match=told) as caught, open_audio(source) as audio:
        list(audio)
    assert str(caught.value).endswith("32768 if they are int16's, else by the loudest")


def test_a_little_over_full_scale_is_clipped_with_a_warning(heard):
    x = noise(20_000) * np.float32(2.5)
    found, warning = heard(encoded(x, subtype="FLOAT"))
    np.testing.assert_array_equal(found, np.clip(x, -1, 1))
    num_over = int((np.abs(x) > 1.0 + 1 / 32_768).sum())
    told = "samples beyond full scale were clipped; divide all by the loudest"
    assert warning == f"{num_over} {told}, 1.25, to keep them"


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


@pytest.mark.parametrize("path", ["-", "/dev/stdin"])
def test_a_recording_in_a_pipe(path, monkeypatch):
    for kind in ({}, {"format": "FLAC"}):
        assert say(encoded(noise(1_000), **kind), path) == "16000 1 1000 None"
    assert say(None) == "-: brings no data; pipe a recording into it"
    assert UNREADABLE.match(say(b"words").removeprefix("-: "))
    monkeypatch.setattr("streamer.audio.file.MAX_SPOOL_BYTES", 10 << 20)
    assert refusal("/dev/zero").startswith("brings more than 0 GiB")  # it has no end


def test_a_pipe_whose_reads_do_not_wait():
    reader, writer = os.pipe()
    os.set_blocking(reader, False)

    def write():
        wait_for(lambda: os.get_blocking(reader))
        with open(writer, "wb") as file:
            file.write(encoded(TONES[0]))

    threading.Thread(target=write).start()
    with open(reader, "rb") as file:
        assert len(hear(file)[0]) == len(TONES[0])


def test_an_open_binary_file_is_a_source(tmp_path):
    data = encoded(TONES[0])
    wanted = hear(io.BytesIO(data))[0]
    (tmp_path / "a").write_bytes(data)
    with open(tmp_path / "a", "rb") as file:
        assert np.array_equal(hear(file)[0], wanted)
        with pytest.raises(AudioError, match="an open file may stand at its end"):
            hear(file)
    with pytest.raises(TypeError, match="bytes-like"):
        hear(io.StringIO("RIFF"))
