"""Samples at 16 kHz come in; 32 ms frames with a probability of speech go out, and whether the clip holds any.

The network is silero-vad's shipped ONNX model in onnxruntime: neither torch nor the silero_vad package is imported.
"""

from __future__ import annotations

import functools
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

SAMPLE_RATE_HZ = 16_000
FRAME_SAMPLES = 512
FRAME_MS = 32
CONTEXT_SAMPLES = 64  # the network sees the end of the frame before
MAX_FRAMES = 256  # per call of the network, 0.6 MB


@dataclass(frozen=True)
class Frame:
    """32 ms from `start_sample` on; probability 0..1 that someone speaks in it."""

    start_sample: int
    probability: float


@dataclass(frozen=True)
class SpeechRule:
    """When a clip holds speech."""

    threshold: float = 0.5  # probability from which a frame counts as speech
    min_speech_ms: int = 250  # how much of it there must be


class VoiceActivity:
    """Voice activity of one clip; the frames do not depend on how it was cut. Holds under 32 ms of samples.

    A rest of less than a frame is not judged.
    """

    def __init__(self, rule: SpeechRule | None = None) -> None:
        self.rule = rule or SpeechRule()
        self.speech_ms = 0  # frames at or above the threshold
        self.first_speech_sample: int | None = None  # where the first of them starts
        self.last_speech_sample: int | None = None  # where the last of them ends
        self._num_samples = 0  # judged
        self._rest = np.zeros(CONTEXT_SAMPLES, np.float32)  # context, then what makes no frame yet
        self._hidden = np.zeros((1, 1, 128), np.float32)
        self._cell = np.zeros((1, 1, 128), np.float32)

    @property
    def has_speech(self) -> bool:
        """Whether the clip so far holds speech, by the rule."""
        return self.speech_ms >= self.rule.min_speech_ms

    def push(self, samples: NDArray[np.float32]) -> list[Frame]:
        """Takes samples [n] float32; returns the frames that are now complete."""
        held = np.concatenate([self._rest, samples], dtype=np.float32)
        num_frames = (len(held) - CONTEXT_SAMPLES) // FRAME_SAMPLES
        self._rest = held[num_frames * FRAME_SAMPLES :].copy()
        frames = []
        for first in range(0, num_frames, MAX_FRAMES):
            count = min(MAX_FRAMES, num_frames - first)
            frames += self._judge(held[first * FRAME_SAMPLES :], count)
        return frames

    def _judge(self, held: NDArray[np.float32], count: int) -> list[Frame]:
        length = CONTEXT_SAMPLES + FRAME_SAMPLES
        rows = np.lib.stride_tricks.sliding_window_view(held, length)[:: FRAME_SAMPLES][:count]
        inputs = {"input": np.ascontiguousarray(rows), "h": self._hidden, "c": self._cell}
        outputs = ["speech_probs", "hn", "cn"]
        probabilities, self._hidden, self._cell = _session().run(outputs, inputs)
        return [self._count(float(p)) for p in probabilities.reshape(-1)]

    def _count(self, probability: float) -> Frame:
        frame = Frame(self._num_samples, probability)
        self._num_samples += FRAME_SAMPLES
        if probability >= self.rule.threshold:
            self.speech_ms += FRAME_MS
            self.last_speech_sample = self._num_samples
            if self.first_speech_sample is None:
                self.first_speech_sample = frame.start_sample
        return frame


@functools.cache
def _session() -> InferenceSession:
    """The network, one per process: it holds no state of a stream, and `run` may be called from any thread."""
    import onnxruntime

    spec = importlib.util.find_spec("silero_vad")
    folder = Path(spec.origin).parent if spec and spec.origin else None
    if folder is None:
        raise RuntimeError("voice activity needs the package silero-vad: pip install 'silero-vad>=6.2.3'")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    path = folder / "data" / "silero_vad_16k_sequence.onnx"
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
