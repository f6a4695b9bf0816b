"""Which library multiplies by weights of few bits fastest? Out: a table, JSON lines.

`python -m bench.kernels [--size 3b]`, 1 minute, 3 GB: the products of two layers, 1 to 48 rows, in
each kernel that is there: ONNX Runtime's MatMulNBits (which the engines take), torch's own for 8
and 4 bits, oneDNN's for integers through torch, OpenVINO where it is installed. Each as a share of
what a copy of the same bytes takes on the same threads, the least of some rounds, all in turn.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from streamer.model.engines.few_bits_graphs import Graph
from torch import Tensor

from bench.common import progress, table, write
from bench.keep import options_of
from bench.shapes import SIZES
from streamer.model.checkpoint.shapes import TextShape
from streamer.model.engines.few_bits import FORMS, Form, Packed, pack
from streamer.model.engines.few_bits_model import Part, even

ROWS = (1, 2, 4, 5, 8, 48)  # 5: a verified block; 48: nearly a window of audio
LAYERS = 2  # more bytes than a processor's cache
Product = Callable[[Tensor], object]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=SIZES, default="3b")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    options = options_of(parser)
    torch.set_num_threads(options.threads)
    weights = list(_weights(SIZES[options.size].text))
    rows = [
        row for name, form in FORMS.items() for row in measured(name, form, weights, options.rounds)
    ]
    print(table(list(rows[0]), [list(row.values()) for row in rows]))
    print("written:", write("kernels", [vars(options), *rows]))
    return 0


def _weights(s: TextShape) -> Iterator[Tensor]:
    width = s.heads * s.head_dim
    sizes = [(width + 2 * s.kv_heads * s.head_dim, s.hidden), (s.hidden, width)]
    sizes += [(2 * s.ffn, s.hidden), (s.hidden, s.ffn)]
    for _ in range(LAYERS):
        for size in sizes:
            yield torch.randn(size).mul_(size[1] ** -0.5)


def measured(name: str, form: Form, weights: list[Tensor], rounds: int) -> list[dict[str, Any]]:
    """A row per kernel: per number of rows, the time of a copy of the weights over its own."""
    packed = [pack(weight, form) for weight in weights]
    size = sum(each.data.nbytes + each.scales.nbytes for each in packed)
    source = torch.ones(size // 4)
    copy = torch.empty_like(source)
    arms = {kind: make(packed, weights) for kind, make in kernels(form).items()}
    shares: dict[str, dict[int, float]] = {kind: {} for kind in arms}
    for num in progress(ROWS, name):
        given = {w.shape[1]: torch.randn(num, w.shape[1]) for w in weights}
        runs = {"copy": lambda: copy.copy_(source)} | {
            kind: lambda arm=arm, given=given: [product(given[at]) for at, product in arm]
            for kind, arm in arms.items()
        }
        best = dict.fromkeys(runs, float("inf"))
        for _ in range(rounds):
            for kind, run in runs.items():
                started = time.perf_counter()
                run()
                best[kind] = min(best[kind], time.perf_counter() - started)
        for kind in arms:
            shares[kind][num] = best["copy"] / best[kind]
    return [
        {"engine": name, "kernel": kind, **{f"{num} rows": share for num, share in found.items()}}
        for kind, found in shares.items()
    ]


Arm = list[tuple[int, Product]]
Maker = Callable[[list[Packed], list[Tensor]], Arm]


def kernels(form: Form) -> dict[str, Maker]:
    found: dict[str, Maker] = {"ONNX Runtime": _onnxruntime}
    found["torch"] = _torch8 if form.bits == 8 else _torch4
    if form.bits == 8:
        found |= {"oneDNN, 8 x 8": _onednn(planes=1), "oneDNN, 8 x 16": _onednn(planes=2)}
    try:
        import openvino  # noqa: F401 - only whether it is there
    except ImportError:
        return found
    return found | {"OpenVINO": _openvino}


def _onnxruntime(packed: list[Packed], weights: list[Tensor]) -> Arm:
    def made(each: Packed, weight: Tensor) -> Product:
        graph = Graph(each.form)
        x = graph.take("x", each.inner)
        part = Part(graph.bytes(graph.times(x, weight), len(weight)))
        return lambda rows: part.run(x=even(rows))

    return [(p.inner, made(p, w)) for p, w in zip(packed, weights, strict=True)]


def _torch8(packed: list[Packed], weights: list[Tensor]) -> Arm:
    """One scale per row of weights, activations in bfloat16."""

    def made(weight: Tensor) -> Product:
        scales = (weight.abs().amax(-1) / 127).bfloat16()
        rounded = (weight / scales.float()[:, None]).round_().clamp_(-127, 127).to(torch.int8)
        return lambda x: torch.ops.aten._weight_int8pack_mm(x.bfloat16(), rounded, scales)

    return [(w.shape[1], made(w)) for w in weights]


def _torch4(packed: list[Packed], weights: list[Tensor]) -> Arm:
    """The same groups, activations in bfloat16; torchao's on a CPU calls this one."""

    def made(each: Packed) -> Product:
        group = each.form.group
        q = torch.from_numpy(each.data).to(torch.int32)
        q = torch.stack([q & 15, q >> 4], -1).reshape(len(q), -1)
        data = torch.ops.aten._convert_weight_to_int4pack_for_cpu(q, 1)
        scales = torch.from_numpy(each.scales).T.bfloat16()
        both = torch.stack([scales, torch.zeros_like(scales)], -1).contiguous()
        return lambda x: torch.ops.aten._weight_int4pack_mm_for_cpu(x.bfloat16(), data, group, both)

    return [(p.inner, made(p)) for p in packed]


