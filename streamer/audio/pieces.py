"""The recordings inside one file: several joined ones, or one whose size was never written.

A header declares a length, and a decoder stops there. Whatever follows is looked at: `cat a.mp3
b.mp3`, a chained Ogg stream (RFC 3533), joined WAV or FLAC files, and a WAV whose recorder lost its
power before it wrote the sizes.
"""

from __future__ import annotations

import io
import mmap
import os
import struct
from dataclasses import dataclass
from typing import IO

MOST_PIECES = 1000
XING_AT = (13, 21, 36)  # bytes after an MP3 frame's begin, by version and channels
TAGS = (b"TAG", b"APETAGEX", b"LYRICSBEGIN")
LEAST_BYTES = 1024  # after an MP3's declared end: fewer are padding or a tag of another kind
UNWRITTEN = (0, 0xFFFFFFFF)  # sizes of a WAV chunk that no recorder writes at its end


@dataclass(frozen=True, slots=True)
class Piece:
    """One recording in a file, bytes `begin` up to `end`. head: in place of its first bytes."""

    begin: int
    end: int
    head: bytes = b""


class View(io.RawIOBase):
    """A piece as a file of its own."""

    def __init__(self, handle: IO[bytes], piece: Piece) -> None:
        self._fd, self._piece, self._at = handle.fileno(), piece, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        size = min(len(buffer), self._piece.end - self._piece.begin - self._at)
        if size <= 0:
            return 0
        data = os.pread(self._fd, size, self._piece.begin + self._at)
        if self._at < len(self._piece.head):
            head = self._piece.head[self._at :][: len(data)]
            data = head + data[len(head) :]
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = (0, self._at, self._piece.end - self._piece.begin)[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        return self._at


def pieces_of(handle: IO[bytes]) -> tuple[list[Piece], str | None]:
    """The recordings of a file, and one line where its last one is cut short.

    No piece: the file is one recording as its header says, or of a kind without such faults.
    """
    size = os.fstat(handle.fileno()).st_size
    if size < 64:
        return [], None
    with mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if data[:4] == b"OggS":
            return _ogg(data)
        if data[:4] in (b"RIFF", b"RIFX"):
            return _wav(data), None
        if data[:4] == b"fLaC":
            return _between(_found(data, b"fLaC\0\0\0\x22"), size), None
        if data[:3] == b"ID3" or _is_frame(data, 0):
            return _mp3(data), None
    return [], None


def _between(begins: list[int], size: int) -> list[Piece]:
    """Pieces that begin there; none where there is one."""
    ends = [*begins[1:], size]
    pieces = [Piece(*span) for span in zip(begins, ends, strict=True)]
    return pieces[:MOST_PIECES] if len(pieces) > 1 else []


def _found(data: mmap.mmap, magic: bytes) -> list[int]:
    begins = [0]
    while len(begins) < MOST_PIECES and (at := data.find(magic, begins[-1] + 1)) > 0:
        begins.append(at)
    return begins


def _ogg(data: mmap.mmap) -> tuple[list[Piece], str | None]:
    """A chain's links: each begins with pages that are marked as a beginning."""
    begins, at, was_begin, has_end = [], 0, False, True
    while data[at : at + 4] == b"OggS" and at + 27 <= len(data):
        kind, num_segments = data[at + 5], data[at + 26]
        is_begin = bool(kind & 2)
        if is_begin and not was_begin:
            begins.append(at)
        was_begin, has_end = is_begin, bool(kind & 4)
        at += 27 + num_segments + sum(data[at + 27 : at + 27 + num_segments])
    is_cut = at > len(data) or not has_end
    told = "is cut short: its last part is missing" if is_cut else None
    return _between(begins or [0], len(data)), told


def _wav(data: mmap.mmap) -> list[Piece]:
    """Joined WAV files, and one whose sizes were never written."""
    order = "<" if data[:4] == b"RIFF" else ">"
    begins, at, size = [], 0, len(data)
    while data[at : at + 4] in (b"RIFF", b"RIFX") and data[at + 8 : at + 12] == b"WAVE":
        begins.append(at)
        mended = _unwritten(data, at, order)
        if mended is not None:
            return [mended] if at == 0 else [*_between([*begins], size)[:-1], mended]
        (length,) = struct.unpack_from(f"{order}I", data, at + 4)
        at += 8 + length + length % 2
        if length < 36 or len(begins) >= MOST_PIECES:
            break
    return _between(begins or [0], size)


def _unwritten(data: mmap.mmap, begin: int, order: str) -> Piece | None:
    """The piece that begins there, with sizes, where its data chunk has none and bytes follow."""
    at, size = begin + 12, len(data)
    while at + 8 <= size:
        name, length = struct.unpack_from(f"{order}4sI", data, at)
        if name == b"data":
            left = size - at - 8
            if length not in UNWRITTEN or left == 0 or (length and left >= 0xFFFF0000):
                return None
            head = bytearray(data[begin : at + 8])
            struct.pack_into(f"{order}I", head, 4, min(size - begin - 8, 0xFFFFFFF0))
            struct.pack_into(f"{order}I", head, at + 4 - begin, min(left, 0xFFFFFFC0))
            return Piece(begin, size, bytes(head))
        at += 8 + length + length % 2
    return None


def _mp3(data: mmap.mmap) -> list[Piece]:
    """Joined MP3 files: the first frame of each may say how many bytes it has."""
    begins, at = [0], _behind_tag(data, 0)
    while len(begins) < MOST_PIECES:
        end = _declared_end(data, at)
        if end is None or end + LEAST_BYTES > len(data) or data[end : end + 11].startswith(TAGS):
            break
        at = _behind_tag(data, end)
        if not _is_frame(data, at):
            break
        begins.append(end)
    return _between(begins, len(data))


def _behind_tag(data: mmap.mmap, at: int) -> int:
    """Where frames begin after an ID3 tag, whose size has 7 bits in each byte."""
    if data[at : at + 3] != b"ID3":
        return at
    size = sum((byte & 0x7F) << 7 * i for i, byte in enumerate(reversed(data[at + 6 : at + 10])))
    return at + 10 + size


def _is_frame(data: mmap.mmap, at: int) -> bool:
    head = data[at : at + 3]
    return len(head) == 3 and head[0] == 0xFF and head[1] & 0xE6 == 0xE2 and head[2] >> 4 < 15


def _declared_end(data: mmap.mmap, at: int) -> int | None:
    """Where the MP3 whose frames begin there says that it ends; None where it does not."""
    for place in XING_AT:
        is_there = at + place + 16 <= len(data)
        if is_there and data[at + place : at + place + 4] in (b"Xing", b"Info"):
            flags, *numbers = struct.unpack_from(">3I", data, at + place + 4)
            if flags & 3 == 3 and numbers[1] > 0:
                return at + numbers[1]
    return None
