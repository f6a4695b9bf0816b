"""llama.cpp's side of bench/llama.py, in the environment that has it. In: a shape. Out: times.

`python -m bench.llama_side --kind Q4_0 --shape JSON --threads 2` writes a GGUF file of the shape,
loads it, and says "ready". Then a line "first N" has it read N tokens, and "step N Q" Q more behind
N; each is answered by milliseconds until the logits are there. All layers have the same random
bytes: a product's time does not see them. It needs llama-cpp-python, gguf and numpy alone.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Kind(NamedTuple):
    """A format of ggml: `weights` of a row share a block of `size` bytes, of which those from
    `scale_at` on are a half float; `spread` is what its weights have at a scale of 1."""

    weights: int
    size: int
    scale_at: int
    spread: float
    head: str  # the format that llama.cpp's own tool gives the head beside it


KINDS = {
    "Q8_0": Kind(32, 34, 0, 74, "Q8_0"),
    "Q4_0": Kind(32, 18, 0, 4.6, "Q6_K"),
    "Q4_K": Kind(256, 144, 0, 147, "Q6_K"),
    "Q6_K": Kind(256, 210, 208, 1370, "Q6_K"),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kind", choices=KINDS, required=True)
    parser.add_argument("--shape", type=json.loads, required=True, help="a TextShape's fields")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--positions", type=int, default=1024)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.gguf"
        write_gguf(file, options.shape, options.kind)
        model = Llama(file, options.threads, options.positions)
    print("ready", flush=True)
    for line in sys.stdin:
        what, *numbers = line.split()
        ms = getattr(model, what)(*map(int, numbers))
        print(ms, flush=True)
    return 0


def clock_of(threads: int) -> Callable[[], float]:
    """Of one thread its own time counts, whatever else runs on the machine."""
    return time.process_time if threads == 1 else time.perf_counter


def blocks(kind: str, rows: int, width: int, seed: int = 0) -> NDArray[np.uint8]:
    """Random weights [rows, bytes of a row], of a size that keeps activations near 1."""
    of = KINDS[kind]
    draw = np.random.default_rng(seed)
    found = draw.integers(0, 256, (rows, width // of.weights, of.size), np.uint8)
    scale = np.float16(width**-0.5 / of.spread)
    found[..., of.scale_at : of.scale_at + 2] = np.frombuffer(scale.tobytes(), np.uint8)
    if kind == "Q4_K":  # eight scales and eight minima of 32, in 6 bits each; the middle is 7.5
        least = np.float16(7.5 * scale)
        found[..., 2:4] = np.frombuffer(least.tobytes(), np.uint8)
        found[..., 4:12], found[..., 12:16] = 0xA0, 0
    return found.reshape(rows, -1)


def write_gguf(file: Path, s: dict[str, Any], kind: str) -> None:
    """A Qwen2 without a vocabulary's texts."""
    import gguf

    writer = gguf.GGUFWriter(file, "qwen2")
    writer.add_block_count(s["layers"])
    writer.add_context_length(s["max_positions"])
    writer.add_embedding_length(s["hidden"])
    writer.add_feed_forward_length(s["ffn"])
    writer.add_head_count(s["heads"])
    writer.add_head_count_kv(s["kv_heads"])
    writer.add_rope_freq_base(s["rope_theta"])
    writer.add_layer_norm_rms_eps(s["eps"])
    writer.add_vocab_size(s["vocab"])
    writer.add_tokenizer_model("no_vocab")

    def add(name: str, data: NDArray[Any], of: str = "") -> None:
        writer.add_tensor(name, data, raw_dtype=gguf.GGMLQuantizationType[of] if of else None)

    head = KINDS[kind].head
    add("token_embd.weight", blocks(kind, s["vocab"], s["hidden"]), kind)
    add("output.weight", blocks(head, s["vocab"], s["hidden"]), head)
    add("output_norm.weight", np.ones(s["hidden"], np.float32))
    queries, keys = s["heads"] * s["head_dim"], s["kv_heads"] * s["head_dim"]
    sizes = {"attn_q": (queries, s["hidden"]), "attn_output": (s["hidden"], queries)}
    sizes |= {f"attn_{name}": (keys, s["hidden"]) for name in "kv"}
    sizes |= {f"ffn_{name}": (s["ffn"], s["hidden"]) for name in ("gate", "up")}
    sizes["ffn_down"] = (s["hidden"], s["ffn"])
    weights = {name: blocks(kind, *size) for name, size in sizes.items()}
    norm = np.ones(s["hidden"], np.float32)
    for i in range(s["layers"]):
        for name, data in weights.items():
            add(f"blk.{i}.{name}.weight", data, kind)
        for name in "qkv":
            add(f"blk.{i}.attn_{name}.bias", np.zeros(sizes[f"attn_{name}"][0], np.float32))
        for name in ("attn_norm", "ffn_norm"):
            add(f"blk.{i}.{name}.weight", norm)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class Llama:
    """A loaded file with one sequence."""

    def __init__(self, file: Path, threads: int, positions: int) -> None:
        import llama_cpp as api

        self._api: Any = api
        self._clock = clock_of(threads)
        self._silent = api.llama_log_callback(lambda *_: None)
        api.llama_log_set(self._silent, ctypes.c_void_p(0))
        api.llama_backend_init()
        settings = api.llama_model_default_params()
        self._model = api.llama_model_load_from_file(str(file).encode(), settings)
        wanted = api.llama_context_default_params()
        wanted.n_ctx, wanted.n_batch = positions, positions
        wanted.n_threads = wanted.n_threads_batch = threads
        self._context = self._model and api.llama_init_from_model(self._model, wanted)
        if not self._context:
            raise SystemExit("llama.cpp does not take the file that was written for it")
        self._batch = api.llama_batch_init(positions, 0, 1)

    def first(self, n: int) -> float:
        return self._decode(0, n, num_logits=1)

    def step(self, n: int, q: int) -> float:
        """Behind n tokens that it has read."""
        return self._decode(n, q, num_logits=q)

    def _decode(self, start: int, n: int, num_logits: int) -> float:
        api, batch = self._api, self._batch
        api.llama_memory_seq_rm(api.llama_get_memory(self._context), 0, start, -1)
        batch.n_tokens = n
        for i in range(n):
            batch.token[i], batch.pos[i] = 7 + i % 50, start + i
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
            batch.logits[i] = i >= n - num_logits
        started = self._clock()
        status = api.llama_decode(self._context, batch)
        logits = api.llama_get_logits_ith(self._context, -1)
        took = 1000 * (self._clock() - started)
        if status or not np.isfinite(logits[0]):
            raise SystemExit(f"llama.cpp could not decode: status {status}")
        return took


if __name__ == "__main__":
    sys.exit(main())
