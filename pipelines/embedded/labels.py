"""The truth of a clean recording: seven measures of its log-mel, F0 and syllables, as levels.

Everything is measured on frames before noise and rooms are added. Therefore clips that are joined,
stretched or made louder in the mel domain get exact labels without a second pass over samples.

Speech and pauses, for labels, measures and tests alike:

- silero-vad judges frames of 512 samples (32 ms) and carries its state from frame to frame.
- Speech begins at a probability of 0.5 and lasts until one under 0.35 (hysteresis).
- A pause is a stretch without speech of at least 180 ms, between the first and the last speech.
- A frame of the mel (10 ms) belongs to the 32 ms in which its first sample lies.

Unlike a level under the loudest frames, this holds in noise: breaths, clicks and hum are no speech.
"""

from dataclasses import dataclass

import numpy as np
import parselmouth

from pipelines.embedded.mel import raw_log_mel
from pipelines.embedded.speak import SAMPLE_RATE
from streamer.core.measures import frames
from streamer.core.measures.frames import FRAMES_PER_S, HOP_SAMPLES, MIN_FRAMES
from streamer.core.measures.frames import PAUSE_FRAMES as PAUSE_FRAMES
from streamer.core.measures.levels import BOUNDS, arousal_of, level_of, standardised
from streamer.core.measures.levels import NUM_LEVELS as NUM_LEVELS
from streamer.model.audio.vad import FRAME_SAMPLES, VoiceActivity

ATTRIBUTES = tuple(BOUNDS)


@dataclass(frozen=True)
class Measures:
    """One clip's measures, in the units of BOUNDS."""

    rate: float
    pitch: float
    variation: float
    loudness: float
    pauses: float
    timbre: float
    arousal: float

    def levels(self) -> dict[str, int | None]:
        """Level of each attribute; None for one that was not measured."""
        values = {name: getattr(self, name) for name in ATTRIBUTES}
        return {n: None if np.isnan(v) else level_of(n, v) for n, v in values.items()}

    def vector(self) -> np.ndarray:
        """About zero mean and unit range, [7]: regression targets, and what arousal and word
        order use."""
        first = standardised(self.rate, self.pitch, self.variation, self.loudness, self.pauses)
        return np.array([*first, (self.timbre + 9.5) / 6.0, self.arousal * 2.0], np.float32)


def measure(
    raw: np.ndarray, f0: np.ndarray, num_syllables: float | None, speech: np.ndarray | None = None
) -> Measures:
    """Measure `raw` [n_frames, 128] log10 mel with `f0` [n_frames] Hz, 0 where unvoiced.

    `speech` [n_frames] bool says in which frames somebody speaks (`speech_frames`): recordings of people
    need it. Without it, every frame within 25 dB of the active level is speech, which holds for
    clean synthetic voices only. Without syllables, rate and arousal are NaN. Raises ValueError when
    too little of it is voiced.
    """
    power = frame_power(raw)
    spoken = np.ones(len(raw), bool) if speech is None else speech
    if spoken.sum() < MIN_FRAMES:
        raise ValueError("no speech")
    level_db = frames.decibel(power)
    active_db = frames.level_of_speech(power[spoken], level_db[spoken])
    heard = spoken & (level_db > active_db - frames.SILENT_DB)
    talking = heard if speech is None else speech
    first, end = span_of(talking)
    paused = paused_frames(~talking[first:end])
    voiced = f0[heard & (f0 > 0)].astype(np.float32)
    if len(voiced) < MIN_FRAMES or (num_syllables is not None and num_syllables < 1):
        raise ValueError("no voiced speech")
    found = frames.pitch_stats(voiced)
    pitch, variation = found["pitch_median_hz"], found["pitch_sd_semitones"]
    span = end - first
    rate = float("nan") if num_syllables is None else FRAMES_PER_S * num_syllables / (span - paused)
    bands = frames.frame_powers(raw[heard], frames.VOICE_HZ, frames.BRIGHT_HZ)
    low, high = (band.mean() for band in bands)
    arousal = arousal_of(standardised(rate, pitch, variation, active_db, paused / span))
    tilt = 10 * np.log10(high / low)
    return Measures(
        rate, pitch, variation, float(active_db), paused / span, float(tilt), float(arousal)
    )


def measured(
    samples: np.ndarray, syllables: float | None, speech: np.ndarray | None = None
) -> Measures:
    """`measure` of samples."""
    mel = raw_log_mel(samples)
    return measure(mel, f0_track(samples, len(mel)), syllables, speech)


def paused_frames(silent: np.ndarray) -> int:
    """Frames in stretches of `silent` that are long enough for a pause."""
    return sum(b - a for a, b in frames.runs(silent) if b - a >= PAUSE_FRAMES)


def f0_track(samples: np.ndarray, num_frames: int) -> np.ndarray:
    """f0 in Hz on the mel's frames, [num_frames]; 0 where unvoiced.

    In two passes: the second searches only around where the first found most of the voice. One pass
    over 60-500 Hz takes a noisy or high voice an octave too low every now and then.
    """
    sound = parselmouth.Sound(samples, SAMPLE_RATE)
    pitch = sound.to_pitch(0.01, 60, 500)
    voiced = pitch.selected_array["frequency"]
    voiced = voiced[voiced > 0]
    if len(voiced) >= 20:
        low, high = np.percentile(voiced, (15, 85))
        pitch = sound.to_pitch(0.01, max(60.0, 0.75 * low), min(500.0, 1.6 * high))
    times = pitch.xs()
    at = np.round((np.arange(num_frames) * 0.01 - times[0]) / 0.01).astype(int)
    at = np.clip(at, 0, len(times) - 1)
    return pitch.selected_array["frequency"][at].astype(np.float32)


def speech_frames(samples: np.ndarray) -> np.ndarray:
    """Whether somebody speaks, for each 10 ms frame of the mel [ceil(n_samples / 160)], bool. A
    frame has the flag of its first sample."""
    rest = -len(samples) % FRAME_SAMPLES
    heard = VoiceActivity().push(np.pad(samples.astype(np.float32), (0, rest)))
    flags = frames.speaking(np.array([frame.probability for frame in heard], np.float32))
    num_frames = -(-len(samples) // HOP_SAMPLES)
    return flags[np.arange(num_frames) * HOP_SAMPLES // FRAME_SAMPLES]


def frame_power(raw: np.ndarray) -> np.ndarray:
    """Mean square of the signal [n_frames], of `raw` [n_frames, 128] log10 mel power."""
    return frames.frame_powers(raw, (0.0, 8000.0))[0]


def span_of(talking: np.ndarray) -> tuple[int, int]:
    """First frame of speech, and the one after the last. Raises IndexError where there is none."""
    first, last = np.flatnonzero(talking)[[0, -1]]
    return int(first), int(last) + 1
