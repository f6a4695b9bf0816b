"""Which library multiplies by weights of few bits fastest? Out: a table_of, JSON lines.

`python -m bench.kernels [--size 3b]`, 2 minutes, 3 GB: the products of two layers, 1 to 48 rows, in
each kernel that is there: ours (which the engines take), torch's own for 8 and 4 bits, oneDNN's and
FBGEMM's for integers through torch, ONNX Runtime's MatMulNBits and OpenVINO where the extra `peers`
is installed. Each as a share of what a copy of the same bytes takes on the same threads, the least
of some rounds, all in turn. oneDNN's sums are right only where the processor has VNNI.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from bench.common import options_of, progress, table_of, write
from bench.shapes import SIZES
from streamer.extras.large.matrix import FORMS, Form, pack
from streamer.model.checkpoint.shapes import TextShape
from streamer.model.runtime.onnx import onnxruntime

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
    os.environ["OMP_NUM_THREADS"] = str(options.threads)  # ours
    weights = list(_weights(SIZES[options.size].text))
    rows = [
        row for name, form in FORMS.items() for row in measured(name, form, weights, options.rounds)
    ]
    print(table_of(rows))
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
    size = sum(w.numel() for w in weights) * (form.bits * form.group + 32) // (8 * form.group)
    source = torch.ones(size // 4)
    copy = torch.empty_like(source)
    # one thread's own time counts, whatever else runs on the machine
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    arms = {
        kind: [(w.shape[1], make(w, form)) for w in progress(weights, kind)]
        for kind, make in kernels(form).items()
    }
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
                time.sleep(0.02)  # the last kernel's threads no longer wait for work on the cores
                started = clock()
                run()
                best[kind] = min(best[kind], clock() - started)
        for kind in arms:
            shares[kind][num] = best["copy"] / best[kind]
    return [
        {"engine": name, "kernel": kind, **{f"{num} rows": share for num, share in found.items()}}
        for kind, found in shares.items()
    ]


Maker = Callable[[Tensor, Form], Product]


def kernels(form: Form) -> dict[str, Maker]:
    found: dict[str, Maker] = {"ours": lambda weight, form: pack(weight, form).times}
    if form.bits == 8:
        found |= {"torch": _torch8, "oneDNN": _onednn, "FBGEMM, 7 bits": _fbgemm}
    else:
        found["torch"] = _torch4
    if find_spec("onnx"):
        found["ONNX Runtime"] = _onnxruntime
    return found | ({"OpenVINO": _openvino} if find_spec("openvino") else {})


def _grouped(weight: Tensor, form: Form) -> tuple[Tensor, Tensor]:
    """Integers from 0 on [out, in], and a scale per group: any will do for a time."""
    q = torch.randint(0, 1 << form.bits, weight.shape, dtype=torch.uint8)
    return q, torch.rand(len(weight), weight.shape[1] // form.group)


def _onnxruntime(weight: Tensor, form: Form) -> Product:
    """Activations rounded to 8 bits in groups; rows are filled up to an even number, so that a
    row's bits depend on it alone."""
    import onnx

    q, scales = _grouped(weight, form)
    if form.bits == 4:
        q = q[:, 0::2] | (q[:, 1::2] << 4)
    out, inner = weight.shape
    data = q.view(out, inner // form.group, -1)
    h, kind = onnx.helper, onnx.TensorProto.FLOAT
    names = zip(("w", "s"), (data, scales), strict=True)
    constants = [onnx.numpy_helper.from_array(of.numpy(), name) for name, of in names]
    sizes = {"N": out, "K": inner, "bits": form.bits, "block_size": form.group}
    more = {"domain": "com.microsoft", "accuracy_level": 4}
    node = h.make_node("MatMulNBits", ["x", "w", "s"], ["y"], **sizes, **more)
    ends = [
        [h.make_tensor_value_info(name, kind, ["rows", width])]
        for name, width in (("x", inner), ("y", out))
    ]
    graph = h.make_graph([node], "product", *ends, constants)
    sets = [h.make_opsetid("", 20), h.make_opsetid("com.microsoft", 1)]
    model = h.make_model(graph, opset_imports=sets, ir_version=10).SerializeToString()
    options = onnxruntime().SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    providers = ["CPUExecutionProvider"]
    session = onnxruntime().InferenceSession(model, options, providers=providers)
    even = torch.nn.functional.pad
    return lambda x: session.run(None, {"x": even(x, (0, 0, 0, len(x) % 2)).numpy()})


def _by_row(weight: Tensor) -> tuple[Tensor, Tensor]:
    """int8, and one scale per row of weights."""
    scales = weight.abs().amax(-1) / 127
    return (weight / scales[:, None]).round_().clamp_(-127, 127).to(torch.int8), scales


def _torch8(weight: Tensor, form: Form) -> Product:
    """Activations in bfloat16."""
    q, scales = _by_row(weight)
    few = scales.bfloat16()
    return lambda x: torch.ops.aten._weight_int8pack_mm(x.bfloat16(), q, few)


def _torch4(weight: Tensor, form: Form) -> Product:
    """The same groups, activations in bfloat16; torchao's on a CPU calls this one."""
    q, scales = _grouped(weight, form)
    data = torch.ops.aten._convert_weight_to_int4pack_for_cpu(q.to(torch.int32), 1)
    few = scales.T.bfloat16()
    both = torch.stack([few, torch.zeros_like(few)], -1).contiguous()
    times = torch.ops.aten._weight_int4pack_mm_for_cpu
    return lambda x: times(x.bfloat16(), data, form.group, both)


def _onednn(weight: Tensor, form: Form) -> Product:
    """Activations in 8 bits, one step for a whole row."""
    q, scales = _by_row(weight)
    data = torch.ops.onednn.qlinear_prepack(q, None)
    zeros = torch.zeros(len(weight), dtype=torch.int32)
    output = (None, 1.0, 0, torch.float32, "none", [], "")
    times = torch.ops.onednn.qlinear_pointwise

    # with signed bytes oneDNN 3.x has only its reference kernel, a hundred times slower
    return lambda x: _stepped(
        x, 127, lambda q: times(q.add_(128).to(torch.uint8), 1.0, 128, data, scales, zeros, *output)
    )


def _fbgemm(weight: Tensor, form: Form) -> Product:
    """Activations in 7 bits, one step for a whole row: exact on every processor, where two products
    of 8 bits overflow 16 without VNNI."""
    q, scales = _by_row(weight)
    zeros = torch.zeros(len(weight), dtype=torch.long)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch will drop such tensors
        tensor = torch._make_per_channel_quantized_tensor(q, scales.double(), zeros, 0)
    data = torch.ops.quantized.linear_prepack(tensor, None)
    times = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32
    return lambda x: _stepped(x, 63, lambda q: times(q, 1.0, 64, data))


def _stepped(x: Tensor, most: int, times: Product) -> Tensor:
    """x in steps of its row's largest over `most`, times the weights."""
    step = x.abs().amax(-1, keepdim=True).clamp_min_(1e-30).div_(most)
    sums: Any = times((x / step).round_())
    return sums.mul_(step)


def _openvino(weight: Tensor, form: Form) -> Product:
    """The same groups; activations rounded to 8 bits in groups, too."""
    import numpy as np
    import openvino
    from openvino import opset13 as op

    core = openvino.Core()
    settings = {"INFERENCE_NUM_THREADS": torch.get_num_threads(), "NUM_STREAMS": 1}
    settings |= {"DYNAMIC_QUANTIZATION_GROUP_SIZE": 32, "INFERENCE_PRECISION_HINT": "f32"}
    q, scales = _grouped(weight, form)
    if form.bits == 4:
        q = q[:, 0::2] | (q[:, 1::2] << 4)
    out, inner = weight.shape
    x = op.parameter([-1, inner], np.float32, name="x")
    size = openvino.Shape([out, inner // form.group, form.group])
    kind = openvino.Type.u8 if form.bits == 8 else openvino.Type.u4
    data = op.constant(openvino.Tensor(q.numpy().reshape(-1), size, kind))
    middle = op.constant(np.float32(1 << (form.bits - 1)))
    plain = op.subtract(op.convert(data, np.float32), middle)
    scaled = op.multiply(plain, op.constant(scales.numpy()[..., None]))
    whole = op.reshape(scaled, op.constant(np.array([out, inner])), False)
    model = openvino.Model([op.matmul(x, whole, False, True)], [x])
    request = core.compile_model(model, "CPU", settings).create_infer_request()
    return lambda rows: request.infer({"x": rows.numpy()}, share_inputs=True)


if __name__ == "__main__":
    sys.exit(main())
