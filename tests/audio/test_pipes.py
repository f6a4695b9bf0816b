"""WAV on stdin and in named pipes."""

from __future__ import annotations

import errno
import io
import os
import struct
import subprocess
import sys

import pytest
from places import ROOT
from sound_files import UNREADABLE, encoded, noise, refusal

from streamer.audio.file import AudioError, open_audio

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


def test_a_full_directory_for_temporary_files_is_named(monkeypatch, tmp_path) -> None:
    class Full(io.BytesIO):
        def write(self, data) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("tempfile.TemporaryFile", Full)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    told = f"cannot be kept in {tmp_path} .No space left on device.; make room, or set TMPDIR"
    with pytest.raises(AudioError, match=told):
        open_audio(io.BytesIO(b"RIFF"))
