"""The products of a layer as ONNX graphs. In: a layer's tensors. Out: a model's bytes.

A layer is two graphs, before and after its attention, so that keys and values stay in the engine's
own slots. Products are MatMulNBits of ONNX Runtime: weights of few bits, activations rounded to 8
bits in groups, sums of integers. Measured beside others by `python -m bench.kernels`. The library
`onnx` is needed to make a graph, not to run it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from streamer.model.checkpoint.weights import ModelError
from streamer.model.engines.few_bits import Form, pack

OPSET, IR = 20, 10
TO_INT8 = 4  # MatMulNBits' accuracy_level: activations in 8 bits
Take = Callable[[str], Tensor]


class Graph:
    """Nodes that are added one behind the other; every value is float32 [rows, columns]."""

    def __init__(self, form: Form) -> None:
        self._onnx = _library()
        self._form = form
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._inputs: list[Any] = []

    def take(self, name: str, width: int) -> str:
        """An input."""
        kind = self._onnx.TensorProto.FLOAT
        self._inputs.append(self._onnx.helper.make_tensor_value_info(name, kind, ["rows", width]))
        return name

    def add(self, kind: str, *inputs: str, domain: str = "", **more: Any) -> str:
        """A node of one output; its name."""
        name = f"v{len(self._nodes)}"
        made = self._onnx.helper.make_node(kind, inputs, [name], domain=domain, **more)
        self._nodes.append(made)
        return name

    def halves(self, x: str) -> tuple[str, str]:
        names = (f"v{len(self._nodes)}a", f"v{len(self._nodes)}b")
        made = self._onnx.helper.make_node("Split", [x], names, axis=1, num_outputs=2)
        self._nodes.append(made)
        return names

    def constant(self, tensor: Tensor) -> str:
        return self._constant(tensor.float().numpy())

    def _constant(self, values: Any) -> str:
        name = f"c{len(self._constants)}"
        self._constants.append(self._onnx.numpy_helper.from_array(np.asarray(values), name))
        return name

    def times(self, x: str, weight: Tensor, bias: Tensor | None = None) -> str:
        """x @ weight.T + bias, the weights in few bits."""
        packed = pack(weight, self._form)
        parts = (self._constant(packed.data), self._constant(packed.scales))
        sizes = {"N": len(weight), "K": weight.shape[1]}
        form = {"bits": self._form.bits, "block_size": self._form.group}
        product = self.add(
            "MatMulNBits",
            x,
            *parts,
            domain="com.microsoft",
            accuracy_level=TO_INT8,
            **sizes,
            **form,
        )
        return product if bias is None else self.add("Add", product, self.constant(bias))

    def rms(self, x: str, weight: Tensor, eps: float) -> str:
        return self.add(
            "SimplifiedLayerNormalization", x, self.constant(weight), axis=-1, epsilon=eps
        )

    def norm(self, x: str, weight: Tensor, bias: Tensor) -> str:
        parts = (self.constant(weight), self.constant(bias))
        return self.add("LayerNormalization", x, *parts, axis=-1, epsilon=1e-5)

    def bytes(self, out: str, width: int) -> bytes:
        """The model, which gives `out`."""
        h = self._onnx.helper
        result = h.make_tensor_value_info(out, self._onnx.TensorProto.FLOAT, ["rows", width])
        graph = h.make_graph(self._nodes, "part", self._inputs, [result], self._constants)
        sets = [h.make_opsetid("", OPSET), h.make_opsetid("com.microsoft", 1)]
        made: bytes = h.make_model(graph, opset_imports=sets, ir_version=IR).SerializeToString()
        return made


def head(form: Form, norm: Tensor, weight: Tensor, eps: float) -> bytes:
    """hidden [n, hidden] -> logits [n, vocab]."""
    g = Graph(form)
    x = g.take("x", weight.shape[1])
    return g.bytes(g.times(g.rms(x, norm, eps), weight), len(weight))


def text_before(form: Form, take: Take, eps: float) -> bytes:
    """x [n, hidden] -> q, k and v side by side."""
    qkv = _joined(take, [f"self_attn.{p}_proj.weight" for p in "qkv"])
    bias = _joined(take, [f"self_attn.{p}_proj.bias" for p in "qkv"])
    g = Graph(form)
    x = g.take("x", qkv.shape[1])
    normed = g.rms(x, take("input_layernorm.weight"), eps)
    return g.bytes(g.times(normed, qkv, bias), len(qkv))


def text_after(form: Form, take: Take, eps: float) -> bytes:
    """attended [n, heads * head_dim], x [n, hidden] -> x behind this layer."""
    out = take("self_attn.o_proj.weight")
    g = Graph(form)
    attended, x = g.take("attended", out.shape[1]), g.take("x", len(out))
    x = g.add("Add", x, g.times(attended, out))
    normed = g.rms(x, take("post_attention_layernorm.weight"), eps)
    wide = _joined(take, ["mlp.gate_proj.weight", "mlp.up_proj.weight"])
    gate, up = g.halves(g.times(normed, wide))
    inner = g.add("Mul", g.add("Mul", gate, g.add("Sigmoid", gate)), up)
    x = g.add("Add", x, g.times(inner, take("mlp.down_proj.weight")))
    return g.bytes(x, len(out))


def tower_before(form: Form, take: Take) -> bytes:
    """x [n, width] -> q, k and v side by side; k has no bias in the checkpoint."""
    qkv = _joined(take, [f"self_attn.{p}_proj.weight" for p in "qkv"])
    bias = take("self_attn.q_proj.bias").new_zeros(3, qkv.shape[1])
    bias[0], bias[2] = take("self_attn.q_proj.bias"), take("self_attn.v_proj.bias")
    g = Graph(form)
    x = g.take("x", qkv.shape[1])
    normed = g.norm(x, take("self_attn_layer_norm.weight"), take("self_attn_layer_norm.bias"))
    return g.bytes(g.times(normed, qkv, bias.flatten()), len(qkv))


def tower_after(form: Form, take: Take) -> bytes:
    """attended, x [n, width] -> x behind this layer."""
    out = take("self_attn.out_proj.weight")
    g = Graph(form)
    attended, x = g.take("attended", out.shape[1]), g.take("x", len(out))
    x = g.add("Add", x, g.times(attended, out, take("self_attn.out_proj.bias")))
    normed = g.norm(x, take("final_layer_norm.weight"), take("final_layer_norm.bias"))
    inner = g.add("Gelu", g.times(normed, take("fc1.weight"), take("fc1.bias")))
    x = g.add("Add", x, g.times(inner, take("fc2.weight"), take("fc2.bias")))
    return g.bytes(x, len(out))


def _joined(take: Take, names: Sequence[str]) -> Tensor:
    import torch

    return torch.cat([take(name) for name in names])


def _library() -> Any:
    try:
        import onnx
    except ImportError:
        way = "pip install 'streamer-speech[large]', or take engine fast"
        raise ModelError("engines int8 and int4", f"need the library onnx; {way}") from None
    return onnx
