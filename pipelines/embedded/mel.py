"""The models' log-mel (WhisperFeatureExtractor, 128 bins, hop 10 ms) of samples at 16 kHz, raw."""

from functools import cache

import numpy as np
import torch
from transformers.audio_utils import mel_filter_bank

N_FFT, HOP, NUM_MELS = 400, 160, 128


@cache
def filters() -> np.ndarray:
    """Slaney mel filters [201, 128] float32."""
    bank = mel_filter_bank(
        N_FFT // 2 + 1, NUM_MELS, 0.0, 8000.0, 16_000, norm="slaney", mel_scale="slaney"
    )
    return bank.astype(np.float32)


def raw_log_mel(samples: np.ndarray) -> np.ndarray:
    """Log10 power mel [n_frames, 128], not yet clamped: n_frames = ceil(n_samples / 160).

    Zeros stand after the end as in the stock extractor's batch padding.
    """
    num_frames = -(-len(samples) // HOP)
    padded = torch.from_numpy(np.pad(samples.astype(np.float32), (0, N_FFT)))
    stft = torch.stft(padded, N_FFT, HOP, window=torch.hann_window(N_FFT), return_complex=True)
    power = stft.abs().square().numpy()[:, :num_frames]
    return np.log10(np.maximum(filters().T @ power, 1e-10)).T


def normalise(raw: np.ndarray) -> np.ndarray:
    """Input of the audio tower: clamp to the clip's maximum minus 8, then (x + 4) / 4."""
    return (np.maximum(raw, raw.max() - 8.0) + 4.0) / 4.0
