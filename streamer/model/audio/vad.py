"""Samples at 16 kHz come in; frames of 32 ms with a probability of speech go out, and turns.

The network is silero-vad's, run by the compiled kernels. Its weights are those of
`silero_vad_16k_sequence.onnx` in silero-vad 6.2.3 (MIT licence, Copyright (c) 2020-present Silero
Team, https://github.com/snakers4/silero-vad). On 1,042 recordings of people the probabilities are
within 1e-4 of those that onnxruntime gives. One thread takes 20 to 40 ms for 60 s of audio;
onnxruntime took 125 to 440 (2026-11).

A row is a frame with the end of the frame before it. Its spectrum passes four convolutions, an LSTM
that remembers earlier frames, and a single unit. A row's products are the same bits beside any
others, so every way of cutting the samples gives the same probabilities.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.core.audio.turn import LANDMARK_SAMPLES, LEAD_SAMPLES, MARGIN_SAMPLES, NOTHING, Recent
from streamer.core.measures.frames import HOP_SAMPLES, Floats
from streamer.model.audio.density import STEP_FRAMES
from streamer.model.audio.mel import hann
from streamer.model.kernels.library import Matrix, kernel

FRAME_SAMPLES = 512
FRAME_MS = 32
CONTEXT_SAMPLES = 64  # the network sees the end of the frame before
MAX_FRAMES = 256  # per call of the network, 0.6 MB
WEIGHTS = Path(__file__).with_name("silero_vad.npz")
WIDTH = 128  # units of the LSTM
WINDOW = 256  # samples of one spectrum
# Four windows of a row, 128 samples apart; past its end the row is mirrored. Then steps of three.
_SAMPLES = 575 - np.abs(575 - np.arange(0, 512, 128)[:, None] - np.arange(WINDOW))
_NEAR = np.arange(4)[:, None] + np.arange(3)


class Frame(NamedTuple):
    """32 ms before `end_sample`; probability 0..1 that someone speaks in it."""

    end_sample: int
    probability: float

    def later(self, num: int) -> Frame:
        """The same, `num` samples later."""
        return Frame(self.end_sample + num, self.probability)


# A clip holds speech if one stretch of it is long enough. (A sum over the clip would grow with its
# length.) Of 1,040 clips without speech 1 was judged wrongly, and of 1,944 of espeak-ng 11, most of
# them a squeaky voice at -38 dBFS (2026-11). Below -45 dBFS the network begins to miss speech.
SPEECH = 0.5  # probability from which a frame counts as speech
MIN_RUN_MS = 256  # how long one stretch must be
MAX_GAP_FRAMES = 1  # frames below SPEECH that do not end a stretch


class VoiceActivity:
    """Voice activity of one clip; no cut of it changes the frames. Holds under 36 ms of samples."""

    def __init__(self) -> None:
        # where the last frame at or above the threshold ends
        self.last_speech_sample: int | None = None
        self.has_speech = False  # by the rule; once true it stays true
        self.restart(0)

    def restart(self, at: int) -> None:
        """Forget what was heard. The next sample is the clip's sample `at`."""
        self._num_samples = at  # judged
        # frames of the stretch that goes on, and since its last one above threshold
        self._run = self._gap = 0
        # context, then what makes no frame yet
        self._rest = np.zeros(CONTEXT_SAMPLES, np.float32)
        self._state = np.zeros(2 * WIDTH, np.float32)  # of the LSTM: hidden, then cell

    def push(self, samples: Floats, is_last: bool = False) -> list[Frame]:
        """Takes samples [n] float32; returns the frames that are now complete. is_last: the clip
        ends here. An incomplete frame is padded with zeros, and not counted."""
        missing = (CONTEXT_SAMPLES - len(self._rest) - len(samples)) % FRAME_SAMPLES * is_last
        frames = self._hear(np.concatenate([samples, np.zeros(missing, np.float32)]))
        for frame in frames[:-1] if missing else frames:
            self.count(frame)
        return frames

    def _hear(self, samples: Floats) -> list[Frame]:
        held = np.concatenate([self._rest, samples], dtype=np.float32)
        num = (len(held) - CONTEXT_SAMPLES) // FRAME_SAMPLES * FRAME_SAMPLES
        self._rest = held[num:].copy()
        found: list[float] = []
        for at in range(0, num, MAX_FRAMES * FRAME_SAMPLES):
            piece = held[at : min(at + MAX_FRAMES * FRAME_SAMPLES, num) + CONTEXT_SAMPLES]
            rows = np.lib.stride_tricks.sliding_window_view(piece, CONTEXT_SAMPLES + FRAME_SAMPLES)
            found += self._probabilities(rows[::FRAME_SAMPLES])
        begin, self._num_samples = self._num_samples, self._num_samples + num
        return [Frame(begin + i * FRAME_SAMPLES, chance) for i, chance in enumerate(found, 1)]

    def _probabilities(self, rows: Floats) -> list[float]:
        """The chance of speech in consecutive rows [n, 576]. Raises OSError without weights."""
        network = _network()
        found, gates = np.empty(len(rows), np.float32), np.empty(4 * WIDTH, np.float32)
        memory = self._state, network.out, gates, found
        kernel("voice activity")(_features(rows, network), network.recur, *memory)
        return found.tolist()

    def count(self, frame: Frame) -> None:
        """Take the next frame of the clip, which `push` or another VoiceActivity has judged."""
        if frame.probability < SPEECH:
            self._gap += 1
            if self._gap > MAX_GAP_FRAMES:
                self._run = 0
            return
        self._run += 1 + (self._gap if self._run else 0)
        self._gap = 0
        self.has_speech |= self._run * FRAME_MS >= MIN_RUN_MS
        self.last_speech_sample = frame.end_sample


