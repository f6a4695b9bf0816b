"""The measures of a turn, as it is heard."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from streamer.core.audio.chunker import Chunker
from streamer.core.audio.pcm import SAMPLE_RATE_HZ, OffsetFilter, on_grid
from streamer.core.audio.trim import Trim
from streamer.core.measures.density import STEP_FRAMES, Density
from streamer.core.measures.frames import (
    BANDS_HZ,
    FRAMES_PER_S,
    HOP_SAMPLES,
    NUM_MELS,
    Frames,
    Growing,
    frame_powers,
    speaking,
)
from streamer.core.measures.speech_measures import FULL_SCALE, Measures, SpeechMeasures
from streamer.core.timeline import Curves
from streamer.model.audio.mel import MelFrames
from streamer.model.audio.pitch import NUM_COLUMNS, PitchTrack, f0_of
from streamer.model.audio.vad import FRAME_SAMPLES, Frame, TurnVoice

Floats = NDArray[np.float32]
EVERY_SAMPLES = SAMPLE_RATE_HZ // 5  # between two measurements of an open turn
LAST_S = (2, 7, 20)
READ_SAMPLES = SAMPLE_RATE_HZ // 10  # heard at once, at least: smaller pieces cost twice as much
AT_ONCE = 10 * SAMPLE_RATE_HZ  # a backlog of a minute in one piece would take 100 MB
# The count of syllables hears this much before the first speech, as in its training: noise before
# that, loud or not, would move the means that each band is compared with.
ONSET_FRAMES = 15


class SoundTrack:
    """Samples to frames of 10 ms. Each is worked out once, but for F0: which of a frame's
    candidates it is depends on the other frames."""

    def __init__(self) -> None:
        self._mel, self._pitch, self._density = MelFrames(), PitchTrack(), Density()
        self._powers = Growing(len(BANDS_HZ))
        self._candidates = Growing(NUM_COLUMNS)  # of F0
        self._clipped = Growing()  # samples at full scale
        self._speech = Growing(dtype=bool)
        self._is_on = False  # whether somebody speaks in the last frame of voice activity
        self._rest = np.zeros(0, np.float32)  # whether samples of no whole frame are at full scale
        self._early: Floats | None = np.zeros((0, NUM_MELS), np.float32)  # of no speech yet
        self._num_early = 0  # frames before those
        self._num_forgotten = 0
        self.num_samples = 0

    def add(self, samples: Floats, frames: Sequence[Frame], is_last: bool = False) -> Floats:
        """Take samples [n] float32, full scale 1.0, and the next frames of voice activity.

        Returns the frames of log10 mel power that are new [k, 128]. is_last: the sound ends here.
        Frames that voice activity has not judged by then are as the last one.
        """
        self.num_samples += len(samples)
        self._add_speech(frames)
        held = np.concatenate([self._rest, np.abs(samples) >= FULL_SCALE], dtype=np.float32)
        whole = len(held) // HOP_SAMPLES * HOP_SAMPLES
        self._clipped.append(held[:whole].reshape(-1, HOP_SAMPLES).sum(1))
        self._rest = held[whole:]
        self._candidates.append(self._pitch.push(samples, is_last))
        raw = self._mel.push(samples, is_last)
        if is_last:
            raw = raw[: _num_frames(self.num_samples) - self._num_forgotten - len(self._powers)]
            missing = len(self._powers) + len(raw) - len(self._speech)
            self._speech.append(np.full(max(0, missing), self._is_on))
        self._powers.append(np.stack(frame_powers(raw, *BANDS_HZ), axis=1))
        self._count(raw)
        return raw

    @property
    def num_frames(self) -> int:
        """Frames of which level and speech are known."""
        return min(len(self._powers), len(self._speech))

    @property
    def num_pitched(self) -> int:
        """Frames of which F0 is known, too."""
        return min(self.num_frames, len(self._candidates))

    def forget(self, num: int) -> None:
        """Forget the oldest `num` frames, of which everything is known, with 0.75 s after them:
        frames are counted from there."""
        for held in (self._powers, self._candidates, self._clipped, self._speech, self._density):
            held.drop(num)
        self._num_forgotten += num

    def frames(self) -> Frames:
        """All up to the last one of which level and speech are known."""
        end, pitched = self.num_frames, self.num_pitched
        speech = self._speech.values[:end]
        f0, density = np.zeros((2, end), np.float32)
        f0[:pitched] = f0_of(self._candidates.values[:pitched], speech[:pitched])
        counted = self._density.so_far()[:end]
        density[: len(counted)] = counted
        power, low, high = np.ascontiguousarray(self._powers.values[:end].T)
        return Frames(power, low, high, f0, speech, self._clipped.values[:end], density)

    def _add_speech(self, frames: Sequence[Frame]) -> None:
        """A frame of 10 ms is speech if it begins in a frame of voice activity that is speech. The
        first of `frames` begins at the track's own first sample, or before it."""
        if not frames:
            return
        probability = np.array([frame.probability for frame in frames], np.float32)
        flags = np.append(self._is_on, speaking(probability, self._is_on))
        begin = frames[0].start_sample - FRAME_SAMPLES
        first = self._num_forgotten + len(self._speech)
        begins = np.arange(first, frames[-1].end_sample // HOP_SAMPLES) * HOP_SAMPLES
        self._speech.append(flags[(begins - begin) // FRAME_SAMPLES])
        self._is_on = bool(flags[-1])

    def _count(self, raw: Floats) -> None:
        """Count syllables from ONSET_FRAMES before the first speech on, in whole steps."""
        if self._early is None:
            self._density.add(raw)
            return
        self._early = np.concatenate([self._early, raw])
        spoken = np.flatnonzero(self._speech.values)
        first = int(spoken[0]) if len(spoken) else len(self._speech)
        begin = self._num_forgotten + first - ONSET_FRAMES
        skipped = begin // STEP_FRAMES * STEP_FRAMES - self._num_early
        skipped = min(max(0, skipped), len(self._early))
        self._density.append(np.zeros(skipped, np.float32))
        self._num_early += skipped
        self._early = self._early[skipped:]
        if len(spoken) and len(self._early):
            self._density.add(self._early)
            self._early = None


class TurnMeasurer:
    """Measures of one turn, so far and whole.

    `push` only takes, from one thread. The others compute, on any thread. Their results
    depend on the samples alone, not on their cut or on when `work` was called. At most the whole
    turn waits to be heard.
    """

    def __init__(self, turn: int = 0) -> None:
        self.is_over = False  # the turn's last sample is pushed
        self._turn = turn
        self._placed = (0, 0)  # the turn's sample where the pushed ones begin, and its length
        self._num_told = 0
        self._sound = SoundTrack()
        self._waiting: list[tuple[Floats, Sequence[Frame]]] = []
        self._hearing = threading.Lock()
        self._is_heard = False  # to its last sample
        self._whole: SpeechMeasures | None = None

    def push(
        self, samples: Floats, frames: Sequence[Frame], begin: int = 0, num_taken: int = 0
    ) -> None:
        """Take samples [n] float32 at 16 kHz, and the frames that voice activity made of the turn
        since the last push. They may end before the samples do. The turn has `num_taken` samples so
        far; the first pushed one is its sample `begin`."""
        self._placed = begin, num_taken
        self._waiting.append((samples, frames))

    def work(self, tells: bool = False) -> Measures | None:
        """Hear the samples that wait, if they are enough. tells: return the measures so far if
        200 ms have come since the last time. The turn's samples before and after those that were
        heard count as no speech."""
        with self._hearing:
            begin, num_taken = self._placed
            is_news = tells and num_taken // EVERY_SAMPLES > self._num_told
            is_much = sum(len(piece) for piece, _ in self._waiting) >= READ_SAMPLES
            if self.is_over or not (is_news or is_much):
                return None
            self._hear()
            if not is_news:
                return None
            self._num_told = num_taken // EVERY_SAMPLES
            frames = self._sound.frames()
            after = max(0, num_taken - begin - self._sound.num_samples) // HOP_SAMPLES
        heard_s = (_num_frames(begin) + len(frames.f0) + after) / FRAMES_PER_S
        so_far = replace(frames.measures(), audio_s=heard_s)
        last = dict.fromkeys(LAST_S, so_far)
        for s in LAST_S:
            if s < heard_s:
                found = frames.last(s - after / FRAMES_PER_S).measures()
                last[s] = replace(found, audio_s=float(s))
        return Measures(self._turn, heard_s, so_far, last)

    def so_far(self) -> SpeechMeasures:
        """The measures of the samples that were pushed up to now."""
        with self._hearing:
            self._hear()
            return self._measures()

    def finish(self, has_speech: bool = True) -> SpeechMeasures:
        """The measures of the whole turn, when all its samples were pushed.

        has_speech: the judgement of voice activity. If it is false, only the sound is measured.
        """
        with self._hearing:
            self._hear(is_last=True)
            if self._whole is None:
                self._whole = self._measures()
        if has_speech:
            return self._whole
        return SpeechMeasures(audio_s=self._whole.audio_s, clipped_share=self._whole.clipped_share)

    def frames(self) -> Frames:
        """All frames, when all samples were pushed."""
        with self._hearing:
            self._hear(is_last=True)
            return self._sound.frames()

    def curves(self) -> Curves:
        """F0, level, speech and syllables along the whole turn, when all its samples were
        pushed."""
        return Curves.of(self.frames(), *map(_num_frames, self._placed))

    def _measures(self) -> SpeechMeasures:
        audio_s = _num_frames(self._placed[1]) / FRAMES_PER_S
        return replace(self._sound.frames().measures(), audio_s=audio_s)

    def _hear(self, is_last: bool = False) -> None:
        if self._is_heard:
            return
        self._is_heard = is_last
        num = len(self._waiting)  # `push` may add more meanwhile
        waiting = self._waiting[:num]
        del self._waiting[:num]
        samples = joined(piece for piece, _ in waiting)
        frames = [frame for _, piece in waiting for frame in piece]
        for at in range(0, max(1, len(samples)), AT_ONCE):
            is_end = at + AT_ONCE >= len(samples)
            self._sound.add(samples[at : at + AT_ONCE], frames, is_last and is_end)
            frames = []


def measure(samples: Floats) -> SpeechMeasures:
    """The measures of a whole turn [n] float32 at 16 kHz."""
    voice, measurer, trim = TurnVoice(), TurnMeasurer(), Trim()
    trim.push(samples)
    trim.finish()
    heard = trim.span(is_last=True)
    assert trim.span_begin is not None
    spoken, frames = voice.hear(heard, is_last=True)
    measurer.push(spoken, frames, trim.span_begin + voice.begin, len(samples))
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
    speaks. Raises BadAudio (a ValueError) for a rate outside 1..384 kHz, and for samples
    that are no audio. docs/measures.md says how far the rate is from that of the text.
    """
    chunker = Chunker(rate)
    sound = np.concatenate([chunker.push(samples), chunker.finish()])
    return measure(OffsetFilter().push(on_grid(sound))).rate_syllables_per_s
