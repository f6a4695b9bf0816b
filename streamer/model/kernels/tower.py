"""The audio tower on compiled kernels, for small models on a CPU. In: log-mel [B, mels, T]. Out:
embeddings.

The same interface as `AudioTower`, and equal to it to 1e-5. A window's embeddings are the same bits
in any batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from streamer.model.checkpoint.shapes import AudioShape
from streamer.model.engines.engine import Floats
from streamer.model.engines.rotary import sinusoids
from streamer.model.kernels.cells import TOWER, address
from streamer.model.kernels.helpers import Crew
from streamer.model.kernels.job import Job, attention_room, num_queries, up
from streamer.model.kernels.simd import PANEL
from streamer.model.kernels.text import halved, padded, panels
from streamer.model.kernels.threads import the_crew


class FastTower:
    """`encode` gives 25 embeddings per second of audio. Threads may share it: nothing is kept."""

    # each is a product large enough: together they take as long as one after the other
    windows_at_once = 1

    def __init__(
        self, weights: Mapping[str, Any], shape: AudioShape, crew: Crew | None = None
    ) -> None:
        """weights: float32 arrays by their names in the checkpoint."""
        self.shape = shape
        self.window_frames = 2 * shape.n_window
        w = {
            k.removeprefix("audio_tower."): np.asarray(v)
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
        places[:, : shape.width] = sinusoids(shape.n_window, shape.width)
        self._places = places.reshape(-1)

    def encode(self, features: Floats) -> Floats:
        """[B, mels, T] float32 -> [B, n, output]. Raises ValueError for T > window_frames."""
        batch, _, frames = features.shape
        if frames > self.window_frames:
            raise ValueError(f"a window has at most {self.window_frames} frames, not {frames}")
        positions = (frames + 1) // 2
        job, kept = self._job(frames)
        heard = np.zeros((frames + 2, self.shape.num_mels), np.float32)
        out = np.empty((batch, positions // 2, up(self.shape.output)), np.float32)
        for window, embeddings in zip(np.asarray(features), out, strict=True):
            heard[1:-1] = window.T
            job.put(
                frames=address(heard),
                num_frames=frames,
                positions=positions,
                out=address(embeddings),
            )
            job.run(positions, self._crew, frames // 2 * self._weights.size)
        del kept
        return out[..., : self.shape.output]

    def _job(self, frames: int) -> tuple[Job, list[Floats]]:
        """All but the frames themselves, and the work memory it points to.

        hidden, keys and values are zeros where nothing is written; those of two layers by turns,
        since a thread may be a layer ahead of another.
        """
        s = self.shape
        wide = self._wide
        rows = (frames + 1) // 2
        dim = s.width // s.heads
        length = up(rows)
        hidden = np.zeros((frames + 2) * wide, np.float32)
        keys = np.zeros((2, 1, s.heads, length // PANEL, dim, PANEL), np.float32)
        values = np.zeros((2, 1, s.heads, length, up(dim)), np.float32)
        both = max(up(3 * s.width), up(s.ffn))
        x, a, b = (np.empty(rows * size, np.float32) for size in (wide, wide, both))
        queries = num_queries(rows, 1)
        room = attention_room(queries, dim, self._crew.num_threads)
        job = Job(s.layers + 2, TOWER, self._weights)
        job.put(
            layers=s.layers,
            heads=s.heads,
            width=s.width,
            ffn=s.ffn,
            mels=s.num_mels,
            output=s.output,
            weights=address(self._weights),
            vectors=address(self._vectors),
            num_vectors=len(self._vectors),
            places=address(self._places),
            hidden=address(hidden),
            keys=address(keys),
            values=address(values),
            x=address(x),
            a=address(a),
            b=address(b),
            a_width=wide,
            b_width=both,
            room=address(room),
            num_queries=queries,
        )
        return job, [hidden, keys, values, x, a, b, room]


def _convolution(weight: Floats, channels: int) -> Floats:
    """[out, in, 3] -> panels of [3 * channels, out]: the three frames in a row, `in` padded."""
    out, depth, _ = weight.shape
    flat = np.zeros((out, 3, channels), np.float32)
    flat[:, :, :depth] = weight.transpose(0, 2, 1)
    return panels(flat.reshape(out, 3 * channels))


def _take_layer(
    w: Mapping[str, Floats], p: str, matrices: list[Floats], vectors: list[Floats]
) -> None:
    """One layer's weights, in tower_arithmetic.py's order; k has no bias."""
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
