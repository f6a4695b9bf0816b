"""Open a recording: a path ("-" for stdin) in, float32 blocks [n, channels] at its own rate out.

PyAV decodes with FFmpeg's libraries, which it contains. Only one block is in memory at a time.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamer.audio.heads import judged
from streamer.audio.pipes import open_path, open_stdin, spooled
from streamer.audio.source import BLOCK_FRAMES, Audio, AudioArray, AudioError, Block, line_of

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
    """A recording that FFmpeg's libraries decode."""

    def __init__(self, path: str, handle: IO[bytes], wanted: int | None) -> None:
        """wanted: the sound track, from 0; None: by its flags. Raises AudioError."""
        self._handle = handle
        self._container = _opened(path, handle)
        self._damage: str | None = None  # the first fault, in FFmpeg's words
        self.cut: str | None = None
        try:
            self._stream = _track(path, self._container, wanted)
            self._frames = self._decoded()
            first = next(self._frames, None)
        except BaseException:
            self._container.close()
            raise
        if first is None:
            cause = self._damage or self.cut
            told = f"not one sample of it can be decoded ({cause})"
            raise AudioError(path, told if cause else "holds no samples, only a header")
        self._first = first
        super().__init__(path, first.sample_rate, first.layout.nb_channels, self._told_s())

    def close(self) -> None:
        self._frames.close()
        self._container.close()
        self._handle.close()

    def __iter__(self) -> Iterator[Block]:
        is_float = self._stream.codec_context.name.startswith("pcm_f")  # lossy ones may overshoot
        num_read = 0
        for block in self._blocks():
            yield self._in_range(block, num_read) if is_float else block
            num_read += len(block)
        self._judge(num_read / self.sample_rate)

    def _told_s(self) -> float:
        """The length by the container, in seconds: perhaps a guess, 0 for none."""
        stream, container = self._stream, self._container
        if stream.duration is not None and stream.time_base is not None:
            return max(0.0, float(stream.duration * stream.time_base))
        is_alone = len(container.streams) == 1  # else the length is that of the longest stream
        return max(0.0, (container.duration or 0) / 1e6) if is_alone else 0.0

    def _judge(self, heard_s: float) -> None:
        """Says what is missing, after the last block."""
        share, told = judged(self._handle)
        kind = self._container.format.name
        of_s = self.duration_s if kind in TELLING else 0.0
        if share < 1.0:
            of_s = heard_s / share
        if heard_s < of_s - LEFT_OUT_S:
            promised = f"{heard_s:.2f} s of the {of_s:.2f} s it promises are there"
            self.cut = f"is cut short: {promised}"
        elif self._damage is not None:
            self.cut = self.cut or f"is cut short or damaged ({self._damage})"
        elif kind == "flac" and 0 < of_s < heard_s - LEFT_OUT_S:
            told = "holds further recordings, of whose first samples some may be lost"
        self.cut = self.cut or told

    def _blocks(self) -> Iterator[Block]:
        held: list[Block] = []
        num_held = 0
        kind = (self.sample_rate, self.channels)
        frame: AudioFrame | None = self._first
        while frame is not None:
            other = (frame.sample_rate, frame.layout.nb_channels)
            if other != kind:  # another recording follows in the same file
                told = f"holds a further recording, of {other[0]} Hz and {other[1]} channels"
                self.cut = f"{told}, unlike the first: it is not heard"
                break
            held.append(_samples(frame))
            num_held += len(held[-1])
            if num_held >= BLOCK_FRAMES:
                yield np.concatenate(held)
                held, num_held = [], 0
            frame = next(self._frames, None)
        if held:
            yield np.concatenate(held)

    def _decoded(self) -> Generator[AudioFrame, None, None]:
        """Frames with samples. A damaged packet is left out, and what follows is decoded."""
        from av import FFmpegError

        kind = self._container.format.name
        packets = self._container.demux(self._stream)
        while True:
            try:
                packet = next(packets, None)
                if packet is None:
                    return
                if packet.is_corrupt and kind not in ENDS_SHORT:
                    self._damage = self._damage or "a part of it is missing"
            except (FFmpegError, OSError) as error:
                self.cut = f"cannot be read to its end ({line_of(error)})"
                return
            try:
                yield from packet.decode()
            except (FFmpegError, ValueError) as error:
                if kind != "mp3":  # in an MP3, a tag between recordings is such a packet
                    self._damage = self._damage or line_of(error)


def open_audio(
    source: Source, track: int | None = None, is_over: Callable[[], bool] = lambda: False
) -> Audio:
    """Open a recording, "-" for one on stdin, an open binary file, or samples and their rate.
    track: of a film, from 0; None: the one that is flagged default. is_over: asked while a pipe is
    silent; True ends the wait.

    Raises AudioError and then leaves no handle open; TypeError and ValueError for a source of
    another kind.
    """
    if isinstance(source, tuple):
        array = AudioArray(*source)
        _check_track(array.path, 1, track or 0)
        return array
    if not isinstance(source, str | os.PathLike):
        path = name if isinstance(name := getattr(source, "name", None), str) else "stream"
        handle = spooled(path, source, is_over)
    else:
        path = os.fspath(source)
        handle = open_stdin(is_over) if path == "-" else open_path(path, is_over)
    try:
        return AudioFile(path, handle, track)
    except BaseException:
        handle.close()
        raise


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
    tracks = container.streams.audio
    if not tracks:
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


def _samples(frame: AudioFrame) -> Block:
    """[n, channels] of full scale 1.0: integers become the floats that libsndfile makes of them."""
    values = frame.to_ndarray()
    values = values.T if frame.format.is_planar else values.reshape(-1, frame.layout.nb_channels)
    samples = values.astype(np.float32)
    if values.dtype == np.uint8:
        return samples / np.float32(128) - 1
    if values.dtype.kind == "i":
        return samples / np.float32(1 << (8 * values.itemsize - 1))
    return samples
