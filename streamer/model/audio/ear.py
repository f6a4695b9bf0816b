"""The measures of a turn, as it is heard."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from streamer.core.audio.chunker import Chunker
from streamer.core.audio.pcm import SAMPLE_RATE_HZ, OffsetFilter, on_grid
from streamer.core.audio.trim import Span, Trim
from streamer.core.measures.frames import FRAMES_PER_S, HOP_SAMPLES
from streamer.core.measures.speech_measures import Measures, SpeechMeasures
from streamer.core.measures.track import EVERY_SAMPLES, Frames, measure_so_far
from streamer.core.timeline import Curves
from streamer.model.audio.mel import MelFrames
from streamer.model.audio.pitch import PitchTrack, turn_track
from streamer.model.audio.vad import Frame, TurnVoice

Floats = NDArray[np.float32]
READ_SAMPLES = SAMPLE_RATE_HZ // 10  # samples that came this long before a turn's end are heard
AT_ONCE = 10 * SAMPLE_RATE_HZ  # a backlog of a minute in one piece would take 100 MB


class SoundTrack:
    """Samples to the frames of a TurnTrack: log-mel, F0 and clipping, each computed once."""

    def __init__(self) -> None:
        self.track = turn_track()
        self._mel = MelFrames()
        self._pitch = PitchTrack()

    def add(self, samples: Floats, frames: Sequence[Frame], is_last: bool = False) -> Floats:
        """Take samples [n], and the next frames of voice activity.

        Returns the frames of log10 mel power that are new [k, 128]. is_last: the sound ends here.
        """
        if frames:
            probability = np.array([frame.probability for frame in frames], np.float32)
            self.track.add_speech(probability, frames[0].start_sample)
        self.track.add_samples(samples)
        self.track.add_pitch(self._pitch.finish(samples) if is_last else self._pitch.push(samples))
        raw = self._mel.finish(samples) if is_last else self._mel.push(samples)
        num_own = -(-self.track.num_samples // HOP_SAMPLES)
        raw = raw[: num_own - self.track.num_heard]
        if len(raw):
            self.track.add_mel(raw)
        if is_last:
            self.track.finish()
        return raw


class TurnMeasurer:
    """Measures of one turn, so far and whole.

    `push` only takes samples, from one thread. `work` and `finish` compute, on any thread. Their
    results depend on the samples alone, not on their cut or on when `work` was called. At most the
    whole turn waits to be heard.
    """

    def __init__(self, turn: int = 0) -> None:
        self.is_over = False  # the turn's last sample is pushed
        self.num_pushed = 0
        self.num_taken = 0  # the turn's samples so far
        self._begin = 0  # the turn's sample where the pushed ones begin
        self._turn = turn
        self._num_told = 0
        self._sound = SoundTrack()
        self._heard_begin = 0  # that of the samples that were heard; `push` may move it meanwhile
        self._waiting: list[tuple[Floats, Sequence[Frame], int]] = []
        self._hearing = threading.Lock()
        self._found: SpeechMeasures | None = None  # of the whole turn

    def push(self, samples: Floats, frames: Sequence[Frame]) -> None:
        """Take samples [n] float32 at 16 kHz, and the frames that voice activity made of the turn
        since the last push. They may end before the samples do."""
        self._waiting.append((samples, frames, self._begin))
        self.num_pushed += len(samples)

    def place(self, begin: int, num_taken: int) -> None:
        """The turn has `num_taken` samples so far; the first pushed one is its sample `begin`."""
        self._begin, self.num_taken = begin, num_taken

    def is_due(self, is_told: bool) -> bool:
        """Whether `work` would do anything. It hears at least 100 ms at once, which costs less."""
        is_much = self.num_pushed - self._sound.track.num_samples >= READ_SAMPLES
        return (is_much or self._is_news or not is_told) and not self.is_over

    def work(self, is_told: bool = False) -> Measures | None:
        """Hear the samples that wait, if it is due.

        is_told: return the measures so far if 200 ms have come since the last time.
        """
        if not self.is_due(is_told):
            return None
        num = self.num_taken // EVERY_SAMPLES
        is_news = is_told and self._is_news
        with self._hearing:
            self._hear()
            if not is_news or self.is_over:
                return None
            self._num_told = num
            begin, track = self._heard_begin, self._sound.track
            outside = max(0, self.num_taken - begin - track.num_samples)
            return measure_so_far(
                self._turn, track.frames(), _num_frames(begin), outside // HOP_SAMPLES
            )

    def so_far(self) -> SpeechMeasures:
        """The measures of the samples that were pushed up to now."""
        with self._hearing:
            self._hear()
            return self._measures()

    def finish(self, has_speech: bool = True) -> SpeechMeasures:
        """The measures of the whole turn, when all its samples were pushed.

        has_speech: the judgement of voice activity. If it is false, only the sound is measured.
        """
        found = self._complete()
        if has_speech:
            return found
        return SpeechMeasures(audio_s=found.audio_s, clipped_share=found.clipped_share)

    def frames(self) -> Frames:
        """All frames, when all samples were pushed."""
        self._complete()
        return self._sound.track.frames()

    def curves(self) -> Curves:
        """F0, level, speech and syllables along the whole turn, when all its samples were
        pushed."""
        found = Curves.of(self.frames())
        return found.placed(_num_frames(self._begin), _num_frames(self.num_taken))

    @property
    def _is_news(self) -> bool:
        return self.num_taken // EVERY_SAMPLES > self._num_told

    def _complete(self) -> SpeechMeasures:
        with self._hearing:
            if self._found is None:
                self._hear(is_last=True)
                self._found = self._measures()
            return self._found

    def _measures(self) -> SpeechMeasures:
        found = self._sound.track.measures()
        return replace(found, audio_s=_num_frames(self.num_taken) / FRAMES_PER_S)

    def _hear(self, is_last: bool = False) -> None:
        num = len(self._waiting)  # `push` may add more meanwhile
        waiting = self._waiting[:num]
        del self._waiting[:num]
        samples = joined(piece for piece, *_ in waiting)
        frames = [frame for _, piece, _ in waiting for frame in piece]
        self._heard_begin = waiting[-1][2] if waiting else self._heard_begin
        for at in range(0, max(1, len(samples)), AT_ONCE):
            is_end = at + AT_ONCE >= len(samples)
            self._sound.add(samples[at : at + AT_ONCE], frames, is_last and is_end)
            frames = []


def measure(samples: Floats) -> SpeechMeasures:
    """The measures of a whole turn [n] float32 at 16 kHz."""
    voice, measurer, trim = TurnVoice(), TurnMeasurer(), Trim()
    trim.push(samples)
    trim.finish()
    span = Span(trim)
    heard = np.concatenate([span.push(samples), span.finish()])
    measurer.push(*voice.hear(heard, is_last=True))
    measurer.place(span.begin + voice.begin, len(samples))
    return measurer.finish(voice.has_speech)


def _num_frames(samples: int) -> int:
    """The number of frames of 10 ms that begin within `samples` samples."""
    return -(-samples // HOP_SAMPLES)


def joined(pieces: Iterable[Floats]) -> Floats:
    """The samples of some pieces [n]."""
    return np.concatenate([np.zeros(0, np.float32), *pieces])


def syllable_rate(samples: NDArray[np.float32], rate: int) -> float | None:
    """Syllables per second of speech, without its pauses of at least 180 ms.

    samples: [n] float32 of one channel, full scale 1.0; rate: in Hz. Returns None where nobody
    speaks. Raises ValueError for a rate outside 1..384 kHz, and BadAudio (a ValueError) for samples
    that are no audio. docs/measures.md says how far the rate is from that of the text.
    """
    chunker = Chunker(rate)
    sound = np.concatenate([chunker.push(samples), chunker.finish()])
    return measure(OffsetFilter().push(on_grid(sound))).rate_syllables_per_s
