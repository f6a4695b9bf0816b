"""Recordings that libsndfile cannot read (.m4a, .mp4, .webm and others), decoded by ffmpeg.

ffmpeg runs beside us and gives its samples through a pipe, so one block is in memory at a time.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np

from streamer.audio.source import Audio, AudioError, Block

BLOCK_FRAMES = 8192
HEAD = struct.Struct(">4s5I")  # of an AU file: magic, offset, size, encoding, rate, channels
FLOAT = 6  # the encoding
MOST_CHANNELS = 1024
PROBE_S = 20.0
LEFT_OUT_S = 0.5  # a container's length may be that of its pictures


class FfmpegAudio(Audio):
    """A recording that ffmpeg decodes. Its length is the container's word: a guess."""

    def __init__(
        self, path: str, process: subprocess.Popen[bytes], errors: IO[bytes], why: str
    ) -> None:
        assert process.stdout is not None
        self._process = process
        self._errors = errors
        self._pipe = process.stdout
        head = self._pipe.read(HEAD.size)
        if len(head) < HEAD.size:
            told = "is no recording that libsndfile or ffmpeg can read"
            raise AudioError(path, f"{told} ({self._said() or why})")
        _, offset, _, encoding, rate, channels = HEAD.unpack(head)
        if encoding != FLOAT or not 1 <= channels <= MOST_CHANNELS:
            raise AudioError(path, f"{channels} channels are more than {MOST_CHANNELS}")
        self._pipe.read(offset - HEAD.size)
        super().__init__(path, rate, channels, 0, is_guess=True)

    def _said(self) -> str:
        """ffmpeg's reason, once it has ended; it may have none."""
        self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read(4096).decode("utf-8", "replace").split("\n")
        return next((line.rpartition("] ")[2] for line in lines if line.strip()), "")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._pipe.close()
        self._errors.close()

    def __iter__(self) -> Iterator[Block]:
        width = 4 * self.channels
        num_read = 0
        while data := self._pipe.read(BLOCK_FRAMES * width):
            block = np.frombuffer(data[: len(data) - len(data) % width], ">f4")
            num_read += len(block)
            if len(block):
                yield block.astype(np.float32).reshape(-1, self.channels)
        if num_read == 0:
            raise AudioError(self.path, f"not one sample of it can be decoded ({self._said()})")
        if self._process.wait() != 0:
            self.cut = f"is damaged ({self._said()})"
        elif num_read < self.num_frames - LEFT_OUT_S * self.sample_rate:
            of = f"{num_read / self.sample_rate:.2f} s of {self.duration_s:.2f} s"
            self.cut = f"is cut short: {of} that its container promises are there"


def open_with_ffmpeg(path: str, handle: IO[bytes], why: str) -> FfmpegAudio:
    """`why`: libsndfile's reason against it. Raises AudioError with the command to convert it."""
    if shutil.which("ffmpeg") is None:
        raise AudioError(path, f"is no recording that libsndfile can read ({why}); {_way(path)}")
    fd = handle.fileno()
    os.lseek(fd, 0, os.SEEK_SET)
    # By descriptor: no name is taken for a protocol, and no playlist reaches out.
    source = ("-protocol_whitelist", "file", "-i", f"/dev/fd/{fd}")
    quiet = ("-nostdin", "-hide_banner", "-v", "fatal")
    track, duration_s = _looked_at(fd)
    if track is None:
        raise AudioError(path, "has no sound track")
    wanted = ("-map", f"0:a:{track}", "-c:a", "pcm_f32be", "-f", "au", "-")
    errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the recording
    process = subprocess.Popen(
        ("ffmpeg", *quiet, *source, *wanted),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=errors,
        pass_fds=(fd,),
    )
    try:
        audio = FfmpegAudio(path, process, errors, why)
    except BaseException:
        process.kill()
        process.communicate()
        errors.close()
        raise
    audio.num_frames = int(duration_s * audio.sample_rate)
    handle.close()
    return audio


def _way(path: str) -> str:
    name = shlex.quote(path) if path != "-" and path.isprintable() else "FILE"
    into = Path(path).with_suffix(".wav")
    if into == Path(path):  # ffmpeg writes no file that it reads
        into = into.with_suffix(".converted.wav")
    out = shlex.quote(str(into)) if name != "FILE" else "OUT.wav"
    return f"install ffmpeg, or convert it where there is one: ffmpeg -i {name} {out}"


def _looked_at(fd: int) -> tuple[int | None, float]:
    """The sound track to hear, and its length in seconds, by ffprobe.

    The track is the one that is flagged default, else the first; None where there are streams, but
    none of sound. A length of 0 is unknown.
    """
    shown = "stream=codec_type,duration:stream_disposition=default:format=duration"
    asked = ("-v", "fatal", "-show_entries", shown, "-of", "json")
    source = ("-protocol_whitelist", "file", f"/dev/fd/{fd}")
    try:
        done = subprocess.run(
            ("ffprobe", *asked, *source),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            pass_fds=(fd,),
            timeout=PROBE_S,
        )
        found = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return 0, 0.0
    streams = found.get("streams", [])
    tracks = [stream for stream in streams if stream.get("codec_type") == "audio"]
    if not tracks:
        return (None if streams else 0), 0.0
    flagged = (i for i, one in enumerate(tracks) if one.get("disposition", {}).get("default"))
    track = next(flagged, 0)
    told = tracks[track].get("duration") or found.get("format", {}).get("duration")
    return track, _seconds(told)


def _seconds(told: object) -> float:
    try:
        return min(max(0.0, float(str(told))), 1e6)
    except ValueError:
        return 0.0
