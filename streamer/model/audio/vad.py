"""Samples at 16 kHz come in; frames of 32 ms with a probability of speech go out, and turns.

The network is silero-vad's (vad_network.py). Every way of cutting the samples gives the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.model.audio.vad_network import State, probabilities

FRAME_SAMPLES = 512
FRAME_MS = 32
CONTEXT_SAMPLES = 64  # the network sees the end of the frame before
MAX_FRAMES = 256  # per call of the network, 0.6 MB


@dataclass(frozen=True)
class Frame:
    """32 ms from `start_sample` on; probability 0..1 that someone speaks in it."""

    start_sample: int
    probability: float

    @property
    def end_sample(self) -> int:
        return self.start_sample + FRAME_SAMPLES


@dataclass(frozen=True)
class SpeechRule:
    """When a clip holds speech: one stretch of it is long enough. (A sum over the clip would grow
    with its length.)

    Chosen on 1,040 clips of 1.5-30 s without speech (silence, coloured noise, hum, tones, chirps,
    five synthetic instruments, clicks, typing, sirens) and 1,944 of espeak-ng (two languages, 6
    voices, 3 rates, 3 pitches, -38..-10 dBFS, also the first 1.5 s only, also with white and pink
    noise at 10 dB SNR), 2026-11. Wrong were, of those without / with speech: 1 / 11 (0.6 %) by this
    rule; 5 / 9 with 192 ms; 1 / 14 without the bridge; 1 / 9 at threshold .4; 1 / 19 at .6; 8 / 9
    by a sum of 250 ms. The 1 is a breathy bass flute, 10 of the 11 a squeaky voice at -38 dBFS.
    Below -45 dBFS the network begins to miss speech; espeak-ng's whisper it hears 1 time in 3.
    """

    threshold: float = 0.5  # probability from which a frame counts as speech
    min_run_ms: int = 256  # how long one stretch must be
    max_gap_frames: int = 1  # frames below the threshold that do not end a stretch


class VoiceActivity:
    """Voice activity of one clip; the frames do not depend on how it was cut. Holds under 32 ms of
    samples.

    A rest of less than a frame is not judged before `finish`.
    """

    def __init__(self, rule: SpeechRule | None = None) -> None:
        self.rule = rule or SpeechRule()
        # where the last frame at or above the threshold ends
        self.last_speech_sample: int | None = None
        self.has_speech = False  # by the rule; once true it stays true
        self._num_samples = 0  # judged
        # frames of the stretch that goes on, and since its last one above threshold
        self._run = self._gap = 0
        # context, then what makes no frame yet
        self._rest = np.zeros(CONTEXT_SAMPLES, np.float32)
        self._state = State()

    def push(self, samples: NDArray[np.float32]) -> list[Frame]:
        """Takes samples [n] float32; returns the frames that are now complete."""
        frames = self._hear(samples)
        for frame in frames:
            self.count(frame)
        return frames

    def finish(self, samples: NDArray[np.float32]) -> list[Frame]:
        """Takes the clip's last samples [n] float32; returns the frames to its end. A rest of less
        than a frame is judged with zeros after it, and counts for nothing."""
        missing = (CONTEXT_SAMPLES - len(self._rest) - len(samples)) % FRAME_SAMPLES
        frames = self._hear(np.concatenate([samples, np.zeros(missing, np.float32)]))
        for frame in frames[:-1] if missing else frames:
            self.count(frame)
        return frames

    def _hear(self, samples: NDArray[np.float32]) -> list[Frame]:
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
        rows = np.lib.stride_tricks.sliding_window_view(held, length)[::FRAME_SAMPLES][:count]
        frames = [
            Frame(self._num_samples + i * FRAME_SAMPLES, float(probability))
            for i, probability in enumerate(probabilities(rows, self._state))
        ]
        self._num_samples += len(frames) * FRAME_SAMPLES
        return frames

    def count(self, frame: Frame) -> None:
        """Take the next frame of the clip, judged here or by another: has anybody spoken?"""
        if frame.probability < self.rule.threshold:
            self._gap += 1
            if self._gap > self.rule.max_gap_frames:
                self._run = 0
            return
        self._run += 1 + (self._gap if self._run else 0)
        self._gap = 0
        self.has_speech |= self._run * FRAME_MS >= self.rule.min_run_ms
        self.last_speech_sample = frame.end_sample


@dataclass(frozen=True)
class TurnRule:
    """When a live turn begins and ends, by default as OpenAI's server_vad."""

    threshold: float = 0.5
    prefix_padding_ms: int = 300  # audio before the first speech that belongs to the turn
    silence_ms: int = 500  # silence that ends the turn
    # Ours: unbroken speech of this length begins a turn. One frame does so for clicks and taps too;
    # the padding covers it.
    min_start_ms: int = 96
    # as in silero's own iterator: speech goes on until threshold - hysteresis
    hysteresis: float = 0.15


@dataclass(frozen=True)
class SpeechBegan:
    """A turn begins, padding included, never before 0 or the end of the turn before."""

    at_ms: int


@dataclass(frozen=True)
class SpeechEnded:
    """A turn ended, the silence included; the last speech in it ended at last_speech_ms."""

    at_ms: int
    last_speech_ms: int


class TurnDetector:
    """Turns in a stream of frames: a pure state machine; ms from the stream's first sample."""

    def __init__(self, rule: TurnRule | None = None) -> None:
        self.rule = rule or TurnRule()
        self.is_speaking = False
        self._run_ms = 0  # unbroken speech before a turn begins
        self._speech_end_ms = 0
        self._silent_ms = 0  # since then
        self._turn_end_ms = 0

    def restart(self, at_ms: int) -> None:
        """Someone else ended the turn, if there is one; speech that goes on begins another."""
        self.is_speaking = False
        self._run_ms = 0
        self._turn_end_ms = at_ms

    def push(self, frame: Frame) -> SpeechBegan | SpeechEnded | None:
        """Takes the next frame; returns what it decides, if anything."""
        end_ms = frame.start_sample * 1000 // SAMPLE_RATE_HZ + FRAME_MS
        return self._speaking(frame, end_ms) if self.is_speaking else self._waiting(frame, end_ms)

    def _waiting(self, frame: Frame, end_ms: int) -> SpeechBegan | None:
        self._run_ms = self._run_ms + FRAME_MS if frame.probability >= self.rule.threshold else 0
        if self._run_ms == 0 or self._run_ms < self.rule.min_start_ms:
            return None
        began_ms = end_ms - self._run_ms - self.rule.prefix_padding_ms
        self.is_speaking = True
        self._run_ms = 0
        self._speech_end_ms = end_ms
        self._silent_ms = 0
        return SpeechBegan(max(began_ms, self._turn_end_ms))

    def _speaking(self, frame: Frame, end_ms: int) -> SpeechEnded | None:
        if frame.probability >= self.rule.threshold - self.rule.hysteresis:
            self._speech_end_ms = end_ms
        self._silent_ms = end_ms - self._speech_end_ms
        if self._silent_ms < max(self.rule.silence_ms, 1):
            return None
        self.is_speaking = False
        self._turn_end_ms = self._speech_end_ms + self.rule.silence_ms
        return SpeechEnded(self._turn_end_ms, self._speech_end_ms)
