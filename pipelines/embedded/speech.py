"""In: samples at 16 kHz. Out: in which frames of 10 ms somebody speaks. This is what a pause is
measured against.

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

from streamer.model.audio.vad import VoiceActivity

ON, OFF = 0.5, 0.35
FRAME_SAMPLES, HOP = 512, 160


def probabilities(samples: np.ndarray) -> np.ndarray:
    """Silero's probability of speech, one per started 512 samples [n], float32."""
    rest = -len(samples) % FRAME_SAMPLES
    frames = VoiceActivity().push(np.pad(samples.astype(np.float32), (0, rest)))
    return np.array([frame.probability for frame in frames], np.float32)


def speaking(probability: np.ndarray) -> np.ndarray:
    """Hysteresis over silero's frames: bool [n]."""
    state, states = False, []
    for p in probability.tolist():
        state = p >= (OFF if state else ON)
        states.append(state)
    return np.array(states, bool)


def speech_frames(samples: np.ndarray) -> np.ndarray:
    """Whether somebody speaks, for each 10 ms frame of the mel [ceil(n_samples / 160)], bool."""
    flags = speaking(probabilities(samples))
    at = np.arange(-(-len(samples) // HOP)) * HOP // FRAME_SAMPLES
    return flags[at]
