"""Files that hold more, or less, than their header says; films; other sources than paths."""

import io
import shutil
import struct
import subprocess

import numpy as np
import pytest
import soundfile
from sound_files import encoded, hear, wav

from streamer.audio.file import AudioError, open_audio

RATE = 16_000
TONES = [
    np.sin(np.arange(RATE * s) * 2 * np.pi * hz / RATE).astype("f4") / 2
    for s, hz in ((2, 200), (1, 330), (3, 150))
]
SOUND = np.concatenate(TONES)
PLAIN = ("flac", "wav", "rf64", "w64", "aiff", "au", "caf")
KINDS = {name: {"format": name.upper(), "subtype": "PCM_16"} for name in PLAIN}
KINDS["mp3"] = {"format": "MP3", "subtype": None}
OGG = (("ogg", "VORBIS"), ("opus", "OPUS"))
KINDS |= {kind: {"format": "OGG", "subtype": subtype} for kind, subtype in OGG}
needs_ffmpeg = pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="needs ffmpeg")


@pytest.fixture
def heard(tmp_path):
    """(samples, warning) of these bytes as a file of this name."""

    def run(data, name="a"):
        (tmp_path / name).write_bytes(data)
        return hear(tmp_path / name)

    return run


@pytest.fixture
def made(tmp_path):
    """The bytes of a file of this name that ffmpeg makes of the tones, or of others."""

    def run(name, *options, sound=SOUND):
        given = ("-i", wav(tmp_path / "sound.wav", sound))
        subprocess.run(("ffmpeg", "-v", "fatal", *given, *options, tmp_path / name), check=True)
        return (tmp_path / name).read_bytes()

    return run


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num", [2, 3])
def test_all_parts_of_a_joined_file_are_heard(heard, kind, num, capfd):
    parts = [encoded(tone, **KINDS[kind]) for tone in TONES[:num]]
    found, warning = heard(b"".join(parts))
    assert warning is None
    assert np.array_equal(found, np.concatenate([heard(part)[0] for part in parts]))
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("kind", ["mp3", "wav", "aiff"])
@pytest.mark.parametrize("between", [b"\0", bytes(9999), b"TAG" + b"a" * 125])
def test_padding_and_tags_between_parts_are_passed_over(heard, kind, between):
    part = encoded(TONES[0], **KINDS[kind])
    assert len(heard(part + between + part)[0]) == 2 * len(heard(part)[0])


@pytest.mark.parametrize("kind", ["mp3", "wav", "aiff", "au", "caf", "ogg"])
@pytest.mark.parametrize("other", ["mp3", "wav", "noise"])
def test_what_follows_and_is_of_another_kind_is_told(heard, kind, other):
    noise = np.random.default_rng(0).integers(1, 255, 30_000, np.uint8).tobytes()
    tag = b"ID3\x04\0\0" + bytes([0, 0, 2, 0]) + bytes(256)
    rest = noise if other == "noise" else tag + encoded(TONES[2], **KINDS[other])
    first = encoded(TONES[0], **KINDS[kind])
    found, warning = heard(first + rest)
    if kind != other:
        assert len(found) == len(heard(first)[0])
        assert f"holds {len(rest)} bytes after the end that its header declares" in str(warning)


def test_a_header_from_the_middle_of_a_recording_is_told(heard):
    """Recorders write it again from time to time, until they lose their power."""
    whole = encoded(TONES[0], **KINDS["wav"])
    at = whole.index(b"data")
    early = whole[:4] + struct.pack("<I", at + 2000) + whole[8 : at + 4] + struct.pack("<I", 2000)
    lost = 2 * 2 * RATE - 2000 - 2  # a sample of zero is taken for padding
    assert f"holds {lost} bytes after" in str(heard(early + whole[at + 8 :])[1])


@pytest.mark.parametrize("kind", ["wav", "aiff", "mp3"])
def test_tags_at_the_end_are_no_lost_part(heard, kind):
    order = ">" if kind == "aiff" else "<"
    chunk = struct.pack(f"{order}4sI", b"LIST", 3000) + b"a" * 3000
    tag = b"ID3\x04\0\0" + bytes([0, 0, 20, 0]) + b"a" * (20 << 7)
    ape = b"APETAGEX" + struct.pack("<4I8x", 2000, 3000, 1, 0) + b"a" * (3000 - 32)
    for rest in (tag, ape + b"TAG" + b"a" * 125, chunk if kind != "mp3" else b""):
        assert heard(encoded(TONES[0], **KINDS[kind]) + rest)[1] is None


