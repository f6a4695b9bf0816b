"""Tell by its head or end whether a WAV, MP3 or Ogg file is cut short, or holds more than it says.

FFmpeg decodes what there is of such a file, and reports nothing.
"""

from __future__ import annotations

import os
import struct
from typing import IO

MOST_CHUNKS = 1000
LEAST_BYTES = 1024  # fewer are padding
TAGS = (b"ID3", b"TAG", b"APETAGEX")
PLACEHOLDER = 0x7FFF_0000  # bytes; programs that write to a pipe state about the largest size
OGG_PAGE_BYTES = 1 << 16  # at most
XING_AT = (13, 21, 36)  # bytes after an MP3 frame's begin, by version and channels


def judged(handle: IO[bytes]) -> tuple[float, str | None]:
    """The share of the declared bytes that is there, at most 1, and one line about a part that is
    missing or not heard."""
    fd = handle.fileno()
    size, head = os.fstat(fd).st_size, os.pread(fd, 12, 0)
    if head[:4] == b"OggS":
        return 1.0, _ogg(fd, size)
    if head[:4] == b"RIFF" and head[8:] == b"WAVE":
        return _wav(fd, size)
    return _mp3_share(fd, size), None


def _wav(fd: int, size: int) -> tuple[float, str | None]:
    """The share and the line of a WAV. A size of 0, or about the largest, was never filled in."""
    at, share, has_data = 12, 1.0, False
    for _ in range(MOST_CHUNKS):
        name, length = struct.unpack("<4sI", os.pread(fd, 8, at).ljust(8, b"\0"))
        end = at + 8 + length
        if name == b"data" and not has_data:
            has_data = True
            if not 0 < length < PLACEHOLDER:
                return 1.0, None
            share = (size - at - 8) / length
        elif end > size or name == b"RIFF" or not name.strip().isalnum():
            break
        at = end + length % 2
    left = size - at
    rest = os.pread(fd, LEAST_BYTES, at).strip(b"\0")
    if not has_data or left < LEAST_BYTES or not rest or rest.startswith(TAGS):
        return min(1.0, share), None
    told = f"holds {left} bytes after the end that its header declares; they are not heard"
    return 1.0, told


def _ogg(fd: int, size: int) -> str | None:
    """A line if the last page is not whole, or not marked as the end."""
    begin = max(0, size - 2 * OGG_PAGE_BYTES)
    tail = os.pread(fd, size - begin, begin)
    page = tail[max(0, tail.rfind(b"OggS")) :]
    is_whole = len(page) >= 27 and len(page) >= 27 + page[26] + sum(page[27 : 27 + page[26]])
    return None if is_whole and page[5] & 4 else "is cut short: its last part is missing"


def _mp3_share(fd: int, size: int) -> float:
    """The share by the first frame, which states the number of bytes. A tag may precede it."""
    tag = os.pread(fd, 10, 0)
    begin = 0
    if tag[:3] == b"ID3":  # its size has 7 bits in each byte
        begin = 10 + sum((byte & 0x7F) << 7 * i for i, byte in enumerate(reversed(tag[6:])))
    frame = os.pread(fd, 64, begin)
    for place in XING_AT:
        if frame[place : place + 4] in (b"Xing", b"Info") and len(frame) == 64:
            flags, _, length = struct.unpack_from(">3I", frame, place + 4)
            if flags & 3 == 3 and length > 0:
                return min(1.0, (size - begin) / length)
    return 1.0
