"""Training: examples, a frozen model with low-rank adapters, and the loop.

The adapters (LoRA, Hu et al. 2021, arXiv 2106.09685, by PEFT) are on the products of the text model
and on the tower's projector. transformers' own modules run the model; vision, talker and vocoder
are never loaded. An interrupted run continues and gives what an uninterrupted one gives: the order
and the learning rate of each step follow from its number.
"""

from __future__ import annotations

import hashlib
import math
import os
import random
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import Qwen2_5OmniThinkerForConditionalGeneration as Stock

from streamer.core.rules.form import CHINESE, Phrases
from streamer.extras.tune.data import TuneError, Turn, as_bytes
from streamer.extras.tune.options import TuneOptions
from streamer.model.checkpoint.card import ModelCard
from streamer.model.checkpoint.shapes import Shapes
from streamer.model.checkpoint.tokenizer import EOS, Tokenizer
from streamer.model.checkpoint.weights import ModelError
from streamer.model.engines.load import SMALL, load_weights
from streamer.model.engines.stock import stock_config
from streamer.model.thinker import prompt_of
from streamer.progress import Bar

OPENING = "说话人"
TARGETS = (
    r"model\.language_model\.layers\.\d+\.(self_attn\.[qkvo]_proj|mlp\.(gate|up|down)_proj)"
    r"|model\.audio_tower\.proj"
)
SCALE = 2.0  # of the adapters' product
TEXT, TOWER = "model.language_model.", "model.audio_tower."
WARM = 0.05  # share of the steps in which the learning rate rises
LAST = 0.1  # of the learning rate at the end
MAX_NORM = 1.0
STATE = "state.pt"


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """prompt: ids before the answer, one placeholder per embedding. answer: ids with the end.
    is_known [len(answer)]: whether the loss counts the id."""

    features: Path
    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    is_known: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.prompt) + len(self.answer) - 1

    def mel(self) -> NDArray[np.float32]:
        """[128, n_frames]"""
        found: NDArray[np.float32] = np.load(self.features)
        return found


class Examples:
    """Makes examples for one model. Raises ModelError if its tokenizer has no end of an answer."""

    def __init__(
        self, directory: Path, card: ModelCard, phrases: Phrases, audio_id: int, folder: Path
    ) -> None:
        self._tokenizer = Tokenizer.load(directory)
        self._prompt = prompt_of(self._tokenizer, card, audio_id)
        self._phrases = phrases
        self._folder = folder
        ends = [ids[0] for ids in map(self._tokenizer.encode, EOS) if len(ids) == 1]
        if not ends:
            raise ModelError(directory, f"its tokenizer has neither {' nor '.join(EOS)}")
        self._end = ends[0]

    def of(self, turns: Sequence[Turn]) -> list[Example]:
        return [self.example(turn) for turn in turns]

    def example(self, turn: Turn) -> Example:
        """The turn's prompt, and the sentence that says its levels."""
        text, unknown = sentence_of(turn, self._phrases)
        ids, places = self._tokenizer.encode_with_places(text)
        is_known = [
            not any(begin < last and first < end for begin, end in unknown)
            for first, last in places
        ]
        return Example(
            self._folder / turn.features,
            tuple(self._prompt.turn(turn.num_embeddings)),
            (*ids, self._end),
            np.array([*is_known, True]),
        )


def sentence_of(turn: Turn, phrases: Phrases) -> tuple[str, list[tuple[int, int]]]:
    """(the sentence of a turn's levels, (begin, end) of phrases whose level is unknown).

    A level has one phrase, the first, and attributes have one order: the model learns to hear, not
    to vary. An unknown level is drawn by the turn's name, since the form wants it said.
    """
    text, unknown = OPENING, []
    rng = random.Random(as_bytes(turn.name))
    for i, (attribute, named) in enumerate(phrases.items()):
        level = turn.levels.get(attribute)
        drawn = rng.randrange(len(named))
        text += CHINESE.comma if i else ""
        phrase = named[drawn if level is None else level]["phrases"][0]
        if level is None:
            unknown.append((len(text), len(text) + len(phrase)))
        text += phrase
    return text + CHINESE.end, unknown


