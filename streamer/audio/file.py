"""Open a recording: a path ("-" for stdin) in, float32 blocks [n, channels] at its own rate out.

PyAV decodes with FFmpeg's libraries, which it contains. Only one block is in memory at a time. A
pipe is copied to a temporary file, because decoders seek.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
import struct
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import ExitStack, suppress
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamer.audio.source import BLOCK_FRAMES, Audio, AudioArray, AudioError, Block
from streamer.core.audio.pcm import BadAudio, Chunker, Samples, on_grid

if TYPE_CHECKING:
    from av import AudioFrame, AudioStream
    from av.container import InputContainer

# a path, an open binary file, or samples and their rate in Hz
Source = str | os.PathLike[str] | IO[bytes] | tuple[NDArray[Any], int]
# Demuxers that open only the file itself. A playlist, a manifest or a script names other files.
FORMATS = (
    *("aac", "ac3", "aiff", "amr", "ape", "asf", "au", "avi", "avr", "caf", "dsf", "eac3", "flac"),
    *("flv", "iff", "ircam", "loas", "matroska", "mov", "mp3", "mpeg", "mpegts", "nistsphere"),
    *("ogg", "pvf", "sds", "tta", "voc", "w64", "wav", "wv"),
)
CLOSED = {"format_whitelist": ",".join(FORMATS), "protocol_whitelist": "none"}
# The head of these says how long the sound is; in others FFmpeg may have guessed it by a bit rate.
TELLING = ("aiff", "flac", "matroska,webm", "mov,mp4,m4a,3gp,3g2,mj2", "nistsphere")
# The last packet of these may be short: their sizes can be left open.
ENDS_SHORT = ("caf", "w64", "wav")
DEFAULT = 1  # FFmpeg's flag of a track
LEFT_OUT_S = 0.1  # a container's length counts samples that decoders leave out
READ_BYTES = 1 << 17
MAX_CHANNELS = 64  # FFmpeg converts no more
MAX_SPOOL_BYTES = 4 << 30  # of a pipe: as much as a WAV header can promise


def open_audio(source: Source, track: int | None = None) -> Audio:
    """Open a recording, "-" for one on stdin, an open binary file, or samples and their rate.
    track: of a film, from 0; None: the one that is flagged default.

    Raises AudioError, and leaves no handle open then; TypeError, ValueError for another source.
    """
    if isinstance(source, tuple):
        array = AudioArray(*source)
        _check_track(array.path, 1, track or 0)
        return array
    with ExitStack() as stack:
        if isinstance(source, str | os.PathLike):
            path = os.fspath(source)
            handle = stack.enter_context(_open_path(path))
        else:
            path = name if isinstance(name := getattr(source, "name", None), str) else "stream"
            handle = stack.enter_context(_spooled(path, source))
        container = stack.enter_context(_opened(path, handle))
        audio = AudioFile(path, handle, container, _track(path, container, track))
        audio.held = stack.pop_all()
        return audio


def chunks_of(audio: Audio, channel: int | None = None) -> Iterator[Samples]:
    """The recording as 16 kHz mono chunks: the loudest channel, or one alone. Raises AudioError."""
    if channel is not None and channel not in range(audio.channels):
        has = f"has {audio.channels} channel{'s' * (audio.channels > 1)}, counted from 0"
        raise AudioError(audio.path, f"{has}; there is no channel {channel!r}")
    which = slice(None) if channel is None else slice(channel, channel + 1)
    try:
        chunker = Chunker(audio.sample_rate, audio.channels if channel is None else 1)
        for block in audio:
            yield on_grid(chunker.push(block[:, which]))
        yield on_grid(chunker.finish())
        audio.mixed = chunker.mixed
    except BadAudio as error:
        raise AudioError(audio.path, str(error)) from None


class Reader:
    """A file without a name: PyAV would judge by the name, and print what `seek` raises."""

    def __init__(self, handle: IO[bytes]) -> None:
        self._handle = handle
        self.read, self.tell = handle.read, handle.tell

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """The new place, or -1."""
        with suppress(OSError, ValueError):
            return self._handle.seek(offset, whence)
        return -1


class AudioFile(Audio):
    """A recording that FFmpeg's libraries decode. held: closed with it."""

    held: ExitStack

    def __init__(
        self, path: str, handle: IO[bytes], container: InputContainer, stream: AudioStream
    ) -> None:
        """Raises AudioError."""
        self._handle, self._container, self._stream = handle, container, stream
        self._damage: str | None = None  # the first fault, in FFmpeg's words
        self._frames = self._decoded()
        if (first := next(self._frames, None)) is None:
            cause = self._damage or self.cut
            told = f"not one sample of it can be decoded ({cause})"
            raise AudioError(path, told if cause else "holds no samples, only a header")
        channels = first.layout.nb_channels
        if channels > MAX_CHANNELS:
            raise AudioError(path, f"has {channels} channels, over {MAX_CHANNELS}")
        self._first = first
        length_s = float((stream.duration or 0) * (stream.time_base or 0))
        if not length_s and len(container.streams) == 1:  # else it is that of the longest stream
            length_s = (container.duration or 0) / 1e6
        super().__init__(path, first.sample_rate, channels, max(0.0, length_s))

    def close(self) -> None:
        self._frames.close()
        self.held.close()

    def __iter__(self) -> Iterator[Block]:
        from av import AudioResampler

        is_float = self._stream.codec_context.name.startswith("pcm_f")  # lossy ones may overshoot
        num_read = 0
        joiner = AudioResampler("flt", frame_size=BLOCK_FRAMES)  # a frame of MP3 has 1,152
        for frame in itertools.chain([self._first], self._frames, [None]):
            for joined in joiner.resample(frame):
                samples = joined.to_ndarray().reshape(-1, self.channels)
                block = samples.astype(np.float32, copy=False)
                yield self._in_range(block, num_read) if is_float else block
                num_read += len(block)
        self._judge(num_read / self.sample_rate)

    def _decoded(self) -> Generator[AudioFrame, None, None]:
        """Frames with samples, up to one unlike the first. Damaged packets alone are left out."""
        from av import FFmpegError

        container, kinds = self._container.format.name, set()
        packets = self._container.demux(self._stream)
        while True:
            try:
                packet = next(packets, None)
            except (FFmpegError, OSError) as error:
                self.cut = f"cannot be read to its end ({line_of(error)})"
                return
            if packet is None:
                return
            if packet.is_corrupt and container not in ENDS_SHORT:
                self._damage = self._damage or "a part of it is missing"
            try:
                frames = packet.decode()
            except (FFmpegError, ValueError) as error:
                if container != "mp3":  # in an MP3, a tag between recordings is such a packet
                    self._damage = self._damage or line_of(error)
                continue
            for frame in frames:
                rate, channels = frame.sample_rate, frame.layout.nb_channels
                kinds.add((rate, channels, frame.format.name))
                if len(kinds) > 1:
                    told = f"holds a further recording, of {rate} Hz and {channels} channels"
                    self.cut = f"{told}, unlike the first: it is not heard"
                    return
                frame.pts = None  # there may be gaps
                yield frame

    def _judge(self, heard_s: float) -> None:
        """Warn of missing or unheard sound, after the last block. FFmpeg reports neither."""
        container, fd = self._container.format.name, self._handle.fileno()
        size, share, told = os.fstat(fd).st_size, 1.0, None
        of_s = self.duration_s if container in TELLING else 0.0
        if container == "wav":
            share, told = _wav_judged(fd, size)
        elif container == "mp3":
            share = _share_of_mp3(fd, size)
        if share < 1:
            of_s = heard_s / share
        if heard_s < of_s - LEFT_OUT_S:
            self.cut = f"is cut short: {heard_s:.2f} s of the {of_s:.2f} s it promises are there"
        elif self._damage is not None or (container == "ogg" and not _has_last_page(fd, size)):
            why = f" or damaged ({self._damage})" if self._damage else ": its last part is missing"
            self.cut = self.cut or f"is cut short{why}"
        elif container == "flac" and 0 < of_s < heard_s - LEFT_OUT_S:
            told = "holds further recordings, of whose first samples some may be lost"
        self.cut = self.cut or told


