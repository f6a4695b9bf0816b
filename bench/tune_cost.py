"""What does tuning a 3B take? In: a published shape. Out: memory and time of slices of it, rows.

`python -m bench.tune_cost [--model 3B] [--layers 1 3] [--seconds 10 20]` (4 minutes, 5 GB) tunes
slices of the shape, of random weights: a step on one turn, in a process of its own for each cell.
Memory is the most that a step holds beside the loaded weights. Time is the processor's, one thread,
as a ratio to what its products would take at the rate of one large product in the same process. The
whole model's is the sum over its layers, on paper.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from bench.common import table, write
from bench.keep import options_of
from bench.large import SHAPES
from streamer.extras.tune.examples import Example
from streamer.extras.tune.memory import FIXED, need_of
from streamer.extras.tune.options import TuneOptions
from streamer.model.checkpoint.layout import expected
from streamer.model.checkpoint.shapes import AudioShape, Shapes

AUDIO = AudioShape(1280, 2, 20, 5120, 128, 100, 0)  # two of its 32 layers: they keep nothing
PROMPT, ANSWER, PER_S = 60, 60, 25
AUDIO_ID = 7


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=SHAPES, default="3B")
    parser.add_argument("--layers", type=int, nargs="+", default=[1, 3])
    parser.add_argument("--seconds", type=int, nargs="+", default=[10, 20])
    parser.add_argument("--paper", action="store_true", help="whole models by the formula alone")
    parser.add_argument("--cell", type=int, nargs=2, help=argparse.SUPPRESS)
    options = options_of(parser)
    if options.cell:
        print(json.dumps(cell(options.model, *options.cell)))
        return 0
    if options.paper:
        rows = [on_paper(name, width) for name in ("3B", "7B") for width in (2, 4)]
        print(table(tuple(rows[0]), [tuple(row.values()) for row in rows]))
        return 0
    rows = []
    for layers in options.layers:
        for seconds in options.seconds:
            asked = ["--model", options.model, "--cell", str(layers), str(seconds)]
            run = [sys.executable, "-m", "bench.tune_cost", *asked]
            done = subprocess.run(run, capture_output=True, text=True, check=True)
            rows.append(json.loads(done.stdout.splitlines()[-1]))
    print(table(tuple(rows[0]), [tuple(row.values()) for row in rows]))
    print("written:", write("tune_cost", rows))
    return 0


def cell(name: str, layers: int, seconds: int) -> dict[str, Any]:
    """One slice, one turn: bytes and seconds of a step."""
    from streamer.extras.tune.lora import Adapted

    torch.set_num_threads(1)
    shapes = Shapes(
        replace(SHAPES[name], layers=layers), replace(AUDIO, output=SHAPES[name].hidden), AUDIO_ID
    )
    options = TuneOptions(recordings=("x",), model="x", out="x")
    with tempfile.TemporaryDirectory() as folder:
        num_params = save(Path(folder), shapes)
        model = Adapted(Path(folder), shapes, "cpu", torch.float32, options.rank, seed=0)
        example = example_of(Path(folder), seconds)
        optimiser = torch.optim.AdamW(model.parameters())
        model.model.train()
        Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
        before = status("VmRSS")
        spent = [step(model, example, optimiser) for _ in range(2)]
    positions = len(example)
    layer = (num_params_of_layer(shapes)) * layers
    # forward, forward again, back: no gradient of a frozen weight is made
    products = 2 * (3 * layer * positions + 2 * ANSWER * shapes.text.hidden * shapes.text.vocab)
    need = need_of(shapes, num_params, 4, options, positions, ANSWER)
    return {
        "layers": layers,
        "seconds": seconds,
        "positions": positions,
        "gb_step": (status("VmHWM") - before) / 1e9,
        "gb_step_on_paper": (need.activations + need.adapters) / 1e9,
        "gb_loaded": before / 1e9,
        "gb_loaded_on_paper": (FIXED + need.weights) / 1e9,
        "step_vs_products": min(spent) / (products / rate()),
    }


def on_paper(name: str, width: int) -> dict[str, Any]:
    """A whole model, turns of 30 s in memory and of 10 s in time, weights of `width` bytes."""
    text = SHAPES[name]
    shapes = Shapes(text, replace(AUDIO, layers=32, output=text.hidden), AUDIO_ID)
    options = TuneOptions(recordings=("x",), model="x", out="x")
    num_params = sum(math.prod(size) for _, size in expected(shapes))
    need = need_of(shapes, num_params, width, options, PROMPT + 30 * PER_S + ANSWER, ANSWER)
    positions = PROMPT + 10 * PER_S + ANSWER
    tower = sum(math.prod(size) for n, size in expected(shapes) if n.startswith("audio_tower"))
    learnt = 6 * num_params_of_layer(shapes) * text.layers * positions
    heard = 2 * tower * 2 * PER_S * 10
    said = 4 * ANSWER * text.hidden * text.vocab
    return {
        "model": name,
        "bytes of a weight": width,
        "parameters, G": num_params / 1e9,
        "weights, GB": need.weights / 1e9,
        "adapters, GB": need.adapters / 1e9,
        "a step, GB": need.activations / 1e9,
        "all, GB": need.total / 1e9,
        "products of a turn of 10 s, T": (learnt + heard + said) / 1e12,
    }


def num_params_of_layer(shapes: Shapes) -> int:
    """Numbers in the products of a layer."""
    s = shapes.text
    heads = s.hidden * s.head_dim * 2 * (s.heads + s.kv_heads)
    return heads + 3 * s.hidden * s.ffn


def status(name: str) -> float:
    """Bytes of this process, as Linux counts them."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(name + ":"))
    return 1024.0 * int(line.split()[1])


