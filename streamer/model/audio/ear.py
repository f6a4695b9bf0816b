"""One turn's samples come in; its measures come out, so far or of the whole turn.

`push` only takes samples, so that nobody waits for it. `work` and `finish` compute, on a thread of
their own. What comes out depends on the samples alone: not on how they were cut, and not on when
somebody worked. What it costs: docs/measures.md.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from streamer.core.audio.chunker import Chunker
from streamer.core.audio.pcm import SAMPLE_RATE_HZ, Samples
from streamer.core.audio.trim import Trim
from streamer.core.measures.curves import Curves
from streamer.core.measures.density import Density
from streamer.core.measures.frames import (
    FRAMES_PER_S,
    HOP_SAMPLES,
    MIN_FRAMES,
    SPEECH_SAMPLES,
    on_mel_frames,
    pause_frames,
    span_of,
    speaking,
)
from streamer.core.measures.speech_measures import Measures, SpeechMeasures
from streamer.core.measures.track import EVERY_SAMPLES, measure_so_far
from streamer.model.audio.mel import MelFrames, MelWindow, StreamingLogMel
from streamer.model.audio.pitch import PitchTrack, turn_track
from streamer.model.audio.vad import Frame, TurnVoice, VoiceActivity, taken

Floats = NDArray[np.float32]
READ_SAMPLES = SAMPLE_RATE_HZ // 10  # what came so long before a turn's end is heard by then
AT_ONCE = 10 * SAMPLE_RATE_HZ  # a recording's backlog of a minute at once would take 100 MB


class TurnMeasurer:
    """Of one turn; `push` from one thread, the rest from any. What waits is the turn at most."""

    def __init__(self, turn: int = 0) -> None:
        self.is_over = False  # the turn's last sample is pushed
        self.num_pushed = 0
        self._turn = turn
        self._num_told = 0
        self._mel = MelFrames()
        self.voice = TurnVoice(is_read=True)  # for the turn's ear, too, where it hears the same
        self._pitch = PitchTrack()
        self._track = turn_track()
        self._waiting: list[Floats] = []
        self._hearing = threading.Lock()
        self._found: SpeechMeasures | None = None

    def push(self, samples: Floats) -> None:
        """Take samples [n] float32 at 16 kHz."""
        self.voice.hold(samples)  # before the others, so that it is never behind them
        self._waiting.append(samples)
        self.num_pushed += len(samples)

    def is_due(self, is_told: bool) -> bool:
        """Whether `work` would do anything. Of a live turn little is left to hear when it ends;
        to hear less than 100 ms at once would cost more."""
        is_much = self.num_pushed - self._track.num_samples >= READ_SAMPLES
        return (is_much or self._is_news or not is_told) and not self.is_over

    def work(self, is_told: bool = False) -> Measures | None:
        """Hear what waits, if it is due. is_told: return what is known, where 200 ms have come
        since the last time."""
        if not self.is_due(is_told):
            return None
        num = self.num_pushed // EVERY_SAMPLES
        is_news = is_told and self._is_news
        with self._hearing:
            self._hear()
            if not is_news or self.is_over:
                return None
            self._num_told = num
            return measure_so_far(self._turn, self._track)

    @property
    def _is_news(self) -> bool:
        return self.num_pushed // EVERY_SAMPLES > self._num_told

    def finish(self) -> SpeechMeasures:
        """Of the whole turn, when all its samples were pushed."""
        with self._hearing:
            if self._found is None:
                self._add(taken(self._waiting), self.voice.finish(), is_last=True)
                self._found = self._track.measures()
            return self._found

    def curves(self) -> Curves:
        """How F0, level and speech go along the whole turn, when all its samples were pushed."""
        self.finish()
        return Curves.of(self._track.frames())

    def _hear(self) -> None:
        if self._waiting:
            self._add(taken(self._waiting), self.voice.read())

    def _add(self, samples: Floats, probability: Floats, is_last: bool = False) -> None:
        """probability: of speech, at least as far as the samples go."""
        self._track.add_speech(probability)
        for at in range(0, max(1, len(samples)), AT_ONCE):
            piece = samples[at : at + AT_ONCE]
            self._track.add_samples(piece)
            is_end = is_last and at + AT_ONCE >= len(samples)
            rows = self._pitch.finish(piece) if is_end else self._pitch.push(piece)
            self._track.add_pitch(rows)
            raw = self._mel.finish(piece) if is_end else self._mel.push(piece)
            num_own = -(-self._track.num_samples // HOP_SAMPLES)
            if len(raw):
                self._track.add_mel(raw[: num_own - self._track.num_heard])


class Ear:
    """Log-mel and voice activity of one turn; its state is at most two windows.

    num_samples: the turn's own; voice activity counts in them. The log-mel is of what lies between
    its first and its last sound (core/audio/trim.py).
    """

    def __init__(self, voice: TurnVoice | None = None) -> None:
        """voice: hears the turn already, for its measures."""
        self._mel = StreamingLogMel()
        self._trim = Trim()
        self.voice = voice or TurnVoice()
        self.num_samples = 0

    @property
    def num_heard(self) -> int:
        """Samples in the log-mel so far."""
        return self._mel.num_samples

    @property
    def maximum(self) -> float:
        """The running maximum of the log-mel, after `finish` the clip's own."""
        return self._mel.maximum

    def push(
        self, samples: NDArray[np.float32], frames: Sequence[Frame] | None = None
    ) -> tuple[list[MelWindow], Samples]:
        """Take samples [n]; return the windows that are complete now, and the samples that are
        heard now. frames: what voice activity made of the turn so far, where it has heard these
        samples already."""
        self.num_samples += len(samples)
        if frames is None:
            self.voice.push(samples)
        else:
            self.voice.count(frames)
        heard = self._trim.push(samples)
        return self._mel.push(heard), heard

    def provisional(self) -> MelWindow | None:
        """The last window as if the turn ended now; changes nothing."""
        return self._mel.provisional()

    def finish(self) -> tuple[list[MelWindow], Samples]:
        """End the turn; return what is left of it: at most one window, and the samples that only
        its end lets be heard."""
        heard = self._trim.finish()
        return [*self._mel.push(heard), *self._mel.finish()], heard


def syllable_rate(samples: NDArray[np.float32], rate: int) -> float | None:
    """Syllables per second of speech, without its pauses of at least 180 ms.

    samples: [n] float32 of one channel, full scale 1.0; rate: in Hz. Returns None for less than
    0.2 s of speech. Raises ValueError for a rate outside 1..384 kHz, and BadAudio (a ValueError)
    for samples that are no audio. How far the rate is from the text's: docs/measures.md.
    """
    chunker = Chunker(rate)
    sound = np.concatenate([chunker.push(samples), chunker.finish()])
    whole = len(sound) // SPEECH_SAMPLES * SPEECH_SAMPLES
    heard = VoiceActivity().push(sound[:whole])
    probabilities = np.array([frame.probability for frame in heard], np.float32)
    mel = MelFrames()
    raw = np.concatenate([mel.push(sound), mel.finish(np.zeros(0, np.float32))])
    num = whole // HOP_SAMPLES
    speech = on_mel_frames(speaking(probabilities), num)
    if speech.sum() < MIN_FRAMES:
        return None
    counted = Density()
    counted.add(raw[:num])
    first, end = span_of(speech)
    spoken = end - first - pause_frames(~speech[first:end]).sum()
    return float((counted.so_far() * speech).sum()) * FRAMES_PER_S / float(spoken)
