"""A model ready to hear and speak. In: a spec (`embedded`, a directory, a hub id). Out: a Thinker.
And the devices, cores and memory that this machine has for it.

Small models run on compiled kernels. Torch is not imported for them: it costs a second and 200 MB
at every start.
"""

from __future__ import annotations

import math
import os
import sys
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from streamer.core.attributes import names_of
from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.core.audio.turn import AROUND_SAMPLES
from streamer.core.declare import EngineName
from streamer.core.rules.form import SentenceForm, marks_of
from streamer.core.rules.settings import FLAT, LevelWeights, Rules
from streamer.core.text.vocabulary import Vocabulary
from streamer.extras import missing
from streamer.model.checkpoint.card import FILE, ModelCard, Tokenizer, read_card
from streamer.model.checkpoint.weights import (
    EMBEDDING,
    ModelError,
    ModelWarning,
    Shapes,
    Told,
    checked,
    expected,
    load_arrays,
)
from streamer.model.engines.engine import Engine, FastText, FastTower

Role = Literal["edge", "cloud"]
EMBEDDED = Path(__file__).parent / "embedded"
EMBEDDINGS_PER_S = 25
SPARE_IDS = 192  # answer, block and suffix after the longest turn
# A kernel that returns waits for the GIL until a busy thread gives it up: 5 ms by default, more
# than most kernels take. 48 live streams, 2026-11: first text after 60 % of the time.
SWITCH_S = 0.0005
# Parameters up to which the compiled kernels run a model on a CPU. Up to 140 M they were faster
# than torch at every step but a window of 50 ids (2026-11, AVX2). A larger model would be held
# twice in memory while its weights are packed.
MOST_COMPILED = 300_000_000
# (bits, weights of a group) of the engines of few bits; each group has a scale in float32
BITS = {"int8": (8, 128), "int4": (4, 64)}
PEAK = 1.15  # of the weights, while they are loaded


@dataclass(frozen=True, eq=False)
class Thinker:
    """Everything of one loaded model; its state lies in the engine's slots."""

    directory: Path
    card: ModelCard
    shapes: Shapes
    vocabulary: Vocabulary
    suffixes: Mapping[str, tuple[int, ...]]  # language -> ids after the audio; "" is the first one
    engine: Engine


def resolve(spec: str, role: Role) -> Path:
    """The directory that a spec names; a hub id is downloaded once. Raises ModelError."""
    if spec == "embedded":
        return EMBEDDED / role
    path = Path(spec).expanduser()
    if path.is_dir():
        return path
    if path.exists():
        why = "is a file, not a model directory; give the directory that holds config.json"
        raise ModelError(spec, why)
    if spec.startswith((".", "/", "~")) or spec.count("/") != 1:
        way = "give `embedded`, a directory or a hub id like owner/name"
        way += ", or ws://HOST:PORT for a verifier" if role == "cloud" else ""
        raise ModelError(spec, f"no such model directory; {way}")
    # late: only hub ids need it, and it costs 0.3 s
    if (why_not := missing("a download", "huggingface_hub")) is not None:
        raise ModelError(spec, f"no such directory; {why_not}")
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(spec, allow_patterns=["*.json", "*.safetensors"]))
    except Exception as error:  # the hub's client raises a dozen kinds; all mean: not to be had
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        way = "download it where there is a network and give the directory"
        why = f"no such directory, and the hub did not give it ({reason}); {way}"
        raise ModelError(spec, why) from None


def load(
    spec: str,
    role: Role,
    num_slots: int = 4,
    device: str = "cpu",
    engine: EngineName = "fast",
    told: Told = lambda done, total: None,
) -> Thinker:
    """Load a model, fp32 on a CPU, bf16 on a GPU (`cuda`). Raises ModelError with one clear line.

    engine "stable": a row's bits depend on its own ids alone. For small models the compiled kernels
    always keep to this; for large ones it costs time. "int8", "int4": the same with 8 or 4 bits per
    weight. told: called with the number of parts that are done, and of all.
    """
    sys.setswitchinterval(min(SWITCH_S, sys.getswitchinterval()))
    directory = resolve(spec, role)
    (shapes, num_params, _), card = checked(directory), read_card(directory)
    tokenizer = Tokenizer(directory)
    vocabulary = tokenizer.vocabulary(shapes.text.vocab)
    before = tokenizer.encode(card.prompt.prefix)
    suffixes = {
        language: tuple(tokenizer.encode(card.speaking(language).prompt.suffix))
        for language in ("", *card.spoken)
    }
    most_s = card.max_turn_s + AROUND_SAMPLES / SAMPLE_RATE_HZ
    length = len(before) + math.ceil(most_s * EMBEDDINGS_PER_S)
    length += max(map(len, suffixes.values())) + SPARE_IDS
    if length > shapes.text.max_positions:
        why = f"max_turn_s {card.max_turn_s:g} needs {length} positions, the model has fewer"
        raise ModelError(directory, why)
    if runs_compiled(num_params, device, engine):
        weights = load_arrays(directory)
        tower, text = FastTower(weights, shapes.audio), FastText(weights, shapes.text)
    else:
        if device == "cpu":
            check_memory(directory, shapes, engine, num_slots * length)
        check_torch(directory)
        from streamer.model.engines.load import load_torch  # late: it imports torch

        tower, text = load_torch(directory, shapes, device, engine, told)
    steps = Engine(text, text.slots(num_slots, length), before, tower)
    return Thinker(directory, card, shapes, vocabulary, suffixes, steps)