ONES = b"\xff" * 8
UNWRITTEN = [  # where the sizes are, and what a recorder or a pipe leaves there
    ("rf64", {20: bytes(24)}),
    ("rf64", {20: ONES * 2}),
    *(("au", {8: size}) for size in (bytes(4), b"\x7f\xff\xff\xff")),
    *(("aiff", {-12: size}) for size in (b"\0\0\0\x08", b"\xff\xff\xff\xff")),
    *(("w64", {16: file, -8: data}) for file in (bytes(8), ONES) for data in (bytes(8), ONES)),
    ("w64", {-8: ONES[1:] + b"\x7f"}),
    ("w64", {16: b"\x28" + bytes(7)}),
]


@pytest.mark.parametrize(("kind", "sizes"), UNWRITTEN)
@pytest.mark.parametrize("before", [False, True])
def test_sizes_of_other_kinds_that_were_never_written(heard, kind, sizes, before):
    """-8: before the samples of a W64; -12: of an AIFF."""
    whole = encoded(TONES[0], **KINDS[kind])
    lost = bytearray(whole)
    for at, size in sizes.items():
        begin = at if at > 0 else len(whole) - 2 * len(TONES[0]) + at
        lost[begin : begin + len(size)] = size
    found, warning = heard(whole * before + lost)
    assert warning is None
    assert np.array_equal(found, np.tile(heard(whole)[0], (1 + before, 1)))


@pytest.mark.parametrize("kind", ["rf64", "w64"])
def test_a_head_that_is_cut_is_no_defect(heard, kind):
    with pytest.raises(AudioError):
        heard(encoded(TONES[0], **KINDS[kind])[:66])  # within the chunk of the format


def test_an_rf64_without_its_sizes_chunk_is_no_defect(heard):
    head = b"RF64" + ONES[:4] + b"WAVE" + struct.pack("<4sI", b"data", 2_000)
    with pytest.raises(AudioError):
        heard(head + bytes(2_000))


@needs_ffmpeg
def test_samples_up_to_the_end_of_a_caf_file_are_no_lost_part(heard):
    """A size of -1 is allowed: a recorder writes it."""
    data = bytearray(encoded(TONES[0], **KINDS["caf"]))
    at = data.index(b"data") + 4
    data[at : at + 8] = b"\xff" * 8
    samples, told = heard(data, "a.caf")
    assert (len(samples), told) == (len(TONES[0]), None)


@pytest.mark.parametrize(("at", "told"), [(4, "None"), (40, "bytes after the end")])
@pytest.mark.parametrize(("kind", "order"), [("WAV", "little"), ("AIFF", "big")])
def test_of_two_sizes_that_differ_the_one_that_is_heard_counts(heard, kind, order, at, told):
    """4: of the file; 40 or 42: of the samples."""
    data = bytearray(encoded(TONES[0], format=kind, subtype="PCM_16"))
    at += 2 * (kind == "AIFF" and at == 40)
    data[at : at + 4] = (2_000).to_bytes(4, order)
    assert told in str(heard(data)[1])


AS_AAC = ("-c:a", "aac")
FRAGMENTS = (*AS_AAC, "-movflags", "frag_keyframe+empty_moov", "-frag_duration", "200000")
OTHER_KINDS = {
    **dict.fromkeys(("a.ac3", "a.eac3", "a.caf", "a.spx"), ()),
    "a.mp2": ("-ar", "44100"),
    **dict.fromkeys(("a.ts", "a.latm"), AS_AAC),
    "a.avi": ("-c:a", "mp3", "-ar", "44100"),
    "fragments.mp4": FRAGMENTS,
    "a.webm": ("-c:a", "libopus"),
    # they declare no length, so it is the last frame that tells
    **{f"{rate}.mp3": ("-ar", str(rate), "-write_xing", "0") for rate in (8_000, 22_050, 44_100)},
    **{f"{rate}.aac": ("-ar", str(rate)) for rate in (8_000, 22_050, 44_100)},
}


# with a declared length that libsndfile does not compare with the file's
BY_LIBSNDFILE = {**dict.fromkeys(("RF64", "NIST", "SVX"), "PCM_16"), "WVE": "ALAW"}


