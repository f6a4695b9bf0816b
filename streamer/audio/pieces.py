"""The recordings inside one file: several joined ones, or one whose size was never written.

A header declares a length, and a decoder stops there. Whatever follows is looked at: `cat a.mp3
b.mp3`, a chained Ogg stream (RFC 3533), joined WAV or FLAC files, and a file whose recorder lost
its power before it wrote the sizes. Where it cannot be heard, one line says so.
"""

from __future__ import annotations

import io
import math
import mmap
import os
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import IO

from streamer.audio.codec_frames import Data, after_tag, ends_within_a_frame, is_frame, mp3_end

MOST_PIECES = 1000
LEAST_BYTES = 256  # of another recording
LEAST_UNKNOWN_BYTES = 1024  # fewer are padding, or a tag of another kind
UNWRITTEN = (0, 0xFFFFFFFF)  # sizes of a WAV chunk that no recorder writes at its end
PLACEHOLDER = 0x7FFF_0000  # bytes; programs that write to a pipe promise about the most that fits
ENDLESS = 1 << 62  # bytes; of a W64 or RF64, beyond it a size is a placeholder
W64 = b"riff\x2e\x91\xcf\x11"
ASF = b"\x30\x26\xb2\x75\x8e\x66\xcf\x11"
ASF_FILE = bytes.fromhex("a1dcab8c47a9cf118ee400c00c205365")  # the object that has the file's size
NIST = b"NIST_1A\n"
HEAD = re.compile(rb"fLaC[\0\x80]\0\0\x22")  # of FLAC; it does not occur within a recording
READ_BY_LIBSNDFILE = re.compile(rb"RIF[FX]|RF64|riff|FORM|\.snd|caff|Crea|NIST|OggS|fLaC|ID3")
NO_TAG = b"ID3\4\0\0\0\0\0\x0a" + bytes(10)
CUT = "is cut short: its last part is missing"


@dataclass(frozen=True, slots=True)
class Piece:
    """One recording in a file, bytes `begin` up to `end`. head: in place of its first bytes."""

    begin: int
    end: int
    head: bytes = b""


