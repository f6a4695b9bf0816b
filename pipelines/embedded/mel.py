"""The models' log-mel (WhisperFeatureExtractor, 128 bins, hop 10 ms) of samples at 16 kHz, raw."""

import numpy as np
import torch

from streamer.core.measures.frames import HOP_SAMPLES
from streamer.model.audio.mel import FFT_SAMPLES, mel_filters


def raw_log_mel(samples: np.ndarray) -> np.ndarray:
    """Log10 power mel [n_frames, 128], not yet clamped: n_frames = ceil(n_samples / 160).

    Zeros stand after the end as in the stock extractor's batch padding.
    """
    num_frames = -(-len(samples) // HOP_SAMPLES)
    padded = torch.from_numpy(np.pad(samples.astype(np.float32), (0, FFT_SAMPLES)))
    window = torch.hann_window(FFT_SAMPLES)
    stft = torch.stft(padded, FFT_SAMPLES, HOP_SAMPLES, window=window, return_complex=True)
    power = stft.abs().square().numpy()[:, :num_frames]
    return np.log10(np.maximum(mel_filters().T @ power, 1e-10)).T


def normalise(raw: np.ndarray) -> np.ndarray:
    """Input of the audio tower: clamp to the clip's maximum minus 8, then (x + 4) / 4."""
    return (np.maximum(raw, raw.max() - 8.0) + 4.0) / 4.0