@pytest.mark.parametrize("kind", BY_LIBSNDFILE)
def test_a_cut_file_of_a_rare_kind_is_told(heard, kind):
    how = {"format": kind, "subtype": BY_LIBSNDFILE[kind]}
    data = encoded(TONES[2], 8_000, **how)
    assert heard(data)[1] is None
    assert "is cut short" in str(heard(data[: len(data) * 3 // 5 // 4 * 4 + 1])[1])
    assert heard(encoded(TONES[2][:-1], **how))[1] is None


def test_a_nist_head_without_its_size_is_no_defect(heard):
    data = encoded(TONES[0], format="NIST", subtype="PCM_16")
    for size in (b"   abc\n ", b"\xff" * 8, b"10 24   ", b"        "):
        try:
            found = heard(data[:8] + size + data[16:])[0]
        except AudioError as error:
            found = str(error)
        is_line = isinstance(found, str) and found.isprintable()
        assert is_line or 0 < len(found) <= len(data) // 2


@pytest.mark.parametrize("subtype", ["PCM_16", "PCM_24", "ULAW"])
def test_what_follows_a_speech_corpus_s_recording_is_told(heard, subtype):
    data = encoded(TONES[0], format="NIST", subtype=subtype)
    for rest, told in ((data, "None"), (b"\1" * 5000, "holds 5000 bytes after the end")):
        samples, warning = heard(data + rest)
        assert told in str(warning)
        assert len(samples) == 2 * RATE * (1 + (rest == data))


@pytest.mark.parametrize("rest", [b"", b"\1" * 5000])
def test_a_damaged_end_is_told_where_no_length_is_known(heard, rest):
    """A FLAC that was written to a pipe declares no number of samples."""
    data = bytearray(encoded(TONES[0], format="FLAC"))
    data[21] &= 0xF0
    data[22:26] = bytes(4)
    assert heard(data)[1] is None
    assert "is damaged or cut short (" in str(heard(data + rest if rest else data[:-999])[1])


@pytest.mark.parametrize("num", [1, 2])
def test_nothing_of_the_working_directory_is_read(tmp_path, monkeypatch, num):
    """libsndfile looks for a Macintosh's "._NAME"; a pipe called "._" hung it."""
    (tmp_path / "a").write_bytes(encoded(TONES[0], **KINDS["mp3"]) * num)
    (tmp_path / "._").write_bytes(b"no resource fork")
    (tmp_path / ".AppleDouble").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "")  # without ffmpeg
    samples, told = hear(tmp_path / "a")
    assert (len(samples), told) == (num * 2 * RATE, None)


@needs_ffmpeg
def test_an_mp3_in_a_wav_is_whole_and_silent(heard, made, capfd):
    data = made("b.wav", "-c:a", "mp3")
    assert heard(data)[1] is None
    assert "is cut short" in str(heard(data[:-999])[1])
    assert capfd.readouterr().err == ""


@needs_ffmpeg
@pytest.mark.parametrize("name", OTHER_KINDS)
def test_a_cut_file_of_another_kind_is_told(heard, made, name):
    whole = made(name, *OTHER_KINDS[name], sound=np.concatenate(TONES * 4))
    samples, told = heard(whole, name)
    assert told is None
    rest, told = heard(whole[: len(whole) * 3 // 5 + 301], name)
    assert "is cut short" in str(told)
    assert len(rest) < 0.7 * len(samples)


@pytest.mark.parametrize("left", [1, 3])
def test_a_cut_within_the_head_of_a_frame_is_told(heard, left):
    """Two frames of MPEG 1, layer III, 32 kbit/s at 32 kHz: 144 bytes each, and a third begins."""
    frame = b"\xff\xfb\x18\xc0" + bytes(140)
    assert "is cut short" in str(heard(frame * 3 + frame[:left], "a.mp3")[1])


@needs_ffmpeg
@pytest.mark.parametrize("name", ["a.ac3", "a.eac3"])
@pytest.mark.parametrize("rate", [32_000, 44_100, 48_000])
def test_a_cut_at_the_begin_of_a_frame_is_told(heard, made, name, rate):
    whole = made(name, "-ar", str(rate), "-strict", "-2", sound=TONES[0])
    assert heard(whole, name)[1] is None
    begin = whole.rfind(whole[:3] if name != "a.ac3" else whole[:2])
    assert "is cut short" in str(heard(whole[: begin + 9], name)[1])


@needs_ffmpeg
@pytest.mark.parametrize("kind", ["aac", "m4a", "mka", "spx", "wma"])
def test_all_parts_of_a_joined_file_are_heard_with_ffmpeg(heard, made, kind):
    data = made(f"a.{kind}")
    alone = heard(data, f"a.{kind}")[0]
    found, warning = heard(data + bytes(900 * (kind == "m4a")) + data, "joined")
    assert warning is None
    assert len(found) == pytest.approx(2 * len(alone), rel=0.002)
    told = str(heard(data + data[: len(data) // 2], "joined")[1])
    assert "cut short" in told or "lost" in told


@pytest.mark.parametrize("kind", ["mp3", "ogg", "flac", "wav"])
def test_a_part_of_another_rate_is_told(heard, kind):
    other = encoded(TONES[1], 2 * RATE, **KINDS[kind])
    found, warning = heard(encoded(TONES[0], **KINDS[kind]) + other)
    assert len(found) < 2.2 * RATE
    assert "recording number 2 of 32000 Hz" in str(warning)


@pytest.mark.parametrize("riff", [0, 36, 0xFFFFFFFF])
@pytest.mark.parametrize("data", [0, 1, 0xFFFFFFFF])
def test_a_wav_whose_sizes_were_never_written_is_heard(heard, riff, data):
    whole = encoded(TONES[0], **KINDS["wav"])
    samples = whole[whole.index(b"data") + 8 :]
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, RATE, 2 * RATE, 2, 16)
    head = struct.pack("<4sI4s", b"RIFF", riff, b"WAVE") + form
    found = heard(head + struct.pack("<4sI", b"data", data) + samples)[0]
    assert np.array_equal(found, heard(whole)[0])


@pytest.mark.parametrize("kind", ["ogg", "opus"])
@pytest.mark.parametrize("share", [0.4, 0.9])
def test_a_cut_ogg_is_told(heard, kind, share):
    noise = np.random.default_rng(0).standard_normal(20 * RATE).astype(np.float32) / 9
    data = encoded(noise, **KINDS[kind])
    assert "cut short" in str(heard(data[: int(share * len(data))])[1])


@pytest.mark.parametrize("kind", ["<i2", ">i2", "<f4", ">f4", "<f8", ">f8"])
def test_samples_of_either_byte_order_are_the_same(kind):
    whole = np.rint(TONES[0] * 32768)
    told = whole.astype(kind) if kind.endswith("i2") else (whole / 32768).astype(kind)
    found = np.concatenate(list(open_audio((told, RATE))))[:, 0]
    assert np.array_equal(found, whole.astype(np.float32) / 32768)


def test_an_open_binary_file_is_a_source(tmp_path, heard):
    data = encoded(TONES[0], **KINDS["wav"])
    wanted = heard(data)[0]
    assert np.array_equal(hear(io.BytesIO(data))[0], wanted)
    with open(tmp_path / "a", "rb") as file:
        assert np.array_equal(hear(file)[0], wanted)
        with pytest.raises(AudioError, match=r"it may stand at its end: seek\(0\)"):
            hear(file)
    with pytest.raises(TypeError, match="stream gives str; open it as binary"):
        hear(io.StringIO("RIFF"))


@needs_ffmpeg
def test_of_a_film_the_default_track_is_heard(tmp_path):
    for i, tone in enumerate(TONES[:2]):
        soundfile.write(tmp_path / f"{i}.wav", tone, RATE)
    film = tmp_path / "film.mkv"
    inputs = ("-i", tmp_path / "0.wav", "-i", tmp_path / "1.wav")
    maps = ("-map", "0", "-map", "1", "-map", "2")
    flags = ("-disposition:a:0", "0", "-disposition:a:1", "default")
    picture = ("-f", "lavfi", "-i", "color=size=16x16:duration=5")
    subprocess.run(("ffmpeg", "-v", "fatal", *inputs, *picture, *maps, *flags, film), check=True)
    for track, seconds in ((None, 1), (0, 2), (1, 1)):
        with open_audio(film, track) as audio:
            num = sum(len(block) for block in audio)
            assert (round(num / RATE, 1), audio.warning) == (seconds, None)
    with pytest.raises(AudioError, match="has 2 sound tracks, counted from 0; there is no track 2"):
        open_audio(film, 2)
    with pytest.raises(AudioError, match="has 1 sound track, counted from 0; there is no track 1"):
        open_audio(tmp_path / "0.wav", 1)


@needs_ffmpeg
@pytest.mark.parametrize(
    ("kind", "codec"),
    [
        *(("adx", "adpcm_adx"), ("avi", "mp3"), ("asf", "mp3"), ("rm", "real_144"), ("rm", "ac3")),
        *(("wav", "g726"), ("wav", "ac3"), ("wav", "g722"), ("wav", "adpcm_swf")),
    ],
)
def test_a_file_that_was_written_to_a_pipe_is_whole(tmp_path, heard, kind, codec):
    """libsndfile reads none of these."""
    rate = 44_100 if codec in ("mp3", "ac3", "adpcm_swf") else 8_000
    sound = wav(tmp_path / "a.wav", np.resize(SOUND, 4 * rate), rate)
    made = ("ffmpeg", "-v", "fatal", "-i", sound, "-c:a", codec, "-f", kind, "-")
    samples, told = heard(subprocess.run(made, check=True, capture_output=True).stdout)
    assert (len(samples) / rate, told) == (pytest.approx(4, abs=0.1), None)


@needs_ffmpeg
def test_a_film_without_sound_is_refused_in_a_line(tmp_path):
    film = tmp_path / "silent.mp4"
    picture = ("-f", "lavfi", "-i", "color=size=16x16:duration=1")
    subprocess.run(("ffmpeg", "-v", "fatal", *picture, film), check=True)
    with pytest.raises(AudioError, match="has no sound track"):
        hear(film)
