"""Recordings that libsndfile cannot read (.m4a, .mp4, .webm and others), decoded by ffmpeg.

ffmpeg runs beside us and gives its samples through a pipe, so one block is in memory at a time.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import IO

import numpy as np

from streamer.audio.pieces import Piece, of_another_kind, pieces_of
from streamer.audio.source import BLOCK_FRAMES, Audio, AudioError, Block

HEAD = struct.Struct(">4s5I")  # of an AU file: magic, offset, size, encoding, rate, channels
FLOAT = 6  # the encoding
MOST_CHANNELS = 1024
PROBE_S = 20.0
# Formats without a length: ffprobe divides their size by a bit rate. AVI and ASF that were written
# to a pipe have a placeholder, and pieces.py knows where the others end.
GUESSED = (
    *("aac", "ac3", "amr", "asf", "avi", "dts", "eac3", "loas", "mp3", "mpegts", "spdif", "swf"),
)
HOUR_LONG = ("rm", "3600.000000")  # a RealMedia file that ffmpeg wrote to a pipe
# demuxers that open what a file names: playlists, manifests, descriptions of a session, scripts
REACHING_OUT = frozenset(
    {
        *("applehttp", "concat", "dash", "hls", "imf", "webm_dash_manifest", "vobsub"),
        *("sdp", "rtp", "rtsp", "sap", "image2", "lavfi", "avisynth", "vapoursynth"),
    }
)
LEFT_OUT_S = 0.5  # a container's length may be that of its pictures
# ffmpeg's lines, of all its demuxers and decoders, on a packet or a frame that is not whole
LOST_PART = re.compile(
    r"corrupt|incomplete|premature|truncat|partial file|exhausted|too small|no index"
    r"|invalid (?:data found|pcm packet)|error (?:while decoding|submitting)|input/output error",
    re.IGNORECASE,
)
# ffmpeg calls the last packet of these corrupt, which is short
ENDS_SHORT = (b"\x80\0", b"caff")  # ADX and CAF
LOG_LEVEL = "level+warning"  # each line names its level
MOST_LOG_BYTES = 1 << 20


class FfmpegAudio(Audio):
    """A recording that ffmpeg decodes, one after the other where a file holds several. Its length
    is the container's word: a guess."""

    def __init__(self, path: str, handle: IO[bytes], why: str, wanted: int | None) -> None:
        """As open_with_ffmpeg, which has looked for ffmpeg."""
        self._handle = handle
        found, told = pieces_of(handle)
        joined = [piece for piece in found if not piece.head]
        self._pieces: list[Piece | None] = [*joined] or [None]
        is_sizeless = len(joined) < len(found)  # nothing tells its end; its last packet is short
        source = _source(handle, self._pieces[0])
        self._track, duration_s = _looked_at(path, source, handle.fileno(), wanted)
        self._decoder = Decoder(path, source, handle.fileno(), self._track, why, is_sizeless)
        rate, channels = self._decoder.kind
        num_frames = 0 if is_sizeless else int(duration_s * rate)
        super().__init__(path, rate, channels, num_frames, is_guess=True)
        self.cut = told

    def close(self) -> None:
        self._decoder.close()
        self._handle.close()

    def __iter__(self) -> Iterator[Block]:
        num_read = 0
        for block in self._decoder:
            num_read += len(block)
            yield block
        if num_read == 0:
            told = f"not one sample of it can be decoded ({self._decoder.said()})"
            raise AudioError(self.path, told)
        self._judge(num_read < self.num_frames - LEFT_OUT_S * self.sample_rate, num_read)
        for number, piece in enumerate(self._pieces[1:], 2):
            yield from self._joined(number, piece)

    def _joined(self, number: int, piece: Piece | None) -> Iterator[Block]:
        """Another recording in the same file, unless it is of another kind."""
        self._decoder.close()
        source = _source(self._handle, piece)
        try:
            self._decoder = Decoder(self.path, source, self._handle.fileno(), self._track)
        except AudioError as error:
            self.cut = f"holds a recording number {number} that {error.reason}: it is lost"
            return
        if self._decoder.kind != (self.sample_rate, self.channels):
            self.cut = of_another_kind(number, *self._decoder.kind)
            return
        yield from self._decoder
        self._judge(False, 0)

    def _judge(self, is_short: bool, num_read: int) -> None:
        """Says what is missing after the last block of a piece."""
        if self._decoder.status() != 0:
            self.cut = f"is damaged ({self._decoder.said()})"
        elif is_short:
            of = f"{num_read / self.sample_rate:.2f} s of {self.duration_s:.2f} s"
            self.cut = f"is cut short: {of} that its container promises are there"
        elif self.cut is None and (lost := self._decoder.lost()):
            self.cut = f"is cut short or damaged (ffmpeg: {lost})"


