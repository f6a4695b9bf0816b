"""Samples at 16 kHz come in; F0 of frames of 16 ms goes out, the same for every way of cutting.

The network is the ONNX model that swift-f0 ships (arXiv 2508.18440), in onnxruntime. It runs on
blocks at fixed places, and in them on what speech needs, so that no cut changes a bit. It sees 11
frames before a frame and 10 behind it; of the outer ones next to nothing comes. With 6 and 6 the
SD was off by 0.001 semitones in the mean of 25 people's recordings, with 4 and 4 by 0.005, when
the network's confidence told what is voiced (2026-11).

F0 is near the network's: where the sound repeats itself most (core/measures/periodic.py). How far
it does tells which frames are voiced, as Praat tells it.
"""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.core.measures.frames import SPEECH_SAMPLES
from streamer.core.measures.periodic import tuned
from streamer.model.runtime.onnx import onnxruntime

Floats = NDArray[np.float32]
Flags = NDArray[np.bool_]
HOP_SAMPLES = 256
LEFT_FRAMES = 6
RIGHT_FRAMES = 6
BLOCK_FRAMES = 28
FRAMES_JUDGED = SPEECH_SAMPLES // HOP_SAMPLES
MIN_HZ = 60.0
MAX_HZ = 500.0
# From this strength on a frame is voiced, as in Praat. By the network's confidence, from 0.3 on,
# the median was within 2 % of Praat's in 0.82 of 2,267 recordings of training's people, and the SD
# within 0.3 semitones in 0.78; so they were in 0.88 and 0.83, before F0 was tuned. With 0.4 they
# were, too, but more that is no voice counted, and the coach took a lively voice for a flat one
# sooner (2026-11).
VOICED = 0.45
# Digital silence is nothing that the network ever saw: what it says of it is chance.
SILENT_PEAK = 1e-3


def num_known(num_samples: int) -> int:
    """Frames of the blocks that so many samples let be known."""
    return max(0, num_samples // HOP_SAMPLES - RIGHT_FRAMES) // BLOCK_FRAMES * BLOCK_FRAMES


class PitchTrack:
    """F0 of one turn; holds under a second of samples."""

    def __init__(self) -> None:
        self._held = np.zeros(0, np.float32)  # from LEFT_FRAMES before the next frame on
        self._left = 0  # frames in front of the next one that are held
        self._speech = np.zeros(1, bool)  # of voice activity's frames, from the one before it on

    def push(self, samples: Floats, speech: Flags) -> Floats:
        """Take samples [n], and whether somebody speaks in each 512 that are judged now; return F0
        in Hz of the frames that are known now, 0 where unvoiced or where nobody speaks near."""
        self._held = np.concatenate([self._held, samples], dtype=np.float32)
        self._speech = np.concatenate([self._speech, speech])
        found = [np.zeros(0, np.float32)]
        while len(self._held) >= (self._left + BLOCK_FRAMES + RIGHT_FRAMES) * HOP_SAMPLES:
            found.append(self._block(BLOCK_FRAMES))
        return np.concatenate(found)

    def finish(self) -> Floats:
        """F0 of what is left, when no more samples come. A rest of under 16 ms has none."""
        num = len(self._held) // HOP_SAMPLES - self._left
        return self._block(num) if num > 0 else np.zeros(0, np.float32)

    def _block(self, num: int) -> Floats:
        """The next `num` frames: from the first that speech needs to the last."""
        found = np.zeros(num, np.float32)
        near = _near_speech(self._speech, num)
        needed = np.flatnonzero(near)
        if len(needed):
            first, end = int(needed[0]), int(needed[-1]) + 1
            found[first:end] = self._f0(self._left + first, self._left + end)
            found[~near] = 0  # a pause between two words, where a machine may hum
        kept = min(LEFT_FRAMES, self._left + num)
        self._held = self._held[(self._left + num - kept) * HOP_SAMPLES :]
        self._left = kept
        self._speech = self._speech[num // FRAMES_JUDGED :]
        return found

    def _f0(self, first: int, end: int) -> Floats:
        """Of the held frames `first` to `end`, seen with those beside them."""
        begin = max(0, first - LEFT_FRAMES)
        samples = self._held[begin * HOP_SAMPLES : (end + RIGHT_FRAMES) * HOP_SAMPLES]
        band = {"fmin": np.asarray(MIN_HZ, np.float32), "fmax": np.asarray(MAX_HZ, np.float32)}
        pitch = _network().run(["pitch"], {"audio": samples[np.newaxis], **band})[0][0]
        mine = np.arange(first - begin, end - begin)
        hops = self._held[first * HOP_SAMPLES : end * HOP_SAMPLES].reshape(-1, HOP_SAMPLES)
        is_loud = np.abs(hops).max(1) >= SILENT_PEAK
        f0_hz, strength = tuned(samples, mine * HOP_SAMPLES, pitch[mine])
        found = np.where((f0_hz >= MIN_HZ) & (f0_hz <= MAX_HZ), f0_hz, pitch[mine])
        return np.where(is_loud & (strength >= VOICED), found, 0.0).astype(np.float32)


def _near_speech(speech: Flags, num: int) -> Flags:
    """Which of `num` frames of F0 are read where somebody speaks: those of speech, and the one
    behind. speech: of voice activity's frames, from the one before the first on."""
    flags = np.repeat(speech[1:], FRAMES_JUDGED)[:num]
    near = np.pad(flags, (0, num - len(flags)))
    near[::FRAMES_JUDGED] |= speech[: len(near[::FRAMES_JUDGED])]
    return near


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
