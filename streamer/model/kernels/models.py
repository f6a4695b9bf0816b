"""The language model and the audio tower on compiled kernels, for small models on a CPU.

They have the interfaces of `TextModel` and `AudioTower` and equal them to 1e-5, the language model
in a tenth of its time at one row, since nothing is dispatched (2026-11). A checkpoint's float16
stays float16: half the memory is read, and the bits are the same. A window's embeddings are the
same bits in any batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.model.checkpoint.layout import AudioShape, TextShape
from streamer.model.engines.engine import Audio, Floats, KVSlots, Span, kv_sizes, rotary, sinusoids
from streamer.model.kernels.library import BLOCK, PANEL, QUERIES, Kernel, kernel, table_of

SIZES = 3  # place among the arguments of `run_text`: these stay from step to step


class FastText:
    """Weights in panels; `step` feeds any number of rows. Not thread-safe: one work memory."""

    def __init__(self, weights: Mapping[str, Any], shape: TextShape) -> None:
        """weights: arrays by their names in the checkpoint, all float16 or all float32."""
        self.shape = shape
        embedding = np.asarray(weights["model.embed_tokens.weight"])
        head = embedding if shape.tied else np.asarray(weights["lm_head.weight"])
        matrices = []
        vectors = []
        for i in range(shape.layers):
            of_layer, small = _take_layer(weights, f"model.layers.{i}.")
            matrices += [panels(matrix) for matrix in of_layer]
            vectors += [padded(vector) for vector in small]
        vectors.append(padded(weights["model.norm.weight"]))
        self._tables = (
            bits_of(np.concatenate(matrices)),
            np.concatenate(vectors),
            np.ascontiguousarray(embedding, np.float32),
            bits_of(panels(head)),
        )
        self._run = kernel_for("text", self._tables[0])
        self._eps = np.array([shape.eps], np.float32)
        self._wide = up(shape.hidden)
        self._columns = up(shape.vocab)
        self._rows = self._length = 0
        self._slots: KVSlots | None = None  # for which the table of arguments is made
        self._reserve(1, PANEL)

    @property
    def is_half(self) -> bool:
        """Whether the weights are kept as float16."""
        return bool(self._tables[0].dtype == np.uint16)

    def slots(self, num_slots: int, max_len: int) -> KVSlots:
        """KV memory in the layout that `step` reads."""
        sizes = kv_sizes(self.shape, num_slots, max_len, PANEL)
        keys, values = (np.zeros(size, np.float32) for size in sizes)
        return KVSlots(keys, values, num_slots, max_len, PANEL)

    def step(self, ids: Seq[int], audio: Audio, spans: Seq[Span], slots: KVSlots) -> Floats:
        """Feed packed `ids`; logits [sum of num_logits, vocab] float32, only where they are wanted.

        A row's result is the same to the last bit whatever rows stand beside it and however its ids
        are cut. Raises IndexError for an id that the model does not have.
        """
        s = self.shape
        if not 0 <= min(ids) <= max(ids) < s.vocab:
            raise IndexError(f"the model has {s.vocab} ids, not {min(ids)} or {max(ids)}")
        self._reserve(len(ids), max(span.start + span.n for span in spans))
        table = self._table_for(slots)
        self._given[: len(ids)] = ids
        for first, embeds in audio:
            self._given[first : first + len(embeds)] = -1  # not looked up
            x = self._x[first * self._wide : (first + len(embeds)) * self._wide]
            x.reshape(-1, self._wide)[:, : s.hidden] = embeds
        self._where[: len(spans)] = spans
        logits = np.empty((sum(span.num_logits for span in spans), self._columns), np.float32)
        table[1], table[5] = len(ids), len(spans)
        table[-2], table[-1] = logits.__array_interface__["data"][0], logits.size
        self._run.run(table)
        return logits[:, : s.vocab]

    def _table_for(self, slots: KVSlots) -> Any:
        """The kernel's arguments but the logits, for `run`. To look at all arrays at each step
        would take 30 us, as long as a step of the edge."""
        if self._slots is not slots:
            s = self.shape
            sizes = (s.layers, s.heads, s.kv_heads, s.head_dim, s.hidden, s.ffn)
            length = slots.values.shape[3]
            self._sizes = np.array([*sizes, length, self._columns], np.int64)
            memory = slots.keys.reshape(-1), slots.values.reshape(-1), *self._halves, *self._room
            usual = self._sizes, self._eps, *self._tables, *self._angles, *memory
            given = self._run.numbers_of((self._given, self._x, self._where))
            self._table = table_of([*given, *self._run.numbers_of(usual, SIZES), 0, 0])
            self._slots = slots
        return self._table

    def _reserve(self, rows: int, length: int) -> None:
        """Work memory for `rows` packed rows and slots up to `length`; grows by doubling."""
        s = self.shape
        if rows > self._rows or length > self._length:
            self._slots = None  # the arguments change
        if rows > self._rows:
            self._rows = rows = max(rows, 2 * self._rows)
            qkv = up((s.heads + 2 * s.kv_heads) * s.head_dim)
            inner = max(self._wide, s.heads * s.head_dim, s.ffn)
            self._given, self._where = np.zeros(rows, np.int64), np.zeros((rows, 5), np.int64)
            self._x = np.zeros(rows * self._wide, np.float32)
            self._halves = (
                np.zeros(rows * inner, np.float32),
                np.zeros(rows * max(qkv, up(2 * s.ffn)), np.float32),
            )
            self._room = attention_room(rows, s.heads // s.kv_heads, s.head_dim)
        if length > self._length:
            self._length = length = up(max(length, 2 * self._length, 1024))
            self._angles = rotary(length, s.head_dim, s.rope_theta)


def kernel_for(name: str, weights: NDArray[Any]) -> Kernel:
    """The kernel for weights of this type."""
    return kernel(name if weights.dtype == np.uint16 else f"{name} of float32")


def attention_room(rows: int, group: int, dim: int) -> tuple[Floats, ...]:
    """Work memory of attention.py, for a step of `rows` rows: the scores of a block, folded
    queries, sums of values, totals, largest scores."""
    queries = min(rows, QUERIES) * group
    sizes = (queries * BLOCK, queries * dim, queries * up(dim), queries, queries)
    return tuple(np.zeros(size, np.float32) for size in sizes)


def _take_layer(weights: Mapping[str, Any], p: str) -> tuple[list[Any], list[Any]]:
    """One layer's matrices and vectors, in the order in which layers.py reads them."""

    def take(*names: str) -> NDArray[Any]:
        return np.concatenate([np.asarray(weights[p + name]) for name in names])

    matrices = [
        take(*(f"self_attn.{name}_proj.weight" for name in "qkv")),
        take("self_attn.o_proj.weight"),
        take("mlp.gate_proj.weight", "mlp.up_proj.weight"),
        take("mlp.down_proj.weight"),
    ]
    bias = take(*(f"self_attn.{name}_proj.bias" for name in "qkv"))
    return matrices, [take("input_layernorm.weight"), bias, take("post_attention_layernorm.weight")]


def panels(matrix: NDArray[Any]) -> NDArray[Any]:
    """[out, in] -> flat [panels, in, PANEL], zeros where `out` ends."""
    out, depth = matrix.shape
    padded = np.zeros((up(out), depth), matrix.dtype)
    padded[:out] = matrix
    return np.ascontiguousarray(padded.reshape(-1, PANEL, depth).transpose(0, 2, 1)).reshape(-1)


def padded(vector: NDArray[Any]) -> Floats:
    """The vector as float32, with zeros after it up to a whole panel."""
    padded = np.zeros(up(len(vector)), np.float32)
    padded[: len(vector)] = vector
    return padded


def bits_of(matrices: NDArray[Any]) -> NDArray[Any]:
    """As kernels read them: float16 by its bits, float32 as it is."""
    return matrices.view(np.uint16) if matrices.dtype == np.float16 else matrices


def up(width: int) -> int:
    """`width`, rounded up to whole panels."""
    return -(-width // PANEL) * PANEL


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
            _take_window_layer(w, f"layers.{i}.", matrices, vectors)
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


def _take_window_layer(
    w: Mapping[str, Any], p: str, matrices: list[Any], vectors: list[Any]
) -> None:
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