class View(io.RawIOBase):
    """A piece as a file of its own. An MP3 without a tag gets an empty one: libsndfile knows it by
    that."""

    def __init__(self, handle: IO[bytes], piece: Piece) -> None:
        self._fd, self._at = handle.fileno(), 0
        self._begin, self._end, self._head = piece.begin, piece.end, piece.head
        self.begin = piece.begin
        head = self._head or os.pread(self._fd, 4, piece.begin)
        if is_frame(head, 0):
            self._begin, self._head = piece.begin - len(NO_TAG), NO_TAG
        self.is_known = is_frame(head, 0) or READ_BY_LIBSNDFILE.match(head) is not None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._head[self._at :][: len(buffer)]
        begin = self._begin + self._at + len(data)
        size = min(len(buffer) - len(data), self._end - begin)
        data += os.pread(self._fd, size, begin) if size > 0 else b""
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = (0, self._at, self._end - self._begin)[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        return self._at


def pieces_of(handle: IO[bytes]) -> tuple[list[Piece], str | None]:
    """The recordings of a file, and one line where a part of it is missing or is not heard.

    No piece: the file is one recording as its header says, or of a kind without such faults.
    """
    size = os.fstat(handle.fileno()).st_size
    if size < 64:
        return [], None
    with mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if data[:4] == b"OggS":
            return _ogg(data)
        if HEAD.match(data):
            heads = islice(HEAD.finditer(data), MOST_PIECES)
            begins = [head.start() for head in heads if head[0][:4] == data[:4]]
            told = CUT if ends_within_a_frame(data) else None
            return _spans(begins, [*begins[1:], size]), told
        if (mended := _unwritten(data, 0)) is not None:
            return [mended], None
        pieces, told = _chain(data)
        return pieces, told or (CUT if ends_within_a_frame(data) else None)


def of_another_kind(number: int, rate: int, channels: int) -> str:
    """One line on a recording that cannot follow the first."""
    told = f"of {rate} Hz and {channels} channels, unlike the first"
    return f"holds a recording number {number} {told}: it is not heard"


def _chain(data: Data) -> tuple[list[Piece], str | None]:
    """Recordings of one kind, one after the other."""
    end_of = _kind(data, 0)
    begins, ends, told = [0], [], None
    while end_of is not None and len(begins) < MOST_PIECES:
        end = end_of(data, begins[-1])
        if end is None:
            break
        ends.append(min(end, len(data)))
        if end > len(data):
            told = CUT if end_of in OURS else None
            break
        after = _after_padding(data, end)
        places = range(max(end, after - 3), after + 1)  # an MP4 begins with zeros
        begin = next((at for at in (end, *places) if _kind(data, at) is end_of), after)
        if _kind(data, begin) is not end_of or len(data) - begin < LEAST_BYTES:
            told = _unheard(data, begin)
            break
        begins.append(begin)
        if (mended := _unwritten(data, begin)) is not None:
            return [*_spans(begins, [*ends, begin])[:-1], mended], None
    if end_of is _nist_end:  # libsndfile would read on
        return [Piece(*span) for span in zip(begins, ends, strict=False)], told
    return _spans(begins, [*ends[: len(begins) - 1], len(data)]), told


def _spans(begins: list[int], ends: list[int]) -> list[Piece]:
    """Pieces from each begin to its end; none where there is one."""
    pieces = [Piece(*span) for span in zip(begins, ends, strict=True)]
    return pieces[:MOST_PIECES] if len(pieces) > 1 else []


def _after_padding(data: Data, at: int) -> int:
    """After zeros, and tags that end a recording: ID3v1, and APE's."""
    while True:
        if data[at : at + 3] == b"TAG":
            at += 128
        elif data[at : at + 8] == b"APETAGEX" and at + 32 <= len(data):
            size, _, flags = struct.unpack_from("<III", data, at + 12)
            at += size + (32 if flags & 0xA0000000 == 0xA0000000 else 0)
        elif data[at : at + 1] == b"\0":
            while data[at : at + 4096].count(b"\0") == 4096:
                at += 4096
            at += len(data[at : at + 4096]) - len(data[at : at + 4096].lstrip(b"\0"))
        else:
            return min(at, len(data))


def _unheard(data: Data, begin: int) -> str | None:
    """One line on the bytes from there to the end; None for a few, and for tags and chunks of a
    writer that did not count them."""
    tagged = after_tag(data, begin)
    if len(data) - tagged < LEAST_UNKNOWN_BYTES:
        return None
    at = begin
    while at + 8 <= len(data) and data[at : at + 4].isalnum():
        at += 8 + int.from_bytes(data[at + 4 : at + 8], "little" if data[:4] != b"FORM" else "big")
        at += at % 2
    if -2 < len(data) - at < 8 and _kind(data, begin) is None:
        return None
    left = len(data) - begin
    return f"holds {left} bytes after the end that its header declares; they are not heard"


def _ogg(data: Data) -> tuple[list[Piece], str | None]:
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
    told = CUT if is_cut else _unheard(data, _after_padding(data, at))
    begins = begins or [0]
    return _spans(begins, [*begins[1:], len(data)]), told


End = Callable[[Data, int], int | None]  # the declared end of the recording that begins there


def _kind(data: Data, at: int) -> End | None:
    found = next((end for form, end in KINDS.items() if form.match(data, at)), None)
    return found or (mp3_end if is_frame(data, after_tag(data, at)) else None)


def _order(data: Data, at: int) -> str:
    return ">" if data[at : at + 4] in (b"RIFX", b"FORM") else "<"


def _wav_end(data: Data, at: int) -> int | None:
    if data[at : at + 4] == b"RF64":
        is_known = data[at + 12 : at + 16] == b"ds64"
        return at + 8 + struct.unpack_from("<Q", data, at + 20)[0] if is_known else None
    (length,) = struct.unpack_from(f"{_order(data, at)}I", data, at + 4)
    body = _samples(data, at)
    if length in UNWRITTEN and body is not None:
        return body[0] + body[1] + body[1] % 2
    end = at + 8 + length + length % 2 if length >= 36 else None
    if body is None:
        return end
    heard = body[0] + body[1] + body[1] % 2  # libsndfile believes the data chunk
    name, more = data[heard : heard + 4], data[heard + 4 : heard + 8]
    size = int.from_bytes(more, "little" if _order(data, at) == "<" else "big")
    is_chunk = name.strip().isalnum() and heard + size <= len(data)
    return end if end and heard <= end and (is_chunk or heard + 8 > end) else heard


def _samples(data: Data, begin: int) -> tuple[int, int] | None:
    """Where the samples of a WAV, AIFF or W64 begin, and the bytes that they have by the header: 0
    for fewer than one frame."""
    at, least, order = begin + 12, 1, _order(data, begin)
    form, counted, align = f"{order}4sI", 0, 2
    if data[begin : begin + 8] == W64:  # a chunk's size counts its head
        at, form, counted, align = begin + 40, "<4s12xQ", 24, 8
    while (body := at + struct.calcsize(form)) <= len(data):
        name, length = struct.unpack_from(form, data, at)
        length = max(0, length - counted)
        if name == b"fmt " and min(length, len(data) - body) >= 14:
            (least,) = struct.unpack_from(f"{order}H", data, body + 12)
        if name == b"SSND":  # 8 bytes come before the samples
            return body + 8, max(0, length - 8)
        if name == b"data":
            return body, length if length >= least else 0
        at = body + length + -length % align
    return None


def _unwritten(data: Data, begin: int) -> Piece | None:
    """The piece that begins there, with sizes, where its header has none and bytes follow."""
    end_of = _kind(data, begin)
    size = len(data)
    if end_of is _au_end and _au_end(data, begin) is None:
        head = bytearray(data[begin : begin + 12])
        head[8:] = b"\xff" * 4  # unknown: up to the end
        return Piece(begin, size, bytes(head))
    body = _samples(data, begin) if end_of in (_wav_end, _w64_end) else None
    left = size - body[0] if body else 0
    if body is None or left <= 0:
        return None
    is_written = body[1] not in UNWRITTEN
    head = bytearray(data[begin : body[0]])
    if end_of is _w64_end:
        is_written = 0 < body[1] < ENDLESS
        struct.pack_into("<Q", head, 16, size - begin)
        struct.pack_into("<Q", head, len(head) - 8, left + 24)
    elif data[begin : begin + 4] == b"RF64":
        (length,) = struct.unpack_from("<Q", data, begin + 28)
        if data[begin + 12 : begin + 16] != b"ds64" or 0 < length < ENDLESS:
            return None
        struct.pack_into("<QQ", head, 20, size - begin - 8, left)
    else:
        is_written |= body[1] > 0 and left >= 0xFFFF0000
        order, before = _order(data, begin), 8 * (data[begin : begin + 4] == b"FORM")
        sizes = min(size - begin - 8, 0xFFFFFFF0), min(left + before, 0xFFFFFFC0)
        struct.pack_into(f"{order}I", head, 4, sizes[0])
        struct.pack_into(f"{order}I", head, len(head) - before - 4, sizes[1])
    return None if is_written else Piece(begin, size, bytes(head))


def _avi_end(data: Data, at: int) -> int | None:
    """Large ones have further parts."""
    begin = at
    while at == begin or (data[at : at + 4] == b"RIFF" and data[at + 8 : at + 12] == b"AVIX"):
        (length,) = struct.unpack_from("<I", data, at + 4)
        if length in UNWRITTEN:
            return None
        at += 8 + length + length % 2
    return at


def _au_end(data: Data, at: int) -> int | None:
    offset, length = struct.unpack_from(">II", data, at + 4)
    return at + offset + length if 0 < length < PLACEHOLDER else None


def _w64_end(data: Data, at: int) -> int | None:
    if at + 24 > len(data):
        return None
    body = _samples(data, at)
    heard = body[0] + body[1] if body else 0  # libsndfile believes the data chunk
    (length,) = struct.unpack_from("<Q", data, at + 16)
    return max(heard, at + length) if length < ENDLESS else heard or None


def _asf_end(data: Data, at: int) -> int | None:
    """None where it was written to a stream."""
    place = data.find(ASF_FILE, at, at + (1 << 16))
    if place < 0 or place + 48 > len(data):
        return None
    return at + struct.unpack_from("<Q", data, place + 40)[0] or None


def _caf_end(data: Data, at: int) -> int | None:
    at += 8
    while at + 12 <= len(data) and data[at : at + 4].isalnum() and data[at : at + 4] != b"caff":
        (length,) = struct.unpack_from(">q", data, at + 4)
        if length < 0:  # of samples, up to the end
            return None
        at += 12 + length
    return at


def _nist_end(data: Data, at: int) -> int | None:
    """None where it does not say how many samples it has."""
    sized = re.match(rb"\s*(\d+)\s", data[at + 8 : at + 16])
    size = int(sized[1]) if sized else 0
    head = data[at : at + size]
    counts = rb"\n(?:sample_count|sample_n_bytes|channel_count) -\w+ (\d{1,18})\b"
    found = re.findall(counts, head)
    return at + size + math.prod(map(int, found)) if len(found) == 3 else None


def _mp4_end(data: Data, begin: int) -> int | None:
    """After the last box before another file's."""
    at = begin
    while at + 8 <= len(data) and (at == begin or data[at + 4 : at + 8] != b"ftyp"):
        length, name = struct.unpack_from(">I4s", data, at)
        if length == 1 and at + 16 <= len(data):
            (length,) = struct.unpack_from(">Q", data, at + 8)
        if length == 0 and name.isalnum():  # it goes up to the end
            return len(data)
        if length < 8 or not name.isascii():
            break
        at += length
    return at


KINDS: dict[re.Pattern[bytes], End] = {
    re.compile(form, re.DOTALL): end
    for form, end in (
        (rb"(RIF[FX]|RF64)....WAVE|FORM....AIF[FC]", _wav_end),
        (rb"RIFF....AVI ", _avi_end),
        (re.escape(W64), _w64_end),
        (re.escape(ASF), _asf_end),
        (rb"....ftyp", _mp4_end),
        (NIST, _nist_end),
        (rb"\.snd", _au_end),
        (rb"caff", _caf_end),
    )
}
# Formats whose cut only we detect; libsndfile detects that of the others.
OURS: frozenset[End] = frozenset({_asf_end, _avi_end, _caf_end, _nist_end, _w64_end})
