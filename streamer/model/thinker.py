"""A model ready to hear and speak. In: a spec (`embedded`, a directory, a hub id). Out: a Thinker.

Small models run on compiled kernels. Torch is not imported for them: it costs a second and 200 MB
at every start.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from streamer.core.attributes import names_of
from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.core.audio.trim import AROUND_SAMPLES
from streamer.core.declare import EngineName
from streamer.core.rules.form import SentenceForm, marks_of
from streamer.core.rules.settings import FLAT, LevelWeights, Rules
from streamer.core.text.vocabulary import Vocabulary
from streamer.extras import load as load_extra
from streamer.extras import missing
from streamer.model.checkpoint.card import FILE, ModelCard, read_card
from streamer.model.checkpoint.layout import BITS, Shapes, check_layout, check_memory, read_shapes
from streamer.model.checkpoint.tokenizer import Tokenizer, TokenizerError, vocabulary_of
from streamer.model.checkpoint.weights import ModelError, ModelWarning, Told, load_arrays, quiet
from streamer.model.devices import set_switch_interval
from streamer.model.engines.engine import Engine, Text, Tower
from streamer.model.kernels.library import KernelError
from streamer.model.kernels.models import FastText, FastTower

Role = Literal["edge", "cloud"]
EMBEDDED = Path(__file__).parent / "embedded"
EMBEDDINGS_PER_S = 25
SPARE_IDS = 192  # answer, block and suffix after the longest turn
# Parameters up to which the compiled kernels run a model on a CPU. Up to 140 M they were faster
# than torch at every step but a window of 50 ids (2026-11, AVX2). A larger model would be held
# twice in memory while its weights are packed.
MOST_COMPILED = 300_000_000


@dataclass(frozen=True, eq=False)
class Thinker:
    """Everything of one loaded model; its state lies in the engine's slots."""

    directory: Path
    card: ModelCard
    shapes: Shapes
    vocabulary: Vocabulary
    cards: Mapping[str, ModelCard]  # for sentences in a language; "" is the first one
    suffixes: Mapping[str, tuple[int, ...]]  # the same: ids after the audio
    tower: Tower
    engine: Engine
    num_params: int


def resolve(spec: str, role: Role) -> Path:
    """The directory that a spec names; a hub id is downloaded once. Raises ModelError."""
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
        way += ", or ws://HOST:PORT for a verifier" if role == "cloud" else ""
        raise ModelError(spec, f"no such model directory; {way}")
    return _download(spec)


def _download(hub_id: str) -> Path:
    # late: only hub ids need it, and it costs 0.3 s
    if (why := missing("a download", "huggingface_hub")) is not None:
        raise ModelError(hub_id, f"no such directory; {why}")
    from huggingface_hub import snapshot_download

    try:
        wanted = ["*.json", "*.safetensors"]
        return Path(snapshot_download(hub_id, allow_patterns=wanted))
    except Exception as error:  # the hub's client raises a dozen kinds; all mean: not to be had
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        way = "download it where there is a network and give the directory"
        raise ModelError(
            hub_id, f"no such directory, and the hub did not give it ({reason}); {way}"
        ) from None


def load(
    spec: str,
    role: Role,
    num_slots: int = 4,
    device: str = "cpu",
    engine: EngineName = "fast",
    told: Told = quiet,
) -> Thinker:
    """Load a model, fp32 on a CPU, bf16 on a GPU (`cuda`). Raises ModelError with one clear line.

    engine "stable": what the compiled kernels do for small models, a row's bits depend on its own
    ids alone, for large ones too, where it costs time; "int8", "int4": so, too, with 8 or 4 bits
    per weight. told: hears how far it is.
    """
    set_switch_interval()
    directory = resolve(spec, role)
    shapes = shapes_of(directory)
    card = read_card(directory)
    num_params = sum(math.prod(tensor.shape) for tensor in check_layout(directory, shapes))
    try:
        vocabulary = vocabulary_of(directory, shapes.text.vocab)
        tokenizer = Tokenizer.load(directory)
    except TokenizerError as error:
        raise ModelError(directory, str(error).removeprefix(f"{directory}: ")) from None
    cards = {language: card.speaking(language) for language in ("", *card.spoken)}
    # they differ after the audio alone
    prompts = {name: prompt_of(tokenizer, each, shapes.audio_id) for name, each in cards.items()}
    prompt = max(prompts.values(), key=lambda each: len(each.after))
    most_s = card.max_turn_s + AROUND_SAMPLES / SAMPLE_RATE_HZ
    length = len(prompt.turn(math.ceil(most_s * EMBEDDINGS_PER_S))) + SPARE_IDS
    if length > shapes.text.max_positions:
        why = f"max_turn_s {card.max_turn_s:g} needs {length} positions, the model has fewer"
        raise ModelError(directory, why)
    if device == "cpu" and not runs_compiled(num_params, device, engine):
        check_memory(directory, shapes, engine, num_slots * length)
    tower, text = _functions(directory, shapes, num_params, device, engine, told)
    steps = Engine(text, text.slots(num_slots, length), list(prompt.before), tower)
    suffixes = {language: each.after for language, each in prompts.items()}
    return Thinker(directory, card, shapes, vocabulary, cards, suffixes, tower, steps, num_params)


