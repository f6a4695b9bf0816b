"""The peers of bench/peers.py. In: our text model. Out: its step in every runtime that is here."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from streamer.model.engines.text import TextModel
from streamer.model.runtime.onnx import onnxruntime

# logits [1, vocab]; keys and values [layers, kv_heads, 1, head_dim]
Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]
# of an id, its position, keys and values before it
Run = Callable[[int, int, np.ndarray, np.ndarray], Arrays]


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


def peers_of(step: Step, folder: Path, threads: int) -> Iterator[tuple[str, Run]]:
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