class Decoder:
    """One run of ffmpeg over one recording: its blocks. kind: rate in Hz, and channels."""

    def __init__(
        self,
        path: str,
        source: tuple[str, ...],
        fd: int,
        track: int,
        why: str = "",
        is_sizeless: bool = False,
    ) -> None:
        """Raises AudioError; why: the reason where ffmpeg has none."""
        shape = ("-map", f"0:a:{track}", "-c:a", "pcm_f32be", "-f", "au", "-")
        quiet = ("-nostdin", "-hide_banner", "-v", LOG_LEVEL)
        self._ends_short = is_sizeless or os.pread(fd, 4, 0).startswith(ENDS_SHORT)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the recording
        try:
            self._process = subprocess.Popen(
                ("ffmpeg", *quiet, *source[:-1], "-i", source[-1], *shape),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                pass_fds=(fd,),
            )
        except BaseException:
            self._errors.close()
            raise
        assert self._process.stdout is not None
        self._pipe = self._process.stdout
        try:
            self.kind = self._read_head(path, why)
        except BaseException:
            self.close()
            raise

    def _read_head(self, path: str, why: str) -> tuple[int, int]:
        head = self._pipe.read(HEAD.size)
        if len(head) < HEAD.size:
            told = "is no recording that libsndfile or ffmpeg can read"
            raise AudioError(path, f"{told} ({self.said() or why})")
        _, offset, _, encoding, rate, channels = HEAD.unpack(head)
        if encoding != FLOAT or not 1 <= channels <= MOST_CHANNELS:
            raise AudioError(path, f"{channels} channels are more than {MOST_CHANNELS}")
        self._pipe.read(offset - HEAD.size)
        return rate, channels

    def __iter__(self) -> Iterator[Block]:
        _, channels = self.kind
        width = 4 * channels
        while data := self._pipe.read(BLOCK_FRAMES * width):
            block = np.frombuffer(data[: len(data) - len(data) % width], ">f4")
            if len(block):
                yield block.astype(np.float32).reshape(-1, channels)

    def status(self) -> int:
        """The exit status, once it has ended."""
        return self._process.wait()

    def said(self) -> str:
        """ffmpeg's reason, once it has ended; it may have none."""
        self.status()
        serious = (line for line in self._log() if re.search(r"\[(error|fatal|panic)\]", line))
        return _plain(next(serious, ""))

    def lost(self) -> str:
        """Its first line about a lost part, or "" for none."""
        log = self._log()
        is_westwood = log[0].startswith("[wsaud")  # ffmpeg ends each of these by that error
        usual = "corrupt" if self._ends_short else "Input/output error" if is_westwood else "\n"
        lost = (line for line in log if LOST_PART.search(line) and usual not in line)
        return _plain(next(lost, ""))

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._pipe.close()
        self._errors.close()

    def _log(self) -> list[str]:
        self._errors.seek(0)
        return self._errors.read(MOST_LOG_BYTES).decode("utf-8", "replace").split("\n")


