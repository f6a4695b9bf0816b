"""A path comes in ("-" for stdin); float32 blocks [n, channels] at its own rate go out.

Whatever libsndfile reads: WAV, FLAC, OGG, MP3, AIFF and others. Only one block is in memory at a
time.
"""

from __future__ import annotations

import io
import os
import re
import select
import stat
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import IO, TYPE_CHECKING, Any

from numpy.typing import NDArray

from streamer.audio.codec_frames import XING_AT, after_tag
from streamer.audio.ffmpeg import check_track, open_with_ffmpeg
from streamer.audio.pieces import PLACEHOLDER, View, of_another_kind, pieces_of
from streamer.audio.source import BLOCK_FRAMES, Audio, AudioArray, AudioError, Block, recordings_in
from streamer.core.audio.pcm import MAX_RATE_HZ, MIN_RATE_HZ

if TYPE_CHECKING:
    from soundfile import SoundFile

# a path, an open binary file, or samples and their rate in Hz
Source = str | os.PathLike[str] | IO[bytes] | tuple[NDArray[Any], int]
BLOCK_SAMPLES = 1 << 17  # of all channels together: 0.5 MB
MAX_SPOOL_BYTES = 4 << 30  # what a pipe may bring: as much as a WAV header can promise
LOOK_MS = 100  # how often a reader of a silent pipe looks whether it is still wanted
# A named pipe opens at once, and waits for its writer where a reader can be ended. Elsewhere poll()
# may call a pipe without a writer ended.
AT_ONCE = os.O_NONBLOCK if sys.platform == "linux" else 0
# libsndfile's log of a header that promises more data than the file has.
SHORT_DATA = re.compile(
    r"^\s*(?:data|SSND|BODY|Data [Ss]ize|Data length)\s*:? *(\d+) \(?should be (\d+)", re.MULTILINE
)
FRAMES = re.compile(r"^\s*Frames\s*:\s*(\d+)", re.MULTILINE)  # that the header of RF64 declares
MP3_LAG = 2 * 1152  # frames
ENDLESS = 1 << 62  # frames; libsndfile's word for a length that the header leaves open


_STDERR = threading.Lock()  # who points it elsewhere
if hasattr(os, "register_at_fork"):  # a fork in between would keep the lock, and stderr lost
    os.register_at_fork(
        before=_STDERR.acquire, after_in_parent=_STDERR.release, after_in_child=_STDERR.release
    )


class NotForLibsndfile(Exception):
    """libsndfile's own reason."""


