"""Where speech is in one turn. In: its samples, as they come. Out: whether there is any, where it
ended last, and the probability of each 32 ms.

The network hears a turn once for all who ask: its ear (frontend.py), and its measures where they
are asked for (measurer.py).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from streamer.model.audio.vad import FRAME_SAMPLES, Frame, VoiceActivity

Floats = NDArray[np.float32]
# The network costs 1.5 times as much in calls of 6 frames, and 3 times in calls of one (vad.py).
JUDGED_SAMPLES = 16 * FRAME_SAMPLES


def taken(waiting: list[Floats]) -> Floats:
    """Takes the samples out of a list that another thread may add to meanwhile [n]."""
    num = len(waiting)
    samples = np.concatenate([np.zeros(0, np.float32), *waiting[:num]])
    del waiting[:num]
    return samples


class TurnVoice:
    """Samples wait until they are worth a call of the network, or until somebody asks. They come
    from one thread; any may ask."""

    def __init__(self, is_read: bool = False) -> None:
        """is_read: probabilities are held until `read` or `finish`."""
        self._is_read = is_read
        self._voice = VoiceActivity()
        self._waiting: list[Floats] = []
        self._unread: list[float] = []
        self._judging = threading.Lock()

    def hold(self, samples: Floats) -> None:
        """Take samples [n]; nobody waits for the network."""
        self._waiting.append(samples)

    def push(self, samples: Floats) -> None:
        """Take samples [n], and judge what waits where it is worth a call."""
        self.hold(samples)
        if sum(map(len, self._waiting)) >= JUDGED_SAMPLES:
            self._judge()

    def count(self, frames: Sequence[Frame]) -> None:
        """Take what is judged already, `start_sample` of this turn, in place of samples."""
        for frame in frames:
            self._voice.count(frame)

    def read(self) -> Floats:
        """Of the frames that are complete now, those not read yet [n]."""
        self._judge()
        return self._read()

    def finish(self) -> Floats:
        """When all samples came: `read`, to the turn's end. A rest of under 32 ms is judged with
        silence behind it, and counts for nothing else."""
        with self._judging:
            self._keep(self._voice.finish(taken(self._waiting)))
        return self._read()

    @property
    def has_speech(self) -> bool:
        if not self._voice.has_speech:
            self._judge()
        return self._voice.has_speech

    def last_speech_sample(self) -> int | None:
        """Where speech ended last, in samples of this turn; None where there is none."""
        self._judge()
        return self._voice.last_speech_sample

    def _judge(self) -> None:
        with self._judging:
            if self._waiting:
                self._keep(self._voice.push(taken(self._waiting)))

    def _keep(self, frames: Sequence[Frame]) -> None:
        if self._is_read:
            self._unread += [frame.probability for frame in frames]

    def _read(self) -> Floats:
        with self._judging:
            found = np.array(self._unread, np.float32)
            self._unread = []
        return found
