"""Frames of MP3 and MP2, which declare no length. ffmpeg judges those of AAC, AC-3 and MPEG-TS."""

from __future__ import annotations

import mmap
import struct

XING_AT = (13, 21, 36)  # bytes after an MP3 frame's begin, by version and channels
# An MP3 frame's kbit/s in layer III, by the header's bits: MPEG 1, else 2 and 2.5, as in layer II.
MP3_KBITS = (
    (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
)
MP2_KBITS = (0, 32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384)  # of MPEG 1
MPEG_RATES_HZ = (44_100, 48_000, 32_000)  # of MPEG 1; half of them in 2, a quarter in 2.5
Data = mmap.mmap


def mp3_end(data: Data, at: int) -> int | None:
    """Where an MP3 ends by its first frame; None where that frame does not say."""
    at = after_tag(data, at)
    for place in XING_AT:
        is_there = at + place + 16 <= len(data)
        if is_there and data[at + place : at + place + 4] in (b"Xing", b"Info"):
            flags, *numbers = struct.unpack_from(">3I", data, at + place + 4)
            if flags & 3 == 3 and numbers[1] > 0:
                return at + int(numbers[1])
    return None


def ends_within_a_frame(data: Data) -> bool:
    """Whether a file of bare frames, without a length, ends before its last one does."""
    at = last = after_tag(data, 0)
    if mp3_end(data, 0) is not None:
        return False  # its decoder knows
    num = 0
    while (size := _mpeg_size(data, at)) is not None:
        at, last, num = at + size, at, num + 1
    left = data[at : at + 4]  # perhaps a header that is cut; zeros are padding
    is_head = left[:2] == data[last : last + 2][: len(left)]
    return num > 1 and (at > len(data) or (is_head and len(left) < 4 and any(left)))


def _mpeg_size(data: Data, at: int) -> int | None:
    """Bytes of a frame of layer II or III; None for what is none, and for a free bit rate."""
    if len(data) < at + 4 or data[at] != 0xFF or data[at + 1] & 0xE0 != 0xE0:
        return None
    version, layer, bits = data[at + 1] >> 3 & 3, data[at + 1] >> 1 & 3, data[at + 2]
    if version == 1 or layer not in (1, 2) or bits >> 4 in (0, 15) or bits >> 2 & 3 == 3:
        return None
    is_half = version != 3
    rate = MPEG_RATES_HZ[bits >> 2 & 3] >> {3: 0, 2: 1, 0: 2}[version]
    kbits = (MP2_KBITS if layer == 2 and not is_half else MP3_KBITS[is_half])[bits >> 4]
    is_short = is_half and layer == 1  # 576 samples
    return (72_000 if is_short else 144_000) * kbits // rate + (bits >> 1 & 1)


def after_tag(data: Data | bytes, at: int) -> int:
    """Where frames begin after an ID3 tag, whose size has 7 bits in each byte."""
    if data[at : at + 3] != b"ID3":
        return at
    size = sum((byte & 0x7F) << 7 * i for i, byte in enumerate(reversed(data[at + 6 : at + 10])))
    return at + 10 + size


def is_frame(data: Data | bytes, at: int) -> bool:
    head = data[at : at + 3]
    return len(head) == 3 and head[0] == 0xFF and head[1] & 0xE6 == 0xE2 and head[2] >> 4 < 15