class AudioFile(Audio):
    """A recording that libsndfile decodes; one after the other where a file holds several."""

    def __init__(self, path: str, handle: IO[bytes]) -> None:
        """Raises NotForLibsndfile."""
        pieces, cut = pieces_of(handle)
        views = [View(handle, piece) for piece in pieces]
        file = _decode(views[0] if views else f"/dev/fd/{handle.fileno()}")
        size = os.fstat(handle.fileno()).st_size
        is_endless = file.frames >= ENDLESS  # a FLAC that was written to a pipe
        is_guess = is_endless or (file.format == "MP3" and not _has_frame_count(handle, 0))
        frames = size // file.channels if is_endless else file.frames
        super().__init__(path, file.samplerate, file.channels, frames, is_guess)
        self.cut = cut or (None if views else _cut_short(file))
        self._files = [file]
        self._handle = handle
        for number, view in enumerate(views[1:], 2):
            self._join(number, view)
            self.is_guess |= file.format == "MP3" and not _has_frame_count(handle, view.begin)

    def close(self) -> None:
        for file in self._files:
            file.close()
        self._handle.close()

    def _join(self, number: int, view: View) -> None:
        """Another recording in the same file, unless it is of another kind."""
        try:
            file = _decode(view)
        except NotForLibsndfile as error:
            self.cut = (
                f"holds {number} recordings or more, of which number {number} is lost ({error})"
            )
            return
        kind = (file.samplerate, file.channels)
        if kind != (self.sample_rate, self.channels):
            file.close()
            self.cut = of_another_kind(number, *kind)
            return
        self._files.append(file)
        self.num_frames += file.frames

    def __iter__(self) -> Iterator[Block]:
        num_read = 0
        self._cause = ""
        for file in self._files:
            is_float = file.subtype in ("FLOAT", "DOUBLE")  # lossy decoders may overshoot
            for block in self._blocks(file):
                yield self._in_range(block, num_read) if is_float else block
                num_read += len(block)
        if num_read == 0:
            raise AudioError(self.path, f"not one sample of it can be decoded{self._cause}")
        # a WAV of MP3 counts what its decoder leaves out
        slack = MP3_LAG if "MPEG" in file.subtype and file.format != "MP3" else 0
        if self.is_guess and self._cause:
            self.cut = self.cut or f"is damaged or cut short{self._cause}"
        elif num_read < self.num_frames - slack and self.cut is None and not self.is_guess:
            self.cut = _ends_early(num_read, self.num_frames, self.sample_rate)

    def _blocks(self, file: SoundFile) -> Iterator[Block]:
        from soundfile import SoundFileRuntimeError

        size = max(1, min(BLOCK_FRAMES, BLOCK_SAMPLES // self.channels))
        quiet = _quiet if "MPEG" in file.subtype else nullcontext
        while True:
            try:
                with quiet():
                    block: Block = file.read(size, dtype="float32", always_2d=True)
            except SoundFileRuntimeError as error:  # damaged, or a FLAC cut short
                self._cause = f" ({_line(error)})"
                return
            if not len(block):
                return
            yield block


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
        check_track(array.path, 1, track or 0)
        _check_rate(array)
        return array
    if not isinstance(source, str | os.PathLike):
        path = name if isinstance(name := getattr(source, "name", None), str) else "stream"
        handle = _spool(path, source, is_over)
    else:
        path = os.fspath(source)
        handle = _open_stdin(is_over) if path == "-" else _open_path(path, is_over)
    try:
        audio = _open_handle(path, handle, track)
        _check_rate(audio)
    except BaseException:
        handle.close()
        raise
    return audio


def _open_handle(path: str, handle: IO[bytes], track: int | None) -> Audio:
    try:
        file = AudioFile(path, handle)
    except NotForLibsndfile as error:
        return open_with_ffmpeg(path, handle, str(error), track)
    if file.num_frames == 0:
        raise AudioError(path, "holds no samples, only a header")
    check_track(path, 1, track or 0)
    return file


def _check_rate(audio: Audio) -> None:
    if not MIN_RATE_HZ <= audio.sample_rate <= MAX_RATE_HZ:
        rates = f"{audio.sample_rate} Hz is outside {MIN_RATE_HZ}..{MAX_RATE_HZ} Hz"
        raise AudioError(audio.path, f"its sample rate of {rates}")


def _open_path(path: str, is_over: Callable[[], bool]) -> IO[bytes]:
    try:
        handle = open(path, "rb", opener=_opened_at_once)  # noqa: SIM115 - AudioFile closes it
    except FileNotFoundError:
        raise AudioError(path, "no such file") from None
    except IsADirectoryError:
        told = "is a directory; name the files in it, e.g. DIRECTORY/*.wav"
        if recordings_in(path) == [path]:  # a command has looked into it, and found none
            told = "is a directory that holds no recording by name, such as *.wav or *.mp3"
        raise AudioError(path, told) from None
    except PermissionError:
        raise AudioError(path, "no permission to read it") from None
    except (OSError, ValueError) as error:
        raise AudioError(path, f"cannot be opened ({_line(error)})") from None
    status = os.fstat(handle.fileno())
    if not stat.S_ISREG(status.st_mode):
        with handle:
            return _spool(path, handle, is_over)
    if status.st_size == 0:
        handle.close()
        raise AudioError(path, "is empty (0 bytes)")
    return handle


def _opened_at_once(path: str, flags: int) -> int:
    number = os.open(path, flags | AT_ONCE)
    os.set_blocking(number, True)
    return number


def _open_stdin(is_over: Callable[[], bool]) -> IO[bytes]:
    if sys.stdin is None or sys.stdin.closed:
        raise AudioError("-", "stdin is closed; pipe a recording into it")
    if not hasattr(sys.stdin, "buffer"):  # as in a notebook, or under a test runner
        raise AudioError("-", "stdin holds text here; give a file, or an open binary one")
    if sys.stdin.isatty():
        raise AudioError("-", "stdin is a terminal; pipe a recording into it")
    return _spool("-", sys.stdin.buffer, is_over)


def _spool(path: str, stream: IO[bytes], is_over: Callable[[], bool]) -> IO[bytes]:
    """Copies a pipe to a temporary file, because decoders seek; it is gone when closed."""
    read = _reader_of(path, stream, is_over)
    spool = _temporary(path)
    try:
        while piece := read(1 << 20):
            if not isinstance(piece, bytes | bytearray | memoryview):
                raise TypeError(f"{path} gives {type(piece).__name__}; open it as binary")
            if spool.tell() + len(piece) > MAX_SPOOL_BYTES:
                limit = f"{MAX_SPOOL_BYTES >> 30} GiB"
                raise AudioError(path, f"brings more than {limit}; write it to a file first")
            _write(path, spool, piece)
        if spool.tell() == 0:
            is_file = path != "-" and getattr(stream, "seekable", bool)()
            way = "it may stand at its end: seek(0)" if is_file else "pipe a recording into it"
            raise AudioError(path, f"brings no data; {way}")
        spool.seek(0)
    except OSError as error:
        spool.close()
        raise AudioError(path, f"cannot be read ({_line(error)})") from None
    except BaseException:
        spool.close()
        raise
    return spool


def _reader_of(path: str, stream: IO[bytes], is_over: Callable[[], bool]) -> Callable[[int], bytes]:
    """`stream.read`; of a pipe one that waits for data as long as it is wanted. A thread that
    blocks inside a read cannot be ended, and the end of the program would wait for it."""
    raw = getattr(stream, "raw", stream)
    if not isinstance(raw, io.FileIO):  # others may hold data that their descriptor no longer has
        return stream.read
    try:
        kind = stat.S_IFMT(os.fstat(raw.fileno()).st_mode)
    except OSError:
        kind = 0
    if kind == 0:  # closed below Python, and an event loop's epoll may have its number by now
        raise AudioError(path, "its descriptor is closed; leave it open until it is described")
    if kind == stat.S_IFREG:
        return stream.read
    read_some: Callable[[int], bytes | None] = getattr(stream, "read1", stream.read)
    poll = select.poll()
    poll.register(raw.fileno(), select.POLLIN)

    def read(size: int) -> bytes:
        while True:
            if not poll.poll(LOOK_MS):
                if is_over():
                    raise AudioError(path, "is no longer wanted")
            elif (piece := read_some(size)) is not None:  # None: another reader took it
                return piece

    return read


def _temporary(path: str) -> IO[bytes]:
    try:
        return tempfile.TemporaryFile()
    except OSError as error:
        raise AudioError(path, f"finds no directory for temporary files ({_line(error)})") from None


def _write(path: str, spool: IO[bytes], piece: bytes) -> None:
    try:
        spool.write(piece)
        spool.flush()
    except OSError as error:
        place = f"{tempfile.gettempdir()} ({error.strerror})"
        raise AudioError(path, f"cannot be kept in {place}; make room, or set TMPDIR") from None


def _decode(source: str | View) -> SoundFile:
    """Open a path that names a descriptor, or a view. libsndfile judges the content, not the name.

    If it does not know the format, it opens "._NAME" beside the path, a Macintosh's second file.
    A descriptor or a view has no name, so that file would be "._" in the working directory.
    """
    from soundfile import LibsndfileError, SoundFile

    if isinstance(source, View) and not source.is_known:
        raise NotForLibsndfile("Format not recognised")
    try:
        with _quiet():
            file = SoundFile(source, closefd=False)
    except LibsndfileError as error:
        raise NotForLibsndfile(_line(error.error_string)) from None
    # soundfile 0.14 seeks to where it is after every read, and an MP3 decoder starts afresh at
    # a seek: read in blocks of 4096, a tone lost half its level (2026-11). Files that "cannot
    # seek" are read straight on.
    file.seekable = lambda: False
    return file


@contextmanager
def _quiet() -> Iterator[None]:
    """Nothing that libmpg123 writes to stderr reaches the user; others' lines wait a moment."""
    with _STDERR:
        kept = os.dup(2)
        null = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(null, 2)
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            os.close(null)


def _has_frame_count(handle: IO[bytes], at: int) -> bool:
    """Whether an MP3 says how long it is. Else libsndfile guesses, by size and first bit rate."""
    fd = handle.fileno()
    frame = os.pread(fd, 40, at + after_tag(os.pread(fd, 10, at), 0))
    return any(frame[i : i + 4] in (b"Xing", b"Info", b"VBRI") for i in XING_AT)


def _cut_short(file: SoundFile) -> str | None:
    """One line where its header promises more than it holds."""
    declared = FRAMES.findall(file.extra_info) if file.format == "RF64" else []
    if declared and (frames := int(declared[-1])) > file.frames:
        return _ends_early(file.frames, frames, file.samplerate)
    found = SHORT_DATA.search(file.extra_info)
    if found is None:
        return None
    promised = int(found[1])
    present = int(found[2])
    if promised >= PLACEHOLDER or promised <= present or present == 0:
        return None
    return _ends_early(file.frames, file.frames * promised / present, file.samplerate)


def _ends_early(num_frames: int, num_promised: float, rate: int) -> str:
    return (
        f"is cut short: {num_frames / rate:.2f} s of the {num_promised / rate:.2f} s it promises "
        "are there"
    )


def _line(error: object) -> str:
    return " ".join(str(error).split()).rstrip(".")