def runs_compiled(num_params: int, device: str = "cpu", engine: EngineName = "fast") -> bool:
    """Whether the compiled kernels run a model; torch is needed otherwise."""
    return device == "cpu" and engine in ("fast", "stable") and num_params <= MOST_COMPILED


def check_torch(directory: Path, *more: str) -> None:
    """Raise ModelError if torch, or one of `more` packages, is not installed."""
    if (why := missing("this model", "torch", *more)) is not None:
        raise ModelError(directory, why)


def form_of(thinker: Thinker, rules: Rules, weights: LevelWeights = FLAT) -> SentenceForm | None:
    """The form by the phrases of the model's card in the rules' language, under `weights`.

    It names no attribute that the weights leave out, unless nothing else would be left to say.

    None where the rules ask for no form, the card has none of the attributes, or the tokenizer
    cannot spell its phrases (ModelWarning, once per model).
    """
    card = thinker.card.speaking(rules.language)
    if not (said := names_of(rules.form, card.attributes)):
        return None
    said = tuple(name for name in said if weights.get(name) != ()) or said

    def make() -> SentenceForm:
        marks = marks_of(card.language)
        form = SentenceForm(thinker.vocabulary, card.attributes, said, card.openings, marks)
        if not form.can_be_said:
            why = "its tokenizer spells no phrase of some attribute"
            way = f"give {FILE} phrases and openings of characters that are tokens"
            told = f"{thinker.directory}: {why}, so sentences have no fixed form; {way}"
            warnings.warn(told, ModelWarning, stacklevel=2)
        return form

    found = thinker.vocabulary.cached(("form", card.language, card.phrases, *said), make)
    return found.weighted(weights) if found.can_be_said else None


def check_pair(edge: Thinker, cloud: Thinker) -> None:
    """Raise ModelError unless both read ids the same way, whatever the sizes of vocabularies."""
    if edge.vocabulary.fingerprint != cloud.vocabulary.fingerprint:
        why = "edge and cloud have different tokenizers; take two models of one family"
        raise ModelError(f"{edge.directory} and {cloud.directory}", why)


def devices() -> list[dict[str, str]]:
    """The CPU, and the GPU that `--device cuda` takes. name: as `--device` takes it. what: in
    words; empty where `why_not` says why."""
    what, why_not = "", missing("a GPU", "torch") or ""
    if not why_not:
        import torch  # late: few models need it

        if torch.cuda.is_available():
            gigabytes = torch.cuda.get_device_properties(0).total_memory / 1e9
            what = f"{torch.cuda.get_device_name(0)}, {gigabytes:.0f} GB"
        else:
            build = "with" if torch.version.cuda else "without"
            why_not = f"torch {torch.__version__}, {build} CUDA, finds none"
    cpu = {"name": "cpu", "what": f"{os.cpu_count() or 1} cores", "why_not": ""}
    return [cpu, {"name": "cuda", "what": what, "why_not": why_not}]


def num_cores() -> int:
    """Cores that this process may use, by its affinity and, on Linux, its control group's share."""
    has_affinity = hasattr(os, "sched_getaffinity")  # not on every system
    cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    try:
        with open("/sys/fs/cgroup/cpu.max", encoding="ascii") as file:
            quota, period = file.read().split()
        return max(1, min(cores, int(quota) // int(period)))
    except (OSError, ValueError):  # no such file, or "max"
        return cores


def bits_of(engine: str, part: str) -> tuple[int, int]:
    """(bits, weights of a group) of a part: `int4` has 4 bits in the language model's layers alone.

    The head's errors would be the logits' own, and a tower's window is all products, where 4 bits
    are no faster than 8.
    """
    return BITS[engine if part.startswith("text.") else "int8"]


def weight_bytes(shapes: Shapes, engine: str) -> int:
    """Bytes of a model's weights in an engine on the CPU; for int8 and int4 also those of the
    prepared model on disk, to some per mille."""
    total = 0
    for name, size in expected(shapes.text, shapes.audio):
        is_packed = engine in BITS and len(size) == 2 and "audio_tower.proj" not in name
        if is_packed and name == EMBEDDING:  # in bfloat16; a tied one is the head as well
            total += 2 * math.prod(size)
            is_packed = shapes.text.tied
        elif not is_packed:
            total += 4 * math.prod(size)
        if is_packed:
            bits, group = bits_of(engine, "text." if name.startswith("model.layers.") else "")
            total += size[0] * -(-size[1] // group) * (group * bits // 8 + 4)
    return total


def check_memory(where: Path, shapes: Shapes, engine: str, slot_positions: int) -> None:
    """Raise ModelError where it will not fit. slot_positions: of all KV slots together."""
    text, free = shapes.text, free_bytes()
    needed = weight_bytes(shapes, engine) * PEAK
    needed += 8 * text.layers * text.kv_heads * text.head_dim * slot_positions
    if free is not None and needed > free:
        told = f"{needed / 1e9:.1f} GB of memory are needed, {free / 1e9:.1f} GB are free"
        way = "take a machine with more, a smaller model, or an --engine of fewer bits"
        raise ModelError(where, f"{told}; {way}")


def free_bytes() -> int | None:
    """Memory that may still be taken: of the machine, or of this process's control group; None
    where the system does not say."""
    found, group = [], Path("/sys/fs/cgroup")
    with suppress(OSError, ValueError):
        told = Path("/proc/meminfo").read_text("ascii").split()
        found.append(1024 * int(told[told.index("MemAvailable:") + 1]))
    with suppress(OSError, ValueError):  # no such file, or "max"
        most = int((group / "memory.max").read_text("ascii"))
        found.append(max(0, most - int((group / "memory.current").read_text("ascii"))))
    return min(found, default=None)