def stock_name(name: str) -> str:
    """A tensor's name in transformers 5.x, from its published name."""
    if name.startswith("audio_tower."):
        return "model." + name
    return TEXT + name.removeprefix("model.") if name.startswith("model.") else name


def plain_name(name: str) -> str:
    """A tensor's published name, from its name in transformers 5.x."""
    if name.startswith(TOWER):
        return name.removeprefix("model.")
    return "model." + name.removeprefix(TEXT) if name.startswith(TEXT) else name


def load_frozen(directory: Path, shapes: Shapes, device: str, dtype: torch.dtype) -> Any:
    """transformers' thinker with these weights in `dtype`, all frozen. Raises ModelError."""
    config = stock_config(directory)
    with torch.device("meta"):
        model: Any = Stock._from_config(config, attn_implementation="sdpa", dtype=dtype)
    weights = load_weights(directory, dtype, device)
    model.model.visual = None
    tower, text = model.model.audio_tower, model.model.language_model
    tower.audio_bos_eos_token = None
    model.load_state_dict({stock_name(n): w for n, w in weights.items()}, strict=False, assign=True)
    if shapes.text.tied:
        model.lm_head.weight = text.embed_tokens.weight
    with torch.device(device):  # tables that no file holds
        text.rotary_emb = type(text.rotary_emb)(config=text.config)
        places = tower.positional_embedding
        tower.positional_embedding = type(places)(places.length, places.channels)
    if empty := [name for name, weight in model.named_parameters() if weight.is_meta]:
        raise ModelError(directory, f"the weights lack {plain_name(empty[0])!r}")
    return model.requires_grad_(False)


class Adapted:
    """A frozen thinker with trainable adapters."""

    def __init__(
        self, directory: Path, shapes: Shapes, device: str, dtype: torch.dtype, rank: int, seed: int
    ) -> None:
        stock = load_frozen(directory, shapes, device, dtype)
        if sum(weight.numel() for weight in stock.parameters()) > SMALL:
            how = {"use_reentrant": False}
            stock.model.language_model.gradient_checkpointing_enable(how)
        torch.manual_seed(seed % 2**64)
        alpha = round(SCALE * rank)
        wanted = LoraConfig(r=rank, lora_alpha=alpha, lora_dropout=0.0, target_modules=TARGETS)
        with warnings.catch_warnings():  # PEFT asks transformers by an old name
            warnings.simplefilter("ignore", FutureWarning)
            self.model: Any = get_peft_model(stock, wanted)
        self.audio_id = shapes.audio_id
        self.device = device

    def parameters(self) -> list[Tensor]:
        """Trainable weights, float32."""
        return [weight for weight in self.model.parameters() if weight.requires_grad]

    def adapter(self) -> dict[str, Tensor]:
        """A copy of the adapters by PEFT's names, on the CPU."""
        found = get_peft_model_state_dict(self.model)
        return {name: weight.detach().to("cpu", copy=True) for name, weight in found.items()}

    def set_adapter(self, weights: dict[str, Tensor]) -> None:
        set_peft_model_state_dict(self.model, weights)

    def losses(self, examples: Sequence[Example]) -> Tensor:
        """Cross-entropy of each known id of all `examples`, in nats."""
        hidden = self._hidden(examples)
        known = [torch.from_numpy(e.is_known) for e in examples]
        first = [len(e.prompt) - 1 for e in examples]
        said = [
            h[at : at + len(k)][k.to(h.device)]
            for h, at, k in zip(hidden, first, known, strict=True)
        ]
        wanted = [torch.tensor(e.answer)[k] for e, k in zip(examples, known, strict=True)]
        logits = self.model.base_model.model.lm_head(torch.cat(said)).float()
        return F.cross_entropy(logits, torch.cat(wanted).to(self.device), reduction="none")

    def _hidden(self, examples: Sequence[Example]) -> Tensor:
        """[len(examples), longest, hidden]; padding is at the end, where no id attends to it."""
        inner = self.model.base_model.model.model
        mels = [torch.from_numpy(e.mel()) for e in examples]
        lengths = torch.tensor([mel.shape[1] for mel in mels], device=self.device)
        audio = inner.audio_tower(torch.cat(mels, 1).to(self.device), feature_lens=lengths)
        rows = [torch.tensor([*e.prompt, *e.answer[:-1]]) for e in examples]
        ids = pad_sequence(rows, batch_first=True).to(self.device)
        ends = torch.tensor([len(e.prompt) for e in examples], device=self.device)
        is_prompt = torch.arange(ids.shape[1], device=self.device) < ends[:, None]
        heard = (ids == self.audio_id) & is_prompt
        x = inner.language_model.embed_tokens(ids)
        x = x.masked_scatter(heard[..., None], audio.last_hidden_state.to(x.dtype))
        places = torch.arange(ids.shape[1], device=self.device).expand(3, len(ids), -1)
        out = inner.language_model(inputs_embeds=x, position_ids=places, use_cache=False)
        hidden: Tensor = out.last_hidden_state
        return hidden


