"""The audio tower on compiled kernels, for small models on a CPU. In: log-mel [B, mels, T]. Out:
embeddings.

The same interface as `AudioTower`, and equal to it to 1e-5. A window's embeddings are the same bits
in any batch.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from streamer.model.checkpoint.shapes import AudioShape
from streamer.model.engines.tower import AudioTower, sinusoids
from streamer.model.kernels.helpers import Crew
from streamer.model.kernels.job import Job, address, attention_room, num_queries, up
from streamer.model.kernels.simd import PANEL
from streamer.model.kernels.text import halved, padded, panels
from streamer.model.kernels.threads import the_crew

Floats = NDArray[np.float32]


class FastTower:
    """`encode` turns windows into embeddings, 25 per second of audio. Threads may share it: nothing
    is kept."""

    # each is a product large enough: together they take as long as one after the other
    windows_at_once = 1

    def __init__(
        self, weights: dict[str, Tensor], shape: AudioShape, crew: Crew | None = None
    ) -> None:
        self.shape = shape
        self.window_frames = 2 * shape.n_window
        w = {
            k.removeprefix("audio_tower."): v
            for k, v in weights.items()
            if k.startswith("audio_tower.")
        }
        self._wide = up(shape.width)
        self._crew = crew or the_crew()
        matrices = [
            _convolution(w["conv1.weight"], shape.num_mels),
            _convolution(w["conv2.weight"], self._wide),
        ]
        vectors = [w["conv1.bias"], w["conv2.bias"]]
        for i in range(shape.layers):
            _take_layer(w, f"layers.{i}.", matrices, vectors)
        matrices.append(panels(w["proj.weight"]))
        vectors += [w["ln_post.weight"], w["ln_post.bias"], w["proj.bias"]]
        self._weights = halved([np.concatenate(matrices)])[0]
        self._vectors = np.concatenate([padded(vector) for vector in vectors])
        places = np.zeros((shape.n_window, self._wide), np.float32)
        places[:, : shape.width] = sinusoids(shape.n_window, shape.width).numpy()
        self._places = places.reshape(-1)
        self._sizes = (
            shape.layers,
            shape.heads,
            shape.width,
            shape.ffn,
            shape.num_mels,
            shape.output,
        )

    def encode(self, features: Tensor) -> Tensor:
        """[B, mels, T] float32 -> [B, n, output], n = `num_embeddings(T)`. Raises ValueError for T
        > window_frames."""
        batch, _, frames = features.shape
        if frames > self.window_frames:
            raise ValueError(f"a window has at most {self.window_frames} frames, not {frames}")
        n = self.num_embeddings(frames)
        job, kept = self._job(frames)
        heard = np.zeros((frames + 2, self.shape.num_mels), np.float32)
        out = np.empty((batch, n, up(self.shape.output)), np.float32)
        for window, embeddings in zip(features.numpy(), out, strict=True):
            heard[1:-1] = window.T
            job.put(0, address(heard), frames, (frames - 1) // 2 + 1, address(embeddings))
            job.run((frames - 1) // 2 + 1, self._crew, frames // 2 * self._weights.size)
        del kept
        return torch.from_numpy(out[..., : self.shape.output])

    @staticmethod
    def num_embeddings(frames: int) -> int:
        """How many embeddings `frames` mel frames give; a rest of 1-2 frames gives none."""
        return AudioTower.num_embeddings(frames)

    def _job(self, frames: int) -> tuple[Job, list[Floats]]:
        """All but the frames themselves, and the work memory it points to.

        hidden, keys and values are zeros where nothing is written; those of two layers by turns,
        since a thread may be a layer ahead of another.
        """
        s = self.shape
        wide = self._wide
        rows = (frames - 1) // 2 + 1
        dim = s.width // s.heads
        length = up(rows)
        hidden = np.zeros((frames + 2) * wide, np.float32)
        keys = np.zeros((2, 1, s.heads, length // PANEL, dim, PANEL), np.float32)
        values = np.zeros((2, 1, s.heads, length, up(dim)), np.float32)
        both = max(up(3 * s.width), up(s.ffn))
        x, a, b = (np.empty(rows * size, np.float32) for size in (wide, wide, both))
        queries = num_queries(rows, 1)
        room = attention_room(queries, dim, self._crew.num_threads)
        job = Job(s.layers + 2, True, self._weights)
        job.put(
            6,
            *self._sizes,
            address(self._weights),
            address(self._vectors),
            len(self._vectors),
            address(self._places),
            *(address(array) for array in (hidden, keys, values, x, a, b)),
            wide,
            both,
            address(room),
            queries,
        )
        return job, [hidden, keys, values, x, a, b, room]


def _convolution(weight: Tensor, channels: int) -> Floats:
    """[out, in, 3] -> panels of [3 * channels, out]: the three frames one behind the other, `in`
    padded."""
    out, depth, _ = weight.shape
    flat = torch.zeros(out, 3, channels)
    flat[:, :, :depth] = weight.transpose(1, 2)
    return panels(flat.reshape(out, 3 * channels))


def _take_layer(
    w: dict[str, Tensor], p: str, matrices: list[Floats], vectors: list[Tensor]
) -> None:
    """One layer's weights, in the order in which `kernels_tower.encode` reads them; k has no
    bias."""
    q_bias = w[p + "self_attn.q_proj.bias"]
    bias = torch.cat([q_bias, torch.zeros_like(q_bias), w[p + "self_attn.v_proj.bias"]])
    qkv = torch.cat([w[f"{p}self_attn.{name}_proj.weight"] for name in "qkv"])
    matrices += [
        panels(m)
        for m in (qkv, w[p + "self_attn.out_proj.weight"], w[p + "fc1.weight"], w[p + "fc2.weight"])
    ]
    first = p + "self_attn_layer_norm."
    last = p + "final_layer_norm."
    vectors += [w[first + "weight"], w[first + "bias"], bias, w[p + "self_attn.out_proj.bias"]]
    vectors += [w[last + "weight"], w[last + "bias"], w[p + "fc1.bias"], w[p + "fc2.bias"]]