def _plain(line: str) -> str:
    """A line of ffmpeg without its source, level and the file, which the message names itself."""
    told = re.sub(r"^(?:subfile\S*:)?/dev/fd/\d+: ", "", line.rpartition("] ")[2]).rstrip(".")
    if told.startswith("Format not on whitelist"):
        return "it names other files, which are not opened"
    return told


def open_with_ffmpeg(path: str, handle: IO[bytes], why: str, wanted: int | None) -> FfmpegAudio:
    """`why`: libsndfile's reason against it. wanted: the sound track, from 0; None: by its flags.
    Raises AudioError with the command to convert it."""
    if shutil.which("ffmpeg") is None:
        raise AudioError(path, f"is no recording that libsndfile can read ({why}); {_way(path)}")
    os.lseek(handle.fileno(), 0, os.SEEK_SET)
    return FfmpegAudio(path, handle, why, wanted)


def _source(handle: IO[bytes], piece: Piece | None) -> tuple[str, ...]:
    """Options and, last, the place of a file or of a piece of it."""
    place = f"/dev/fd/{handle.fileno()}"
    if piece is not None:
        place = f"subfile,,start,{piece.begin},end,{piece.end},,:{place}"
    return ("-protocol_whitelist", "file,subfile", "-format_whitelist", _formats(), place)


@cache
def _formats() -> str:
    """Those of ffmpeg whose files open no others."""
    asked = ("ffmpeg", "-hide_banner", "-demuxers")
    done = subprocess.run(asked, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    formats = set(re.findall(r"^ D +(\S+)", done.stdout, re.MULTILINE)) - REACHING_OUT
    return ",".join(sorted(formats))


def _way(path: str) -> str:
    name = shlex.quote(path) if path != "-" and path.isprintable() else "FILE"
    into = Path(path).with_suffix(".wav")
    if into == Path(path):  # ffmpeg writes no file that it reads
        into = into.with_suffix(".converted.wav")
    out = shlex.quote(str(into)) if name != "FILE" else "OUT.wav"
    return f"install ffmpeg, or convert it where there is one: ffmpeg -i {name} {out}"


def check_track(path: str, tracks: int, wanted: int) -> None:
    """Raises AudioError where a recording has no such track."""
    if wanted not in range(tracks):
        has = f"has {tracks} sound track{'s' * (tracks > 1)}, counted from 0"
        raise AudioError(path, f"{has}; there is no track {wanted!r}")


def _looked_at(
    path: str, source: tuple[str, ...], fd: int, wanted: int | None
) -> tuple[int, float]:
    """The sound track to hear, and its length in seconds, by ffprobe.

    It is the wanted one, the one that is flagged default, or the first. A length of 0 is unknown.
    Raises AudioError where streams are found, but no such track.
    """
    shown = "stream=codec_type,duration:stream_tags=DURATION"
    shown += ":stream_disposition=default:format=duration,format_name"
    asked = ("-v", "fatal", "-show_entries", shown, "-of", "json")
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
        found = {}
    streams = found.get("streams", [])
    tracks = [stream for stream in streams if stream.get("codec_type") == "audio"]
    if not streams:
        return wanted or 0, 0.0
    if not tracks:
        raise AudioError(path, "has no sound track")
    flagged = (i for i, one in enumerate(tracks) if one.get("disposition", {}).get("default"))
    track = next(flagged, 0) if wanted is None else wanted
    check_track(path, len(tracks), track)
    told = tracks[track].get("duration") or tracks[track].get("tags", {}).get("DURATION")
    container = found.get("format", {})
    if told is None and len(streams) == 1:  # else it is that of the longest one
        told = container.get("duration")
    kind = container.get("format_name")
    if kind in GUESSED or (kind, told) == HOUR_LONG:
        told = None
    return track, _seconds(told)


def _seconds(told: object) -> float:
    """Seconds of a number, or of hours, minutes and seconds."""
    try:
        parts = [float(part) for part in str(told).split(":")]
    except ValueError:
        return 0.0
    seconds = sum(part * 60**i for i, part in enumerate(reversed(parts)))
    return min(max(0.0, seconds), 1e6)
