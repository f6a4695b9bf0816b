"""The syllable rate of a recording, without the language models."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamer.core.audio.chunker import Chunker
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
from streamer.model.audio.mel_frames import MelFrames
from streamer.model.audio.vad import VoiceActivity


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