def _opened(path: str, handle: IO[bytes]) -> InputContainer:
    import av

    try:
        return av.open(
            Reader(handle),
            "r",
            container_options=CLOSED,
            metadata_errors="replace",
            buffer_size=READ_BYTES,
        )
    except (av.FFmpegError, OSError) as error:
        is_left_out = error.errno == errno.EINVAL  # its format is not among FORMATS
        why = "it names other files, or has a rare format" if is_left_out else line_of(error)
        handle.seek(0)
        if handle.read(8)[4:] == b"ftyp":  # a phone writes the index of a .m4a or .mp4 at the end
            why = "its index is missing or damaged: it was cut short, or never finished"
        raise AudioError(path, f"is no recording that can be read ({why})") from None


def _track(path: str, container: InputContainer, wanted: int | None) -> AudioStream:
    """The sound track to hear: the wanted one, the one that is flagged default, or the first."""
    if not (tracks := container.streams.audio):
        raise AudioError(path, "has no sound track")
    flagged = (i for i, each in enumerate(tracks) if each.disposition.value & DEFAULT)
    number = next(flagged, 0) if wanted is None else wanted
    _check_track(path, len(tracks), number)
    if tracks[number].codec_context is None:
        raise AudioError(path, "its sound is encrypted, or of an unknown codec")
    return tracks[number]


def _check_track(path: str, tracks: int, wanted: int) -> None:
    if wanted not in range(tracks):
        has = f"has {tracks} sound track{'s' * (tracks > 1)}, counted from 0"
        raise AudioError(path, f"{has}; there is no track {wanted!r}")


def line_of(error: Exception) -> str:
    """The reason alone, on one line."""
    return " ".join(str(getattr(error, "strerror", None) or error).split()).rstrip(".")