def _functions(
    directory: Path, shapes: Shapes, num_params: int, device: str, engine: EngineName, told: Told
) -> tuple[Tower, Text]:
    if runs_compiled(num_params, device, engine):
        weights = load_arrays(directory)
        try:
            return FastTower(weights, shapes.audio), FastText(weights, shapes.text)
        except KernelError as error:
            raise ModelError(directory, str(error)) from None
    check_torch(directory)
    from streamer.model.engines.load import check_device, load_torch  # late: it imports torch

    if engine in BITS:
        check_device(device)
        found: tuple[Tower, Text] = load_extra("large")(directory, shapes, engine, told)
        return found
    return load_torch(directory, shapes, device, engine, told)


def runs_compiled(num_params: int, device: str = "cpu", engine: EngineName = "fast") -> bool:
    """Whether the compiled kernels run a model; torch is needed otherwise."""
    return device == "cpu" and engine in ("fast", "stable") and num_params <= MOST_COMPILED


def check_torch(directory: Path, *more: str) -> None:
    """Raise ModelError if torch, or one of `more` packages, is not installed."""
    if (why := missing("this model", "torch", *more)) is not None:
        raise ModelError(directory, why)


def shapes_of(directory: Path) -> Shapes:
    """The sizes that a model directory's config.json states. Raises ModelError."""
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


def form_of(thinker: Thinker, rules: Rules, weights: LevelWeights = FLAT) -> SentenceForm | None:
    """The sentence's form by the phrases of the model's card in the rules' language, under
    `weights`.

    It names no attribute that the weights leave out, unless nothing else would be left to say.

    None where the rules ask for no form, the card has none of the attributes, or the tokenizer
    cannot spell its phrases (ModelWarning, once per model).
    """
    card = thinker.cards[rules.language]
    said = names_of(rules.form, card.attributes)
    if not said:
        return None
    said = tuple(name for name in said if weights.get(name) != ()) or said

    def make() -> SentenceForm:
        marks = marks_of(card.language)
        return SentenceForm(thinker.vocabulary, card.attributes, said, card.openings, marks)

    key = ("form", card.language, card.phrases, *said)
    found: SentenceForm = thinker.vocabulary.cached(key, make)
    if found.can_be_said:
        return found.weighted(weights)
    _warn_of_phrases(thinker.directory)
    return None


@cache  # once per model
def _warn_of_phrases(directory: Path) -> None:
    why = "its tokenizer spells no phrase of some attribute, so sentences have no fixed form"
    way = f"give {FILE} phrases and openings of characters that are tokens"
    warnings.warn(f"{directory}: {why}; {way}", ModelWarning, stacklevel=3)


def check_pair(edge: Thinker, cloud: Thinker) -> None:
    """Raise ModelError unless both read ids the same way: by content, never by the size of the
    vocabulary."""
    if edge.vocabulary.fingerprint != cloud.vocabulary.fingerprint:
        raise ModelError(
            f"{edge.directory} and {cloud.directory}",
            "edge and cloud have different tokenizers; take two models of one family",
        )


@dataclass(frozen=True, slots=True)
class Prompt:
    """before, after: ids around the audio; audio_id: what stands for one embedding."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    audio_id: int

    def turn(self, num_embeddings: int) -> list[int]:
        """All ids before the answer."""
        return [*self.before, *[self.audio_id] * num_embeddings, *self.after]


def prompt_of(tokenizer: Tokenizer, card: ModelCard, audio_id: int) -> Prompt:
    """The prompt that the card spells."""
    before, after = (tuple(tokenizer.encode(text)) for text in (card.prefix, card.suffix))
    return Prompt(before, after, audio_id)