class Network(NamedTuple):
    """Four convolutions, and what `judge_frames` of kernels/arithmetic.py takes."""

    layers: tuple[Matrix, ...]
    feed: Matrix
    recur: Floats
    out: Floats


def _features(rows: Floats, network: Network) -> Floats:
    """The input of each row to the four gates [n, 4 * WIDTH]."""

    def layer(inputs: Floats, index: int) -> Floats:
        return np.maximum(network.layers[index](inputs), 0)

    num = len(rows)
    spectra = np.abs(np.fft.rfft(rows[:, _SAMPLES] * hann(WINDOW)))  # [n, 4, 129]
    padded = np.zeros((num, 6, 129), np.float32)
    padded[:, 1:-1] = spectra
    heard = np.zeros((num, 5, WIDTH), np.float32)
    heard[:, 1:] = layer(padded[:, _NEAR].reshape(4 * num, -1), 0).reshape(num, 4, WIDTH)
    hidden = layer(heard[:, _NEAR[::2]].reshape(2 * num, -1), 1)
    # The parts of the last two kernels that would only meet padding are left out.
    return network.feed(layer(layer(hidden.reshape(num, -1), 2), 3))


@functools.cache
def _network() -> Network:
    """From kernel0 to kernel3 [inputs, outputs] with their biases, feed and recur [WIDTH, 4 *
    WIDTH] and gates [4 * WIDTH] (enter, stay, value, show), out [WIDTH] with out_bias."""
    with np.load(WEIGHTS) as held:
        weights = {name: held[name] for name in held.files}
    layers = (Matrix(weights[f"kernel{i}"], weights[f"bias{i}"]) for i in range(4))
    feed, recur = Matrix(weights["feed"], weights["gates"]), Matrix(weights["recur"])
    out = np.append(weights["out"], weights["out_bias"]).astype(np.float32)
    return Network(tuple(layers), feed, recur.panels, out)


# Unbroken speech that begins a turn: one frame may be a click or a tap. The padding covers it.
MIN_START_MS = 96
LATE_MS = MIN_START_MS + FRAME_MS  # a begin is known this much after it, at most
HYSTERESIS = 0.15  # as in silero's own iterator: speech goes on until threshold - hysteresis


class TurnDetector:
    """Turns in a stream of frames: a pure state machine; ms from the stream's first sample. rule:
    stages/events.py's TurnDetection."""

    def __init__(self, rule: Any) -> None:
        self._rule = rule
        self.restart(0)

    def restart(self, at_ms: int) -> None:
        """The turn in hand, if any, was ended by its caller; speech that goes on begins another."""
        self._is_speaking = False
        self._run_ms = 0  # unbroken speech before a turn begins
        self._speech_end_ms = 0
        self._turn_end_ms = at_ms

    def push(self, frame: Frame) -> tuple[int, int | None] | None:
        """Takes the next frame; returns what it decides, if anything. (at_ms, None): a turn begins,
        padding included, never before the end of the turn before. (at_ms, last_speech_ms): it
        ended, the silence included; the last speech in it ended at last_speech_ms."""
        rule, end_ms = self._rule, frame.end_sample * 1000 // SAMPLE_RATE_HZ
        if self._is_speaking:
            if frame.probability >= rule.threshold - HYSTERESIS:
                self._speech_end_ms = end_ms
            if end_ms - self._speech_end_ms < max(rule.silence_ms, 1):
                return None
            self._is_speaking = False
            self._turn_end_ms = self._speech_end_ms + rule.silence_ms
            return self._turn_end_ms, self._speech_end_ms
        self._run_ms = self._run_ms + FRAME_MS if frame.probability >= rule.threshold else 0
        if not self._run_ms or self._run_ms < MIN_START_MS:
            return None
        began_ms = end_ms - self._run_ms - rule.prefix_padding_ms
        self._is_speaking, self._run_ms, self._speech_end_ms = True, 0, end_ms
        return max(began_ms, self._turn_end_ms), None


