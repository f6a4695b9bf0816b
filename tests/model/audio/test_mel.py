"""Streaming log-mel against true values and transformers; every cut gives the same bits."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import WhisperFeatureExtractor
from transformers.models.qwen2_5_omni.modeling_qwen2_5_omni import Qwen2_5OmniAudioEncoder

from streamer.model.audio import mel as mel_frames
from streamer.model.audio.mel import StreamingLogMel, num_embeddings
from streamer.model.listener import WindowLedger

STOCK = WhisperFeatureExtractor(feature_size=128, chunk_length=300, return_attention_mask=True)


def stock_features(x):
    """The valid frames [128, ceil(n / 160)]. The released padding, to 300 s, gives the same."""
    length = -(-(len(x) + 800) // 30_720) * 30_720
    out = STOCK(
        x, sampling_rate=16_000, max_length=length, return_attention_mask=True, return_tensors="pt"
    )
    return out["input_features"][0][:, : int(out["attention_mask"].sum())].numpy()


def true_features(x):
    """The same frames, all of it in float64."""
    padded = np.concatenate([x[200:0:-1], x, np.zeros(800)]).astype(np.float64)
    frames = np.lib.stride_tricks.sliding_window_view(padded, 400)[::160]
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(400) / 400)
    power = np.abs(np.fft.rfft(frames * hann)) ** 2
    raw = np.log10(np.maximum(power @ mel_frames.mel_filters().astype(np.float64), 1e-10)).T
    return ((np.maximum(raw, raw.max() - 8) + 4) / 4)[:, : -(-len(x) // 160)]


def hear(x, cuts=()):
    log_mel = StreamingLogMel()
    windows = [w for piece in np.split(x, sorted(cuts)) for w in log_mel.push(piece)]
    return windows + log_mel.finish(), log_mel.maximum


def features(windows, clip_max):
    return np.concatenate([np.zeros((128, 0)), *(w.features(clip_max) for w in windows)], axis=1)


def signal(n, kind, seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(n) * 0.1
    if kind == "silence":
        x *= 0
    # stretches of 10 ms .. 1 s between -120 and 0 dB, or digital silence
    elif kind == "loud-quiet":
        ends = np.cumsum(rng.integers(160, 16_000, n // 160 + 1))
        gains = np.where(rng.random(len(ends)) < 0.3, 0, 10 ** rng.uniform(-6, 0, len(ends)))
        x *= gains[np.searchsorted(ends, np.arange(n), side="right")]
    elif kind == "click-at-the-end":
        x *= 1e-5
        x[-1:] = 0.9
    elif kind in ("rising", "falling"):
        x *= 10 ** np.linspace(*((-6, 0) if kind == "rising" else (0, -6)), n)
    elif kind == "tone":
        x = 0.5 * np.sin(2 * np.pi * rng.uniform(50, 7900) * np.arange(n) / 16_000)
    return x.astype(np.float32)


KINDS = ["noise", "silence", "loud-quiet", "click-at-the-end", "rising", "falling", "tone"]


# Both transform in float32: for a pure tone the stock is 3e-4 from the true values, and ours 2e-5.
FROM_TRUE, FROM_STOCK = 5e-5, 6e-4


@settings(max_examples=150, deadline=None)
@given(
    n=st.integers(1, 80_000) | st.integers(-700, 700).map(lambda off: 64_000 + off),
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 99),
    cuts=st.lists(st.integers(0, 80_000) | st.integers(31_700, 32_300), max_size=20),
)
def test_close_to_the_stock_extractor(n, kind, seed, cuts):
    x = signal(n, kind, seed)
    got, expected = features(*hear(x, cuts)), stock_features(x)
    # A rest that makes no embedding is missing.
    n = got.shape[1]
    assert expected.shape[1] - n in (0, 1, 2)
    assert num_embeddings(expected.shape[1] % 200) == num_embeddings(n % 200)
    if len(x) > 200:  # the stock reflects no more than there is
        np.testing.assert_allclose(got, true_features(x)[:, :n], atol=FROM_TRUE, rtol=0)
    np.testing.assert_allclose(got, expected[:, :n], atol=FROM_STOCK, rtol=0)


def test_embedding_counts_follow_the_audio_tower():
    for n_frames in range(1, 450):
        towers = Qwen2_5OmniAudioEncoder._get_feat_extract_output_lengths(
            None, torch.tensor(n_frames)
        )[1]
        assert num_embeddings(n_frames) == int(towers)
        # Window by window as many as all at once, also when a rest of 1 or 2 frames makes none.
        windows, rest = divmod(n_frames, 200)
        assert windows * 50 + num_embeddings(rest) == int(towers)
    assert num_embeddings(0) == 0


class Prefill:
    """The features of each window that a listener holds: it rolls them back, and fills them again."""

    def __init__(self):
        self.log_mel, self.ledger = StreamingLogMel(), WindowLedger()
        self.held = []

    def push(self, samples):
        windows = self.log_mel.push(samples)
        self.ledger.observe(self.log_mel.maximum, self.log_mel.num_samples)
        self._deliver(windows)
        self.redo(self.ledger.due(self.log_mel.num_samples))

    def finish(self):
        self._deliver(self.log_mel.finish())
        self.ledger.observe(self.log_mel.maximum)
        self.redo(self.ledger.stale())

    def redo(self, index):
        if index is None:
            return
        del self.held[index + 1 :]
        old, redos = self.held.pop(), self.ledger.redo(index)
        _, is_changed = redos[0]
        assert is_changed
        self.held += [window.features(self.ledger.maximum) for window, _ in redos]
        assert not np.array_equal(old, self.held[index])

    def _deliver(self, windows):
        self.held += [w.features(self.ledger.deliver(w)) for w in windows]


@settings(max_examples=120, deadline=None)
@given(
    n=st.integers(320, 208_000),
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 99),
    cuts=st.lists(st.floats(0, 1), max_size=40),
)
def test_every_window_ends_up_with_the_features_of_the_whole_clip(n, kind, seed, cuts):
    x, prefill = signal(n, kind, seed), Prefill()
    for piece in np.split(x, sorted(int(c * n) for c in cuts)):
        prefill.push(piece)
    prefill.finish()
    held = np.concatenate([np.zeros((128, 0)), *prefill.held], axis=1)
    assert np.array_equal(held, features(*hear(x)))
    assert prefill.ledger.stale() is None
