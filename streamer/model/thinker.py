"""A model ready to hear and speak. In: a spec (`embedded`, a directory, a hub id). Out: a Thinker.

Only files are read here; transformers is not imported: its modelling code costs seconds at every
start.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from streamer.core.choices import EngineName
from streamer.core.text.vocabulary import Vocabulary
from streamer.model.checkpoint.card import ModelCard, read_card, warn_of_defaults
from streamer.model.checkpoint.layout import check_layout
from streamer.model.checkpoint.shapes import Shapes, TextShape, read_shapes
from streamer.model.checkpoint.tokenizer import Tokenizer, TokenizerError, vocabulary_of
from streamer.model.checkpoint.weights import ModelError, load_weights
from streamer.model.engine_choice import choose, is_exact
from streamer.model.engines.cuda_graphs import GraphText
from streamer.model.engines.engine import Engine
from streamer.model.engines.int8 import Int8Text
from streamer.model.engines.stable import StableText
from streamer.model.engines.text import Text, TextModel
from streamer.model.engines.tower import AudioTower, Tower

Role = Literal["edge", "cloud"]
EMBEDDED = Path(__file__).parent / "embedded"
EMBEDDINGS_PER_S = 25
SPARE_IDS = 192  # answer, block and suffix behind the longest turn


@dataclass(frozen=True, eq=False)
class Thinker:
    """Everything of one loaded model; its state lies in the engine's slots."""

    directory: Path
    card: ModelCard
    shapes: Shapes
    vocabulary: Vocabulary
    never: torch.Tensor  # [vocab] bool, `vocabulary.never` on the model's device
    suffix_ids: tuple[int, ...]
    tower: Tower
    engine: Engine
    num_params: int


def resolve(spec: str, role: Role) -> Path:
    """The directory behind a spec; a hub id is downloaded once. Raises ModelError."""
    if spec == "embedded":
        return EMBEDDED / role
    path = Path(spec).expanduser()
    if path.is_dir():
        return path
    if path.exists():
        raise ModelError(
            spec, "is a file, not a model directory; give the directory that holds config.json"
        )
    if spec.startswith((".", "/", "~")) or spec.count("/") != 1:
        way = "give `embedded`, a directory or a hub id like owner/name"
        if role == "cloud" and re.fullmatch(r"[^/]+:\d+", spec):
            way += f", or ws://{spec} for a verifier there"
        raise ModelError(spec, f"no such model directory; {way}")
    return _download(spec)


def _download(hub_id: str) -> Path:
    # late: only hub ids need it, and it costs 0.3 s
    from huggingface_hub import snapshot_download

    try:
        wanted = ["*.json", "*.safetensors", "merges.txt"]
        return Path(snapshot_download(hub_id, allow_patterns=wanted))
    except Exception as error:  # the hub's client raises a dozen kinds; all mean: not to be had
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        way = "download it where there is a network and give the directory"
        raise ModelError(
            hub_id, f"no such directory, and the hub did not give it ({reason}); {way}"
        ) from None