RISING = 0.1  # a probability from which speech may begin
RUN_FRAMES = 5  # 160 ms: shorter stretches may be clicks, or the begin of a noise
# Silence that is heard again before the first speech, at least. Two places to begin lie further
# apart than a frame, so that noise seldom changes the place.
BEFORE_SAMPLES = 768
APART_SAMPLES = 2 * FRAME_SAMPLES
GRID_SAMPLES = STEP_FRAMES * HOP_SAMPLES  # a step of the count of syllables
KEPT_SAMPLES = 3 * SAMPLE_RATE_HZ  # before the speech, at most
# Sought as if they were silent, at the begin of a span: no noise there moves the first speech.
SILENT_SAMPLES = MARGIN_SAMPLES + LEAD_SAMPLES // 2


class TurnVoice(VoiceActivity):
    """Voice activity of one turn; what it returns, joined, does not depend on the cut. Holds
    twice `kept` samples and half a second. No speech begins in the first `silent` samples."""

    def __init__(self, kept: int = KEPT_SAMPLES, silent: int = SILENT_SAMPLES) -> None:
        super().__init__()
        # where the samples that `hear` returns begin in the turn; below 0: with added silence
        self.begin = 0
        self._kept = kept
        self._silent = silent  # samples that are left of these
        self._turn = Recent()
        self._first: int | None = None  # the turn's sample where speech begins, roughly
        self._rise = 0  # the turn's sample from which the probability is at least RISING
        self._is_placed = False

    def hear(self, samples: Floats, is_last: bool = False) -> tuple[Floats, list[Frame]]:
        """Take samples [n] float32. Returns samples to measure [k], and their frames. Both are
        empty until the begin is known. The first frame may begin before the first sample."""
        again, turn = samples, self._turn
        if not self._is_placed:
            turn.append(samples)
            if self._first is None:
                self._seek(samples)
            if self._first is None:
                kept = self._kept if is_last else 2 * self._kept + LANDMARK_SAMPLES
                turn.forget(turn.end - kept)
                self.begin = turn.begin
                return turn.take(turn.end) if is_last else NOTHING, []
            if not is_last and turn.end < self._first + LANDMARK_SAMPLES:
                return NOTHING, []
            again = self._place(self._first)
            samples = turn.between(self.begin, turn.end)
            self._turn, self._is_placed = Recent(), True
        return samples, [frame.later(-self.begin) for frame in self.push(again, is_last)]

    def _seek(self, samples: Floats) -> None:
        """Judge until somebody speaks."""
        num = min(self._silent, len(samples))
        self._silent -= num
        for frame in self._hear(np.concatenate([np.zeros(num, np.float32), samples[num:]])):
            self.count(frame)
            if frame.probability < RISING:
                self._rise = frame.end_sample
            if self._run >= RUN_FRAMES:
                begin = frame.end_sample - self._run * FRAME_SAMPLES
                self._first = max(min(self._rise, begin), begin - self._kept, 0)
                return

    def _place(self, first: int) -> Floats:
        """Begin before the speech; return the samples that are judged anew, from the speech on."""
        spoken, peak = self._turn.between(first, self._turn.end), self._turn.peak(first)
        at = peak - -(-(peak - first + BEFORE_SAMPLES) // APART_SAMPLES) * APART_SAMPLES
        self.restart(at)
        self._turn.forget(first - self._kept)
        self.begin = self._turn.begin - (self._turn.begin - peak) % GRID_SAMPLES
        # silence: no noise before the speech counts
        return np.concatenate([np.zeros(first - at, np.float32), spoken])