@dataclass
class State:
    """Progress of a run.

    curve: (step, loss learnt from since the last evaluation, held-out loss), nats per id. best: the
    adapter of the lowest held-out loss.
    """

    digest: str  # of the examples
    step: int = 0
    is_over: bool = False
    num_worse: int = 0  # evaluations since the best one
    best_loss: float = math.inf
    best_step: int = 0
    learnt: list[float] = field(default_factory=list)  # losses since the last evaluation
    curve: list[tuple[int, float, float]] = field(default_factory=list)
    best: dict[str, Tensor] = field(default_factory=dict)


class Training:
    """Runs until `epochs` are over, or `patience` evaluations brought no improvement."""

    def __init__(
        self,
        model: Adapted,
        learnt: Sequence[Example],
        held: Sequence[Example],
        options: TuneOptions,
        work: Path,
    ) -> None:
        self._model = model
        self._learnt = learnt
        self._held = held
        self._options = options
        self._file = work / STATE
        self._optimiser = torch.optim.AdamW(model.parameters(), weight_decay=0.0)
        self._per_epoch = math.ceil(len(learnt) / options.batch)
        self.num_steps = options.epochs * self._per_epoch
        self.state = State(_digest_of(learnt, held))
        self._restore()

    def run(self, on_save: Callable[[State], None] = lambda state: None) -> State:
        """on_save: called after each checkpoint. Raises TuneError."""
        state, saved = self.state, time.monotonic()
        with Bar("tuning", self.num_steps) as bar:
            while not state.is_over:
                loss = f", held out {state.curve[-1][2]:.3f}" if state.curve else ""
                bar.show(state.step, f"step {state.step} of {self.num_steps}{loss}")
                with _memory(state.step):
                    if not state.curve:
                        self._evaluate()
                    self._step()
                    if state.step % self._options.check_steps == 0 or state.is_over:
                        self._evaluate()
                if state.is_over or time.monotonic() - saved >= 60 * self._options.save_minutes:
                    self._save()
                    on_save(state)
                    saved = time.monotonic()
        return state

    def _step(self) -> None:
        state, size = self.state, self._options.batch
        epoch, index = divmod(state.step, self._per_epoch)
        order = list(range(len(self._learnt)))
        random.Random(f"{self._options.seed}/{epoch}").shuffle(order)
        batch = [self._learnt[i] for i in order[index * size : (index + 1) * size]]
        for group in self._optimiser.param_groups:
            group["lr"] = self._options.learning_rate * self._share(state.step)
        state.learnt.append(self._descend(batch))
        state.step += 1
        state.is_over = state.step == self.num_steps

    def _descend(self, batch: Sequence[Example]) -> float:
        """One step down the mean loss of all known ids; returns that loss."""
        self._model.model.train()
        num_ids = sum(int(e.is_known.sum()) for e in batch)
        total = 0.0
        for some in self._groups(batch):
            loss = self._model.losses(some).sum() / num_ids
            loss.backward()
            total += loss.item()
        if not math.isfinite(total):
            told = f"the loss is not finite at step {self.state.step}"
            raise TuneError(f"{told}; give a smaller --learning-rate, in another --out")
        torch.nn.utils.clip_grad_norm_(self._model.parameters(), MAX_NORM)
        self._optimiser.step()
        self._optimiser.zero_grad(set_to_none=True)
        return total

    def _groups(self, examples: Sequence[Example]) -> Iterator[Sequence[Example]]:
        """`at_once` examples of similar length each, which keeps padding small."""
        ordered = sorted(examples, key=len)
        for at in range(0, len(ordered), self._options.at_once):
            yield ordered[at : at + self._options.at_once]

    def _share(self, step: int) -> float:
        """Share of the learning rate: it rises, then falls as a cosine."""
        warm = max(1, round(WARM * self.num_steps))
        if step < warm:
            return (step + 1) / warm
        left = 0.5 + 0.5 * math.cos(math.pi * (step - warm) / max(1, self.num_steps - warm))
        return LAST + (1 - LAST) * left

    @torch.no_grad()
    def _evaluate(self) -> None:
        """The held-out loss; keeps the best adapter so far."""
        state = self.state
        self._model.model.eval()
        found = torch.cat([self._model.losses(some).cpu() for some in self._groups(self._held)])
        loss = float(found.double().mean())
        learnt = sum(state.learnt) / len(state.learnt) if state.learnt else math.nan
        state.learnt.clear()
        state.curve.append((state.step, learnt, loss))
        state.num_worse += 1
        if loss < state.best_loss:
            state.best_loss, state.best_step, state.num_worse = loss, state.step, 0
            state.best = self._model.adapter()
        state.is_over |= state.num_worse >= self._options.patience

    def _save(self) -> None:
        """Replace the checkpoint. Raises TuneError if there is no room."""
        new = self._file.with_name(self._file.name + ".new")
        kept = {"state": vars(self.state), "adapter": self._model.adapter()}
        try:
            torch.save(kept | {"optimiser": self._optimiser.state_dict()}, new)
            os.replace(new, self._file)
        except (OSError, RuntimeError) as error:  # torch raises RuntimeError for a full disk
            with suppress(OSError):  # the first error is the one to report
                new.unlink()
            reason = getattr(error, "strerror", None) or "is the disk full?"
            told = f"{self._file} cannot be written ({reason}); make room, run it again to go on"
            raise TuneError(told) from None

    def _restore(self) -> None:
        """Continue from the checkpoint, if there is one. Raises TuneError."""
        if not self._file.exists():
            return
        way = f"remove {self._file.parent} to begin anew"
        try:
            found = torch.load(self._file, weights_only=True, map_location="cpu")
            state = State(**found["state"])
        except Exception as error:  # torch raises many kinds for a broken file
            told = f"{self._file} cannot be read ({type(error).__name__}); {way}"
            raise TuneError(told) from None
        if state.digest != self.state.digest:
            told = f"the recordings are not those that {self._file} was learnt from; {way}"
            raise TuneError(told)
        self.state = state
        self._model.set_adapter(found["adapter"])
        self._optimiser.load_state_dict(found["optimiser"])


@contextmanager
def _memory(step: int) -> Iterator[None]:
    """Report too little memory as one line."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        is_cpu = "can't allocate memory" in str(error)
        if not (is_cpu or isinstance(error, torch.OutOfMemoryError | MemoryError)):
            raise
        way = "give a smaller --at-once or --turn-s, or --precision bf16, in another --out"
        raise TuneError(f"there is too little memory for step {step}; {way}") from None


def _digest_of(learnt: Sequence[Example], held: Sequence[Example]) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for side in (learnt, held):
        for e in side:
            digest.update(f"{e.features.name} {e.prompt} {e.answer} {e.is_known}\n".encode())
        digest.update(b"\n")
    return digest.hexdigest()
