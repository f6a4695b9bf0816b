"""The audio tower on compiled kernels, for small models on a CPU.

It has the interface of `AudioTower` and equals it to 1e-5. A window's embeddings are the same bits
in any batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.model.checkpoint.shapes import AudioShape
from streamer.model.engines.engine import Floats, sinusoids
from streamer.model.kernels.text import attention_room, bits_of, kernel_for, padded, panels, up


class FastTower:
    """`encode` gives 25 embeddings per second of audio. Threads may share it."""

    # each is a product large enough: together they take as long as one after the other
    windows_at_once = 1

    def __init__(self, weights: Mapping[str, Any], shape: AudioShape) -> None:
        """weights: arrays by their names in the checkpoint, all float16 or all float32."""
        self.shape = shape
        self.window_frames = 2 * shape.n_window
        w = {
            k.removeprefix("audio_tower."): np.asarray(v)
            for k, v in weights.items()
            if k.startswith("audio_tower.")
        }
        self._wide = up(shape.width)
        matrices = [
            _convolution(w["conv1.weight"], shape.num_mels),
            _convolution(w["conv2.weight"], self._wide),
        ]
        vectors = [w["conv1.bias"], w["conv2.bias"]]
        for i in range(shape.layers):
            _take_layer(w, f"layers.{i}.", matrices, vectors)
        matrices.append(panels(w["proj.weight"]))
        vectors += [w["ln_post.weight"], w["ln_post.bias"], w["proj.bias"]]
        places = np.zeros((shape.n_window, self._wide), np.float32)
        places[:, : shape.width] = sinusoids(shape.n_window, shape.width)
        self._tables = (
            bits_of(np.concatenate(matrices)),
            np.concatenate([padded(vector) for vector in vectors]),
            places.reshape(-1),
        )
        self._run = kernel_for("tower", self._tables[0])
        sizes = (shape.layers, shape.heads, shape.width, shape.ffn, shape.num_mels, shape.output)
        self._sizes = np.array(sizes, np.int64)

    def encode(self, features: Floats) -> Floats:
        """[B, mels, T] float32 -> [B, n, output]. Raises ValueError for T > window_frames."""
        batch, _, frames = features.shape
        if frames > self.window_frames:
            raise ValueError(f"a window has at most {self.window_frames} frames, not {frames}")
        s = self.shape
        rows = (frames + 1) // 2
        dim = s.width // s.heads
        length = up(rows)
        heard = np.zeros((frames + 2, s.num_mels), np.float32)
        # zeros where nothing is written
        hidden = np.zeros((frames + 2) * self._wide, np.float32)
        keys = np.zeros(s.heads * length * dim, np.float32)
        values = np.zeros(s.heads * length * up(dim), np.float32)
        both = max(up(3 * s.width), up(s.ffn))
        work = tuple(np.empty(rows * size, np.float32) for size in (self._wide, self._wide, both))
        spans = np.array([(0, 0, 0, rows, 0)], np.int64)
        room = attention_room(rows, 1, dim)
        out = np.empty((batch, rows // 2, up(s.output)), np.float32)
        for window, embeddings in zip(np.asarray(features), out, strict=True):
            heard[1:-1] = window.T
            given = heard.reshape(-1), spans, self._sizes, *self._tables
            self._run(*given, hidden, keys, values, *work, *room, embeddings.reshape(-1))
        return out[..., : s.output]


def _convolution(weight: NDArray[Any], channels: int) -> NDArray[Any]:
    """[out, in, 3] -> panels of [3 * channels, out]: the three frames in a row, `in` padded."""
    out, depth, _ = weight.shape
    flat = np.zeros((out, 3, channels), weight.dtype)
    flat[:, :, :depth] = weight.transpose(0, 2, 1)
    return panels(flat.reshape(out, 3 * channels))


def _take_layer(w: Mapping[str, Any], p: str, matrices: list[Any], vectors: list[Any]) -> None:
    """One layer's weights, in the order of layers.py; k has no bias."""
    q_bias = w[p + "self_attn.q_proj.bias"]
    bias = np.concatenate([q_bias, np.zeros_like(q_bias), w[p + "self_attn.v_proj.bias"]])
    qkv = np.concatenate([w[f"{p}self_attn.{name}_proj.weight"] for name in "qkv"])
    matrices += [
        panels(m)
        for m in (qkv, w[p + "self_attn.out_proj.weight"], w[p + "fc1.weight"], w[p + "fc2.weight"])
    ]
    first = p + "self_attn_layer_norm."
    last = p + "final_layer_norm."
    vectors += [w[first + "weight"], w[first + "bias"], bias, w[p + "self_attn.out_proj.bias"]]
    vectors += [w[last + "weight"], w[last + "bias"], w[p + "fc1.bias"], w[p + "fc2.bias"]]