def step(model: Any, example: Example, optimiser: Any) -> float:
    """Seconds of the processor."""
    since = time.process_time()
    model.losses([example]).mean().backward()
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)
    return time.process_time() - since


def rate() -> float:
    """Additions and multiplications per second of one large product, here and now."""
    a, b = torch.ones(512, 2048), torch.ones(2048, 4096)
    spent = []
    for _ in range(5):
        since = time.process_time()
        a @ b
        spent.append(time.process_time() - since)
    return 2 * a.numel() * b.shape[1] / min(spent)


def example_of(folder: Path, seconds: int) -> Example:
    """A turn of noise."""
    mel = np.random.default_rng(0).standard_normal((128, 100 * seconds)).astype(np.float32)
    np.save(folder / "mel.npy", mel)
    prompt = (*range(10, 10 + PROMPT), *[AUDIO_ID] * (PER_S * seconds))
    return Example(folder / "mel.npy", prompt, tuple(range(ANSWER)), np.ones(ANSWER, bool))


def save(folder: Path, shapes: Shapes) -> int:
    """A directory with random weights of these shapes, bfloat16; how many there are."""
    drawn = 0.02 * torch.randn(1 << 20, dtype=torch.bfloat16)

    def filled(size: tuple[int, ...]) -> Tensor:
        return drawn.repeat(-(-math.prod(size) // len(drawn)))[: math.prod(size)].reshape(size)

    weights = {name: filled(size) for name, size in expected(shapes)}
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config_of(shapes)))
    return sum(weight.numel() for weight in weights.values())


def config_of(shapes: Shapes) -> dict[str, Any]:
    text, audio = shapes.text, shapes.audio
    half = text.head_dim // 2
    rope = {"rope_type": "default", "rope_theta": text.rope_theta}
    rope["mrope_section"] = [half // 4, half * 3 // 8, half - half // 4 - half * 3 // 8]
    return {
        "model_type": "qwen2_5_omni_thinker",
        "text_config": {
            "hidden_size": text.hidden,
            "num_hidden_layers": text.layers,
            "num_attention_heads": text.heads,
            "num_key_value_heads": text.kv_heads,
            "intermediate_size": text.ffn,
            "vocab_size": text.vocab,
            "tie_word_embeddings": text.tied,
            "rope_parameters": rope,
        },
        "audio_config": {
            "d_model": audio.width,
            "encoder_layers": audio.layers,
            "encoder_attention_heads": audio.heads,
            "encoder_ffn_dim": audio.ffn,
            "num_mel_bins": audio.num_mels,
            "n_window": audio.n_window,
            "output_dim": audio.output,
        },
        "audio_token_index": shapes.audio_id,
        "shapes": asdict(shapes),
    }


if __name__ == "__main__":
    sys.exit(main())