MOST_CHUNKS = 1000  # of a WAV
PLACEHOLDER = 0x7FFF_0000  # bytes; programs that write to a pipe state about the largest size
OGG_TAIL_BYTES = 1 << 17  # two of the largest pages
LEAST_BYTES = 1024  # after a WAV's end; fewer are padding
TAGS = (b"ID3", b"TAG", b"APETAGEX")
XING_AT = (13, 21, 36)  # bytes after an MP3 frame's begin, by version and channels


def _has_last_page(fd: int, size: int) -> bool:
    """Whether an Ogg file ends with a whole page that is flagged as the last."""
    tail = os.pread(fd, OGG_TAIL_BYTES, max(0, size - OGG_TAIL_BYTES))
    page = tail[max(0, tail.rfind(b"OggS")) :]
    if len(page) < 27:
        return False
    num_segments = page[26]
    segments = page[27 : 27 + num_segments]  # their sizes
    return len(page) >= 27 + num_segments + sum(segments) and page[5] & 4 > 0


def _share_of_mp3(fd: int, size: int) -> float:
    """The share of the bytes that the first frame, after a tag, states; 1 if it states none."""
    begin, head = 0, os.pread(fd, 10, 0)
    if head[:3] == b"ID3":
        begin = 10
        for i, byte in enumerate(reversed(head[6:10])):  # its size, 7 bits in each byte
            begin += (byte & 0x7F) << 7 * i
    frame = os.pread(fd, 64, begin)
    for place in XING_AT:
        if frame[place : place + 4] in (b"Xing", b"Info") and len(frame) == 64:
            flags, _, length = struct.unpack_from(">3I", frame, place + 4)
            if flags & 3 == 3 and length > 0:
                return (size - begin) / length
    return 1.0


def _wav_judged(fd: int, size: int) -> tuple[float, str | None]:
    """The share of the bytes that the header states, 1 if it states none; a line about bytes after
    them. By the chunks, as FFmpeg reads them: the size at the head is often wrong. A size of 0, or
    about the largest, was never filled in."""
    at, share = 12, 0.0
    for _ in range(MOST_CHUNKS):
        name, length = struct.unpack("<4sI", os.pread(fd, 8, at).ljust(8, b"\0"))
        end = at + 8 + length
        if name == b"data" and not share:
            if not 0 < length < PLACEHOLDER:
                return 1.0, None
            share = (size - at - 8) / length
        elif end > size or name == b"RIFF" or not name.strip().isalnum():
            break
        at = end + length % 2
    rest = os.pread(fd, LEAST_BYTES, at).strip(b"\0")
    if not share or size - at < LEAST_BYTES or not rest or rest.startswith(TAGS):
        return share or 1.0, None
    told = f"holds {size - at} bytes after the end that its header declares"
    return 1.0, f"{told}; they are not heard"


def _open_path(path: str) -> IO[bytes]:
    """A file that can seek. Raises AudioError."""
    if path == "-":
        return _spooled("-", _stdin())
    try:
        handle = open(path, "rb")  # noqa: SIM115 - AudioFile closes it
    except FileNotFoundError:
        raise AudioError(path, "no such file") from None
    except IsADirectoryError:
        told = "is a directory that holds no recording by name, such as *.wav; name its files"
        raise AudioError(path, told) from None
    except (OSError, ValueError) as error:
        raise AudioError(path, f"cannot be opened ({line_of(error)})") from None
    status = os.fstat(handle.fileno())
    if not stat.S_ISREG(status.st_mode):
        with handle:
            return _spooled(path, handle)
    if status.st_size == 0:
        handle.close()
        raise AudioError(path, "is empty (0 bytes)")
    return handle


def _stdin() -> IO[bytes]:
    """Raises AudioError if no recording can come from there."""
    found: IO[bytes] | None = getattr(sys.stdin, "buffer", None)  # none in a notebook
    if found is None or found.closed or found.isatty():
        raise AudioError("-", "stdin is closed, text or a terminal; pipe a recording into it")
    return found


def _spooled(path: str, stream: IO[bytes]) -> IO[bytes]:
    """A temporary file with the rest of the stream. Raises AudioError, and TypeError for text."""
    try:
        with tempfile.TemporaryFile() as spool:
            while (piece := stream.read(1 << 20)) or piece is None:
                if piece is None:  # there is more to come, but reads do not wait for it
                    os.set_blocking(stream.fileno(), True)
                    continue
                if spool.tell() + len(piece) > MAX_SPOOL_BYTES:
                    limit = f"{MAX_SPOOL_BYTES >> 30} GiB"
                    raise AudioError(path, f"brings more than {limit}; write it to a file first")
                spool.write(piece)
            if spool.tell() == 0:
                way = "pipe a recording into it"
                way = way if path == "-" else "an open file may stand at its end"
                raise AudioError(path, f"brings no data; {way}")
            spool.seek(0)
            return os.fdopen(os.dup(spool.fileno()), "rb")
    except OSError as error:
        told = f"cannot be copied to a temporary file ({line_of(error)})"
        raise AudioError(path, f"{told}; if there is no room, set TMPDIR") from None
