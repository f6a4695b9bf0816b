"""Samples at 16 kHz come in; F0 of frames of 16 ms goes out, the same for every way of cutting.

The network is the ONNX model that swift-f0 ships (arXiv 2508.18440), in onnxruntime. It sees 11
frames before a frame and 10 behind it. It runs on blocks of one size at fixed places, so that no
cut changes a bit. One thread, per live stream: 1.2 % of a core in blocks of 25 frames, 2.1 % of 12,
0.9 % of 60 (2026-11).
"""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.model.runtime.onnx import onnxruntime

Floats = NDArray[np.float32]
HOP_SAMPLES = 256
LEFT_FRAMES = 11
RIGHT_FRAMES = 10
BLOCK_FRAMES = 25
MIN_HZ = 60.0
MAX_HZ = 500.0
# Its own threshold is 0.5. With 0.3, and the voice's own range (core/measures/pitch.py), the SD is
# nearer to Praat's on people: 0.80 of 214 recordings within 0.3 semitones, not 0.75 (2026-11).
VOICED = 0.3
# Digital silence is nothing that the network ever saw: what it says of it is chance.
SILENT_PEAK = 1e-3


class PitchTrack:
    """F0 of one turn; holds under a second of samples."""

    def __init__(self) -> None:
        self._held = np.zeros(0, np.float32)  # from LEFT_FRAMES before the next frame on
        self._left = 0  # frames in front of the next one that are held

    def push(self, samples: Floats) -> Floats:
        """Take samples [n]; return F0 in Hz of the frames that are known now, 0 where unvoiced."""
        self._held = np.concatenate([self._held, samples], dtype=np.float32)
        found = [np.zeros(0, np.float32)]
        while len(self._held) >= self._num_needed:
            found.append(self._block(self._held[: self._num_needed], BLOCK_FRAMES))
        return np.concatenate(found)

    def finish(self) -> Floats:
        """F0 of what is left, when no more samples come. A rest of under 16 ms has none."""
        num = len(self._held) // HOP_SAMPLES - self._left
        return self._block(self._held, num) if num > 0 else np.zeros(0, np.float32)

    @property
    def _num_needed(self) -> int:
        return (self._left + BLOCK_FRAMES + RIGHT_FRAMES) * HOP_SAMPLES

    def _block(self, samples: Floats, num: int) -> Floats:
        band = {"fmin": np.asarray(MIN_HZ, np.float32), "fmax": np.asarray(MAX_HZ, np.float32)}
        pitch, confidence = _network().run(
            ["pitch", "confidence"], {"audio": samples[np.newaxis], **band}
        )
        mine = slice(self._left, self._left + num)
        hops = samples[mine.start * HOP_SAMPLES : mine.stop * HOP_SAMPLES]
        is_loud = np.abs(hops.reshape(num, HOP_SAMPLES)).max(1) >= SILENT_PEAK
        is_voiced = is_loud & (confidence[0, mine] >= VOICED)
        kept = min(LEFT_FRAMES, mine.stop)
        self._held = self._held[(mine.stop - kept) * HOP_SAMPLES :]
        self._left = kept
        return np.where(is_voiced, pitch[0, mine], 0.0).astype(np.float32)


@functools.cache
def _network() -> Any:
    """One per process: it holds no state of a stream, and `run` may be called from any thread."""
    runtime = onnxruntime()
    spec = importlib.util.find_spec("swift_f0")
    path = Path(spec.origin).parent / "model.onnx" if spec and spec.origin else None
    if path is None or not path.exists():
        raise RuntimeError("measures need swift-f0 0.3.0 or newer: pip install 'swift-f0>=0.3.0'")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