def _onednn(planes: int) -> Maker:
    """One scale per row of weights and of activations, and sums of integers: a row's bits depend on
    that row alone. With two planes, activations are two rows of 8 bits each, together 16."""
    finer = 254  # steps of the second plane in one of the first

    def made(weight: Tensor) -> Product:
        scales = weight.abs().amax(-1) / 127
        rounded = (weight / scales[:, None]).round_().clamp_(-127, 127).to(torch.int8)
        data = torch.ops.onednn.qlinear_prepack(rounded, None)
        zeros = torch.zeros(len(weight), dtype=torch.int32)
        output = (None, 1.0, 0, torch.float32, "none", [], "")

        def times(x: Tensor) -> Tensor:
            step = x.abs().amax(-1, keepdim=True).clamp_min_(1e-30).div_(127)
            rows = x / step
            if planes == 2:
                coarse = rows.round()
                rows = torch.cat((coarse, (rows - coarse).mul_(finer)))
            # with signed bytes oneDNN 3.x has only its reference kernel, a hundred times slower
            given = rows.round_().add_(128).to(torch.uint8)
            sums = torch.ops.onednn.qlinear_pointwise(given, 1.0, 128, data, scales, zeros, *output)
            parts = sums.split(len(x))
            return (parts[0] if planes == 1 else parts[0].add_(parts[1], alpha=1 / finer)).mul_(
                step
            )

        return times

    return lambda packed, weights: [(w.shape[1], made(w)) for w in weights]


def _openvino(packed: list[Packed], weights: list[Tensor]) -> Arm:
    """The same groups; activations rounded to 8 bits in groups, too."""
    import numpy as np
    import openvino
    from openvino import opset13 as op

    core = openvino.Core()
    settings = {"INFERENCE_NUM_THREADS": torch.get_num_threads(), "NUM_STREAMS": 1}
    settings |= {"DYNAMIC_QUANTIZATION_GROUP_SIZE": 32, "INFERENCE_PRECISION_HINT": "f32"}

    def made(each: Packed) -> Product:
        x = op.parameter([-1, each.inner], np.float32, name="x")
        num, groups = each.scales.shape
        size = openvino.Shape([num, groups, each.form.group])
        kind = openvino.Type.u8 if each.form.bits == 8 else openvino.Type.u4
        data = op.constant(openvino.Tensor(each.data.reshape(-1), size, kind))
        middle = op.constant(np.float32(each.form.middle))
        plain = op.subtract(op.convert(data, np.float32), middle)
        scaled = op.multiply(plain, op.constant(each.scales[..., None]))
        weight = op.reshape(scaled, op.constant(np.array([num, each.inner])), False)
        model = openvino.Model([op.matmul(x, weight, False, True)], [x])
        request = core.compile_model(model, "CPU", settings).create_infer_request()
        return lambda rows: request.infer({"x": rows.numpy()}, share_inputs=True)

    return [(p.inner, made(p)) for p in packed]


if __name__ == "__main__":
    sys.exit(main())