def load(
    spec: str, role: Role, num_slots: int = 4, device: str = "cpu", engine: EngineName = "fast"
) -> Thinker:
    """Load a model, fp32 on a CPU, bf16 on a GPU (`cuda`). Raises ModelError with one clear line.

    engine "stable": what the compiled kernels do for small models, a row's bits depend on its own
    ids alone, for large ones too, where it costs time; "int8": so, too, with the text model's
    weights in 8 bits; "stock": transformers' modules run it, for comparison.
    """
    check_device(device)
    directory = resolve(spec, role)
    shapes = shapes_of(directory)
    card = read_card(directory)
    check_layout(directory, shapes)
    warn_of_defaults(directory, shapes.text)
    dtype = torch.float32 if device == "cpu" and engine != "int8" else torch.bfloat16
    weights = load_weights(
        directory, dtype, device, tower_dtype=torch.float32 if device == "cpu" else dtype
    )
    num_params = sum(weight.numel() for weight in weights.values())
    if engine == "stock":
        tower, text = _stock_functions(directory, shapes, dtype, device)
    elif engine == "int8":
        tower = AudioTower(weights, shapes.audio)
        text = Int8Text(weights, shapes.text)
    else:
        tower, text = _functions(weights, shapes, num_params, device, engine == "stable")
    try:
        vocabulary = vocabulary_of(directory, shapes.text.vocab)
        tokenizer = Tokenizer.load(directory)
    except TokenizerError as error:
        raise ModelError(directory, str(error).removeprefix(f"{directory}: ")) from None
    prompt = tokenizer.encode(card.prefix)
    suffix = tokenizer.encode(card.suffix)
    length = len(prompt) + math.ceil(card.max_turn_s * EMBEDDINGS_PER_S) + len(suffix) + SPARE_IDS
    if length > shapes.text.max_positions:
        raise ModelError(
            directory,
            f"max_turn_s {card.max_turn_s:g} needs {length} positions, the model has fewer",
        )
    never = torch.from_numpy(vocabulary.never).to(device)
    steps = Engine(text, text.slots(num_slots, length), prompt, tower)
    if device != "cpu" and isinstance(text, GraphText):
        text.prepare()
    return Thinker(
        directory, card, shapes, vocabulary, never, tuple(suffix), tower, steps, num_params
    )


def runs_compiled(num_params: int, device: str, shape: TextShape, is_half: bool) -> bool:
    """Whether engine `fast` takes the compiled kernels: on a CPU, where they were measured to be
    faster than torch.

    is_half: float16 holds the weights.
    """
    return device == "cpu" and choose(shape, num_params, is_half).is_compiled


def check_device(device: str) -> None:
    """Raise ModelError where torch cannot use `device`."""
    if device.startswith("cuda") and not torch.cuda.is_available():
        reason = f"there is no GPU that torch {torch.__version__} can use"
        raise ModelError(
            f"device {device}", f"{reason}; take --device cpu, or a CUDA build of torch and a GPU"
        )


def _functions(
    weights: dict[str, torch.Tensor], shapes: Shapes, num_params: int, device: str, is_stable: bool
) -> tuple[Tower, Text]:
    if device != "cpu":
        return AudioTower(weights, shapes.audio), GraphText(weights, shapes.text)
    is_half = all(
        is_exact(weight) for name, weight in weights.items() if name.startswith("model.layers.0.")
    )
    if not runs_compiled(num_params, device, shapes.text, is_half):
        return AudioTower(weights, shapes.audio), (StableText if is_stable else TextModel)(
            weights, shapes.text
        )
    from streamer.model.kernels.text import FastText  # late: importing numba costs 0.4 s
    from streamer.model.kernels.tower import FastTower

    return FastTower(weights, shapes.audio), FastText(weights, shapes.text)


def _stock_functions(
    directory: Path, shapes: Shapes, dtype: torch.dtype, device: str
) -> tuple[Tower, Text]:
    from streamer.model.engines.stock import StockText, StockTower

    # late: transformers' modelling code costs seconds
    from streamer.model.engines.stock_modules import load_stock

    stock = load_stock(directory, dtype).to(device)
    return StockTower(stock), StockText(stock, shapes.text)


def shapes_of(directory: Path) -> Shapes:
    """What the config.json of a model directory says. Raises ModelError."""
    file = directory / "config.json"
    if not file.is_file():
        raise ModelError(
            directory, "has no config.json; give a directory in the published Qwen2.5-Omni layout"
        )
    try:
        return read_shapes(json.loads(file.read_text("utf-8")))
    except (ValueError, RecursionError, OSError) as error:
        raise ModelError(file, getattr(error, "strerror", None) or str(error)) from None


def num_params_of(directory: Path) -> int:
    """How many parameters `load` would read, from headers alone. Raises ModelError."""
    return sum(math.prod(tensor.shape) for tensor in check_layout(directory, shapes_of(directory)))


def check_pair(edge: Thinker, cloud: Thinker) -> None:
    """Raise ModelError unless both read ids the same way: by content, never by the size of the
    vocabulary."""
    if edge.vocabulary.fingerprint != cloud.vocabulary.fingerprint:
        raise ModelError(
            f"{edge.directory} and {cloud.directory}",
            "edge and cloud have different tokenizers; take two models of one family",
        )
