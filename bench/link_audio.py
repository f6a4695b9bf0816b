"""Should audio go to a verifier as PCM16 or as FLAC? In: held-out clips. Out: a table: size, CPU,
delay.

`python -m bench.link_audio [--num 8]` takes a minute. Clips are cut into pieces as the link sends
them: 100 ms as a microphone brings them, half a second as a recording does. Each piece is a FLAC
file of its own, because a piece must be readable without those before it: a link is cut, a slot is
lost. libsndfile encodes at its default level. The whole clip as one file stands beside it.

The last piece is what counts. All before it goes up while somebody speaks, and PCM16 is 256 kbit/s,
a quarter of 1 Mbit/s. So FLAC saves the sending time of the last piece's difference. It costs
encoding and decoding that piece.
"""

from __future__ import annotations

import argparse
import io
import time

import numpy as np
import soundfile

from bench.clips import held_out
from bench.common import mean, median, progress, table_of, write
from bench.keep import options_of
from streamer.core.audio.pcm import SAMPLE_RATE_HZ

LENGTHS_S = (3, 30, 60)
PIECES_MS = (100, 500, None)  # None: the whole clip
MBIT = (0.256, 1, 20)


def flac_of(pcm16: np.ndarray) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, pcm16, SAMPLE_RATE_HZ, format="FLAC", subtype="PCM_16")
    return file.getvalue()


def pcm_of(flac: bytes) -> np.ndarray:
    samples: np.ndarray = soundfile.read(io.BytesIO(flac), dtype="int16")[0]
    return samples


def coded(pcm16: np.ndarray, piece_ms: int | None) -> dict[str, float]:
    """One clip: bytes of FLAC per byte of PCM16, CPU ms per second of audio, and what its last
    piece saves in bytes."""
    size = len(pcm16) if piece_ms is None else SAMPLE_RATE_HZ * piece_ms // 1_000
    pieces = [pcm16[at : at + size] for at in range(0, len(pcm16), size)]
    started = time.process_time()
    files = [flac_of(piece) for piece in pieces]
    encoded = time.process_time()
    back = [pcm_of(file) for file in files]
    decoded = time.process_time()
    assert all(np.array_equal(a, b) for a, b in zip(pieces, back, strict=True)), (
        "FLAC loses nothing"
    )
    # the last one that is whole
    seconds = len(pcm16) / SAMPLE_RATE_HZ
    i = len(pieces) - 1 - (len(pieces) > 1)
    own_ms = 1_000 * (decoded - started) / len(pieces)
    saved = pieces[i].nbytes - len(files[i])
    return {
        "size_ratio": sum(map(len, files)) / pcm16.nbytes,
        "encode_ms_per_s": 1_000 * (encoded - started) / seconds,
        "decode_ms_per_s": 1_000 * (decoded - encoded) / seconds,
        "last_piece_bytes_saved": saved,
    } | {f"last_piece_ms_saved_at_{mbit:g}_mbit": saved / (125 * mbit) - own_ms for mbit in MBIT}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--num", type=int, default=8, help="clips of each length")
    options = options_of(parser)
    rows = []
    for seconds in LENGTHS_S:
        scaled = [np.round(clip.samples * 32_768) for clip in held_out(options.num, seconds)]
        clips = [each.clip(-32_768, 32_767).astype(np.int16) for each in scaled]
        for piece_ms in PIECES_MS:
            found = [coded(clip, piece_ms) for clip in progress(clips, f"{seconds} s")]
            row = {
                name: (mean if name == "size_ratio" else median)(one[name] for one in found)
                for name in found[0]
            }
            piece = "whole" if piece_ms is None else f"{piece_ms} ms"
            rows.append({"clip_s": seconds, "piece": piece, **row})
    print(table_of(rows))
    print("written:", write("link_audio", rows))


if __name__ == "__main__":
    main()
