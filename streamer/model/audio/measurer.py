"""One turn's samples come in; its measures come out, so far or of the whole turn.

`push` only takes samples, so that nobody waits for it. `work` and `finish` compute, on a thread of
their own. What comes out depends on the samples alone: not on how they were cut, and not on when
somebody worked. What it costs: docs/measures.md.
"""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.core.measures.curves import Curves
from streamer.core.measures.frames import HOP_SAMPLES as FRAME_SAMPLES
from streamer.core.measures.frames import SPEECH_SAMPLES
from streamer.core.measures.live_measures import EVERY_SAMPLES, Measures, measure_so_far
from streamer.core.measures.speech_measures import SpeechMeasures
from streamer.core.measures.turn_track import TurnTrack
from streamer.model.audio.mel import StreamingLogMel
from streamer.model.audio.pitch_track import HOP_SAMPLES, PitchTrack
from streamer.model.audio.vad import VoiceActivity

Floats = NDArray[np.float32]
Flags = NDArray[np.bool_]
AT_ONCE = 10 * SAMPLE_RATE_HZ  # a recording's backlog of a minute at once would take 100 MB


class TurnMeasurer:
    """Of one turn; `push` from one thread, the rest from any. What waits is the turn at most."""

    def __init__(self, turn: int = 0) -> None:
        self.is_over = False  # the turn's last sample is pushed
        self.num_pushed = 0
        self._turn = turn
        self._num_told = 0
        self._mel = StreamingLogMel(self._add_mel)
        self._voice = VoiceActivity()
        self._pitch = PitchTrack()
        self._track = TurnTrack(HOP_SAMPLES)
        self._waiting: list[Floats] = []
        self._mel_left: int | None = None  # frames that are still the turn's own, at its end
        self._working = threading.Lock()
        self._found: SpeechMeasures | None = None

    def push(self, samples: Floats) -> None:
        """Take samples [n] float32 at 16 kHz."""
        self._waiting.append(samples)
        self.num_pushed += len(samples)

    def work(self, is_told: bool = False) -> Measures | None:
        """Hear what waits. is_told: where 200 ms have come since the last time, and return what is
        known then. To hear less at once costs more, and nobody would be told: but F0's blocks are
        heard as soon as they can be, so that none is left for the turn's end."""
        with self._working:
            num = self.num_pushed // EVERY_SAMPLES
            is_due = num > self._num_told
            if is_told and not is_due and self.num_pushed < self._pitch.due:
                return None
            self._hear()
            if not (is_told and is_due) or self.is_over:
                return None
            self._num_told = num
            return measure_so_far(self._turn, self._track)

    def finish(self) -> SpeechMeasures:
        """Of the whole turn, when all its samples were pushed."""
        with self._working:
            if self._found is None:
                self._hear()
                self._end()
                self._found = self._track.measures()
            return self._found

    def curves(self) -> Curves:
        """How F0, level and speech go along the whole turn, when all its samples were pushed."""
        self.finish()
        return Curves.of(self._track.frames())

    def _hear(self) -> None:
        num = len(self._waiting)  # others may come meanwhile
        if not num:
            return
        samples = np.concatenate(self._waiting[:num])
        del self._waiting[:num]
        for at in range(0, len(samples), AT_ONCE):
            piece = samples[at : at + AT_ONCE]
            self._track.add_samples(piece)
            self._mel.push(piece)
            self._track.add_pitch(self._pitch.push(piece, self._judge(piece)))

    def _end(self) -> None:
        num = self._track.num_samples
        self._mel_left = -(-num // FRAME_SAMPLES) - self._track.num_heard
        self._mel.finish()
        speech = self._judge(np.zeros(-num % SPEECH_SAMPLES, np.float32))
        self._track.add_pitch(self._pitch.finish(speech))

    def _judge(self, samples: Floats) -> Flags:
        frames = self._voice.push(samples)
        return self._track.add_speech(np.array([frame.probability for frame in frames], np.float32))

    def _add_mel(self, blocks: Floats) -> None:
        """[n, 128, 20]"""
        raw = blocks.transpose(0, 2, 1).reshape(-1, blocks.shape[1])
        self._track.add_mel(raw if self._mel_left is None else raw[: self._mel_left])
