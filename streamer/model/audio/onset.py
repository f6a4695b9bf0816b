"""Voice activity of a turn, heard anew from its first speech on.

Noise before the speech leaves a state in the network, which then hears the first speech a frame
earlier or later, and noise decides where frames begin. So the network forgets all once there is
speech, and hears it again, in frames whose place follows from the loudest sample near its begin.
pipelines/embedded/REPORT.md has the effect on levels of people.
"""

from __future__ import annotations

import numpy as np

from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.core.audio.trim import LANDMARK_SAMPLES
from streamer.core.measures.density import STEP_FRAMES
from streamer.core.measures.frames import HOP_SAMPLES
from streamer.model.audio.vad import FRAME_SAMPLES, Floats, Frame, VoiceActivity, led

# Where it is sure that somebody speaks, the speech began when the probability rose to this. Begun
# anew later, the network would miss a soft whisper.
RISING = 0.1
RUN_FRAMES = 5  # 160 ms: shorter stretches may be clicks, or the begin of a noise
# Heard again before the first speech, at least. With more of it, more levels of people change with
# noise. Two places to begin lie further apart than a frame, so that noise seldom changes the place.
BEFORE_SAMPLES = 768
APART_SAMPLES = 2 * FRAME_SAMPLES
GRID_SAMPLES = STEP_FRAMES * HOP_SAMPLES  # a step of the count of syllables
KEPT_SAMPLES = 3 * SAMPLE_RATE_HZ  # before the speech, at most


class TurnVoice(VoiceActivity):
    """Voice activity of one turn; what it returns, joined, does not depend on the cut. Holds
    twice `kept` samples and half a second."""

    def __init__(self, kept: int = KEPT_SAMPLES) -> None:
        super().__init__()
        # the turn's sample where those begin that `hear` returns; below 0: silence stands for it
        self.begin = 0
        self._kept = kept
        self._held = np.zeros(0, np.float32)
        self._first: int | None = None  # the turn's sample where speech begins, roughly
        self._rise = 0  # the turn's sample from which the probability is at least RISING
        self._is_placed = False

    def hear(self, samples: Floats, is_last: bool = False) -> tuple[Floats, list[Frame]]:
        """Take samples [n] float32. Returns those to measure [k], none until it is known where they
        begin, and their frames; the first one may begin before them."""
        if self._is_placed:
            return samples, self._frames(samples, is_last)
        self._held = np.concatenate([self._held, samples])
        if self._first is None:
            self._seek(samples)
        num = self.begin + len(self._held)
        if is_last or (self._first is not None and num >= self._first + LANDMARK_SAMPLES):
            return self._place(is_last)
        if self._first is None:
            self._drop(len(self._held) - 2 * self._kept - LANDMARK_SAMPLES)
        return samples[:0], []

    def _seek(self, samples: Floats) -> None:
        """Judge until somebody speaks."""
        for frame in self._hear(samples):
            self.count(frame)
            if frame.probability < RISING:
                self._rise = frame.end_sample
            if self._run >= RUN_FRAMES:
                begin = frame.end_sample - self._run * FRAME_SAMPLES
                self._first = max(min(self._rise, begin), begin - self._kept, 0)
                return

    def _place(self, is_last: bool) -> tuple[Floats, list[Frame]]:
        """Begin with what is held, and judge it anew if somebody speaks."""
        self._is_placed = True
        if self._first is None:
            self._drop(len(self._held) - self._kept)
            return self._held, []
        begin = self._first - self.begin
        peak = self._first + int(np.argmax(np.abs(self._held[begin : begin + LANDMARK_SAMPLES])))
        earliest = max(0, self._first - self._kept)
        self._drop(earliest - self.begin)
        at = peak - -(-(peak - self._first + BEFORE_SAMPLES) // APART_SAMPLES) * APART_SAMPLES
        self.restart(at)
        lead = np.zeros(max(0, -at), np.float32)
        again = np.concatenate([lead, self._held[max(0, at) - self.begin :]])
        silence = np.zeros((self.begin - peak) % GRID_SAMPLES, np.float32)
        self.begin -= len(silence)
        return np.concatenate([silence, self._held]), led(self._frames(again, is_last))

    def _frames(self, samples: Floats, is_last: bool) -> list[Frame]:
        found = self.finish(samples) if is_last else self.push(samples)
        return [Frame(frame.start_sample - self.begin, frame.probability) for frame in found]

    def _drop(self, num: int) -> None:
        self._held = self._held[max(0, num) :]
        self.begin += max(0, num)
