"""One decoding step of the cloud's text model on OpenVINO, ONNX Runtime and torch, beside ours.
Out: ratios.

`pip install '.[peers]'`, then `python -m bench.peers [--rounds 200]`. All have the same weights,
one row, one token, and 100 or 1,500 positions in the cache. All have `--threads` threads; ours uses
one. The peers get the cache as it lies, and give back the new position's keys and values. So
nobody's driver copies the cache; the concatenation inside is theirs to fuse. Each arm first decodes
greedily from the same prefilled cache. The table tells how many of its tokens are those of
transformers' modules, and the largest difference of the first logits. Then all arms run in turn,
and the ratios are medians of pairs.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bench.common import median, progress, table_of, write
from bench.keep import options_of
from streamer.model.engines.engine import Engine, Row
from streamer.model.engines.load import load_weights
from streamer.model.engines.stock import StockText, load_stock
from streamer.model.engines.text import TextModel
from streamer.model.kernels.text import FastText
from streamer.model.runtime.onnx import onnxruntime
from streamer.model.thinker import resolve, shapes_of

CONTEXTS = (100, 1500)
NUM_GREEDY = 40
PROMPT = 6
# logits [1, vocab]; keys and values [layers, kv_heads, 1, head_dim]
Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]
# of an id, its position, keys and values before it
Run = Callable[[int, int, np.ndarray, np.ndarray], Arrays]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=200, help="timed rounds of each length")
    parser.add_argument("--threads", type=int, default=1)
    options = options_of(parser)
    torch.set_num_threads(options.threads)
    directory = resolve("embedded", "cloud")
    shape = shapes_of(directory).text
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")  # of exporters: what they write is checked below
        step = Step(TextModel(load_weights(directory, torch.float32, "cpu"), shape))
        peers = dict(_peers(step, Path(folder), options.threads))
        if list(peers) == ["torch, eager"]:
            print("bench.peers: no peer is installed here; pip install '.[peers]'", file=sys.stderr)
            return 2
        ours = FastText(load_weights(directory, torch.float32, "cpu"), shape)
        texts = {"ours": ours, "transformers' modules": StockText(load_stock(directory), shape)}
        rows = [row for n in CONTEXTS for row in compare(texts, peers, n, options.rounds)]
    print(table_of(rows))
    print("written:", write("peers", rows))
    return 0


class Step(torch.nn.Module):
    """One id through the text model, the cache as plain inputs: what exporters can follow."""

    def __init__(self, text: TextModel) -> None:
        super().__init__()
        self.text = text
        self.cos, self.sin = (part[:, 0] for part in text._rotary(4096))

    def forward(
        self, ids: Tensor, position: Tensor, keys: Tensor, values: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """ids [1], position [1], keys and values [layers, kv_heads, n, head_dim] -> see Arrays."""
        text = self.text
        s = self.text.shape
        x = F.embedding(ids, text.embedding)
        cos = self.cos[position][:, None]
        sin = self.sin[position][:, None]
        new = []
        for i, layer in enumerate(text.layers):
            q, k, v = text._heads(
                F.linear(text._rms(x, layer.norm_in), layer.qkv, layer.qkv_bias), cos, sin
            )
            new.append((k.transpose(0, 1), v.transpose(0, 1)))
            all_keys, all_values = (
                torch.cat(pair, 1) for pair in zip((keys[i], values[i]), new[-1], strict=True)
            )
            scores = (
                q.view(s.kv_heads, -1, s.head_dim) @ all_keys.transpose(1, 2) * s.head_dim**-0.5
            )
            x = x + F.linear((scores.softmax(-1) @ all_values).reshape(1, -1), layer.out)
            gate, up = F.linear(text._rms(x, layer.norm_mlp), layer.gate_up).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, layer.down)
        return text.logits(x), torch.stack([k for k, _ in new]), torch.stack([v for _, v in new])


def _peers(step: Step, folder: Path, threads: int) -> Iterator[tuple[str, Run]]:
    """Every peer that can be had here; one line for each that cannot."""
    s = step.text.shape
    cache = torch.zeros(s.layers, s.kv_heads, 10, s.head_dim)
    example = (torch.tensor([7]), torch.tensor([10]), cache, cache)
    yield "torch, eager", lambda *given: tuple(part.numpy() for part in _eager(step, *given))  # type: ignore[misc]
    for kind in (_openvino, _onnxruntime):
        try:
            yield from kind(step, example, folder, threads)
        except ImportError as missing:
            told = f"{missing.name} is not installed; pip install '.[peers]'"
            print(f"{kind.__name__[1:]}: not available here ({told})")


@torch.inference_mode()
def _eager(step: Step, *given: Any) -> Any:
    return step(*(torch.from_numpy(part) for part in _inputs(*given)))


def _inputs(token: int, position: int, keys: np.ndarray, values: np.ndarray) -> list[np.ndarray]:
    return [np.array([token]), np.array([position]), keys, values]


def _openvino(step: Step, example: Any, folder: Path, threads: int) -> Iterator[tuple[str, Run]]:
    import openvino

    model = openvino.convert_model(step, example_input=example)
    settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    settings["INFERENCE_NUM_THREADS"] = threads
    made = openvino.compile_model(model, "CPU", settings)

    def run(*given: Any) -> Any:
        found = made(_inputs(*given), share_inputs=True)
        return tuple(found[i] for i in range(3))

    yield "OpenVINO", run


def _onnxruntime(step: Step, example: Any, folder: Path, threads: int) -> Iterator[tuple[str, Run]]:
    import onnx

    runtime = onnxruntime()  # without its telemetry: first of all that imports it
    from onnxruntime.quantization import quantize_dynamic

    names = ["ids", "position", "keys", "values"]
    plain = folder / "step.onnx"
    small = folder / "int8.onnx"
    folded = folder / "folded.onnx"
    lengths = {"keys": {2: "n"}, "values": {2: "n"}}
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        how = {"dynamo": False, "opset_version": 17}
        torch.onnx.export(step, example, plain, input_names=names, dynamic_axes=lengths, **how)
    # the exporter writes weights as constants, and the quantiser skips those
    once = runtime.SessionOptions()
    once.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    once.optimized_model_filepath = str(folded)
    runtime.InferenceSession(plain, once, providers=["CPUExecutionProvider"])
    logging.disable(logging.WARNING)  # quantize_dynamic advises to do what was just done
    quantize_dynamic(folded, small)
    logging.disable(logging.NOTSET)
    found = sum(node.op_type == "MatMulInteger" for node in onnx.load(small).graph.node)
    if found != (wanted := 4 * step.text.shape.layers + 1):
        raise RuntimeError(f"int8: {found} products of {wanted} were quantised")
    for name, file in (("ONNX Runtime", plain), ("ONNX Runtime, int8", small)):
        settings = runtime.SessionOptions()
        settings.intra_op_num_threads = threads
        settings.log_severity_level = 3
        made = runtime.InferenceSession(file, settings, providers=["CPUExecutionProvider"])

        def run(*given: Any, made: Any = made) -> Any:
            return made.run(None, dict(zip(names, _inputs(*given), strict=True)))

        yield name, run


def compare(
    texts: dict[str, Any], peers: dict[str, Run], context: int, rounds: int
) -> list[dict[str, Any]]:
    """Greedy ids of every arm, then all arms in turn."""
    chance = torch.Generator().manual_seed(context)
    ids = torch.randint(0, 900, (context,), generator=chance).tolist()
    arms: dict[str, Callable[[], object]] = {}
    said = {}
    logits = {}
    for name, text in texts.items():
        engine = Engine(text, text.slots(1, PROMPT + context + NUM_GREEDY), [5] * PROMPT)
        slot = engine.open()
        at = PROMPT + context
        engine.step([Row(slot, PROMPT, ids, num_logits=0)])
        if isinstance(text, StockText):
            parts = (engine.slots.keys, engine.slots.values)
            keys, values = (part[:, 0, :, :at].numpy().copy() for part in parts)

        def say(token, i, engine=engine, at=at):
            return engine.step([Row(0, at + i, [token])])[0].numpy()

        said[name], logits[name] = greedy(say)
        arms[name] = lambda engine=engine, at=at: engine.step([Row(0, at, [7])])
    for name, run in peers.items():
        said[name], logits[name] = greedy(_Growing(run, keys, values))
        arms[name] = lambda run=run: run(7, PROMPT + context, keys, values)
    times: dict[str, list[float]] = {name: [] for name in arms}
    for i in progress(range(rounds + 5), f"{context} positions"):
        for name, arm in arms.items():
            arm()
            started = time.perf_counter()
            arm()
            if i >= 5:
                times[name].append(1000 * (time.perf_counter() - started))
    wanted = "transformers' modules"
    rows = []
    for name, of_arm in times.items():
        num_same = sum(a == b for a, b in zip(said[name], said[wanted], strict=True))
        rows.append(
            {
                "context": context,
                "arm": name,
                "ms": median(of_arm),
                "ratio to ours": median(t / o for t, o in zip(of_arm, times["ours"], strict=True)),
                "same ids": f"{num_same} of {NUM_GREEDY}",
                "largest difference": f"{abs(logits[name] - logits[wanted]).max():.1e}",
            }
        )
    return rows


def greedy(say: Callable[[int, int], np.ndarray]) -> tuple[list[int], np.ndarray]:
    """NUM_GREEDY ids, and the logits of the first; `say` gives logits [1, vocab] of an id, the
    i-th."""
    ids = []
    first = None
    token = 7
    for i in range(NUM_GREEDY):
        logits = say(token, i)
        first = np.array(logits) if first is None else first
        token = int(logits[0].argmax())
        ids.append(token)
    assert first is not None
    return ids, first


class _Growing:
    """A peer's cache: what it gave back is put behind what it was given."""

    def __init__(self, run: Run, keys: np.ndarray, values: np.ndarray) -> None:
        self._run = run
        self._keys = keys
        self._values = values

    def __call__(self, token: int, i: int) -> np.ndarray:
        logits, key, value = self._run(token, self._keys.shape[2], self._keys, self._values)
        self._keys = np.concatenate([self._keys, key], 2)
        self._values = np.concatenate([self._values, value], 2)
        return logits


if __name__ == "__main__":
    sys.exit(main())
