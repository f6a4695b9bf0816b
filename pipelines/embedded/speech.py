"""In which frames of 10 ms somebody speaks, for samples at 16 kHz. Pauses are defined by it.

The definition, for labels, measures and tests alike:

- Frame: 512 samples (32 ms), judged by silero-vad, which carries its state from frame to frame (it
streams).
- Speech begins at a probability of .5 and goes on until one under .35 (hysteresis).
- A pause is a stretch without speech of at least 180 ms, between the first and the last speech of a
recording.
- On the mel's frames of 10 ms a frame belongs to the 32 ms its first sample lies in.

Unlike a level under the loudest frames this holds in a noisy room: breaths, clicks and hum are no
speech to it.
"""

import numpy as np

from streamer.core.measures.frames import SPEECH_SAMPLES, on_mel_frames
from streamer.core.measures.frames import speaking as speaking
from streamer.model.audio.vad import VoiceActivity


def probabilities(samples: np.ndarray) -> np.ndarray:
    """Silero's probability of speech, one per started 512 samples [n], float32."""
    rest = -len(samples) % SPEECH_SAMPLES
    frames = VoiceActivity().push(np.pad(samples.astype(np.float32), (0, rest)))
    return np.array([frame.probability for frame in frames], np.float32)


def speech_frames(samples: np.ndarray) -> np.ndarray:
    """Whether somebody speaks, for each 10 ms frame of the mel [ceil(n_samples / 160)], bool."""
    return on_mel_frames(speaking(probabilities(samples)), -(-len(samples) // 160))
