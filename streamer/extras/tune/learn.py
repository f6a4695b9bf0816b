"""Training: examples, a frozen model with low-rank adapters, and the loop.

The adapters (LoRA, Hu et al. 2021, arXiv 2106.09685, by PEFT) are on the products of the text model
and on the tower's projector. transformers' own modules run the model; vision, talker and vocoder
are never loaded. transformers' Trainer runs the steps; on a CPU an interrupted run gives what an
uninterrupted one gives.
"""

from __future__ import annotations

import hashlib
import math
import random
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
from safetensors import SafetensorError
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import EarlyStoppingCallback, Trainer, TrainerCallback, TrainingArguments
from transformers import Qwen2_5OmniThinkerForConditionalGeneration as Stock
from transformers.trainer_callback import PrinterCallback

from streamer.core.rules.form import CHINESE, Phrases
from streamer.extras.tune.data import TuneError, Turn
from streamer.extras.tune.options import TuneOptions
from streamer.model.checkpoint.card import ModelCard
from streamer.model.checkpoint.layout import Shapes
from streamer.model.checkpoint.tokenizer import EOS, Tokenizer
from streamer.model.checkpoint.weights import ModelError
from streamer.model.engines.load import SMALL, load_weights, stock_config
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
EVALUATIONS = 20  # of the held-out loss, each with a checkpoint
PATIENCE = 4  # evaluations without improvement, after which it stops


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """prompt: ids before the answer, one placeholder per embedding. answer: ids with the end.
    is_known [len(answer)]: whether the loss counts the id."""

    features: Path
    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    is_known: NDArray[np.bool_]

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
    rng = random.Random(turn.name.encode(errors="surrogateescape"))
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

    def adapter(self) -> dict[str, Tensor]:
        """A copy of the adapters by PEFT's names, on the CPU."""
        found = get_peft_model_state_dict(self.model)
        return {name: weight.detach().to("cpu", copy=True) for name, weight in found.items()}

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
    """A finished training.

    curve: (step, loss learnt from since the last evaluation, held-out loss), nats per id; step 0 is
    the base model. best: the adapter of the lowest held-out loss.
    """

    step: int
    best_step: int
    curve: list[tuple[int, float, float]]
    best: dict[str, Tensor]

    @property
    def best_loss(self) -> float:
        return min(held for step, _, held in self.curve if step == self.best_step)


class Training(Trainer):
    """transformers' trainer over examples. It stops after PATIENCE evaluations without improvement,
    and continues from the checkpoint of an interrupted run."""

    def __init__(
        self,
        model: Adapted,
        learnt: Sequence[Example],
        held: Sequence[Example],
        options: TuneOptions,
        work: Path,
    ) -> None:
        self._adapted = model
        self._folder = work / "training"
        super().__init__(
            model=model.model,
            args=_arguments(options, len(learnt), self._folder),
            train_dataset=list(learnt),
            eval_dataset=list(held),
            data_collator=_collated,
            callbacks=[EarlyStoppingCallback(PATIENCE), _Progress()],
        )
        self.remove_callback(PrinterCallback)

    @property
    def checkpoint(self) -> str | None:
        """The folder of the newest whole checkpoint."""
        found = self._folder.glob("checkpoint-*/trainer_state.json")  # which is written last
        whole = sorted(found, key=lambda file: int(file.parent.name.partition("-")[2]))
        return str(whole[-1].parent) if whole else None

    def run(self) -> State:
        """Raises TuneError."""
        begun = self.checkpoint
        self.args.eval_on_start = begun is None
        with _failures(self):
            self.train(resume_from_checkpoint=begun)
        state = self.state
        learnt = {row["step"]: row["loss"] for row in state.log_history if "loss" in row}
        held = {r["step"]: r["eval_loss"] for r in state.log_history if "eval_loss" in r}
        curve = [(step, learnt.get(step, math.nan), loss) for step, loss in sorted(held.items())]
        return State(state.global_step, state.best_global_step, curve, self._adapted.adapter())

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """The mean over the known ids of the whole batch, of which `inputs` may be a part."""
        losses = self._adapted.losses(inputs["examples"])
        num = len(losses) if num_items_in_batch is None else num_items_in_batch
        loss = losses.sum() / num
        if not torch.isfinite(loss):
            told = f"the loss is not finite at step {self.state.global_step}"
            raise TuneError(f"{told}; give a smaller --learning-rate, in another --out")
        return (loss, {}) if return_outputs else loss


def _arguments(options: TuneOptions, num: int, folder: Path) -> TrainingArguments:
    at_once = min(options.at_once, options.batch)
    steps = options.epochs * math.ceil(num / options.batch)
    every = max(1, round(steps / EVALUATIONS))
    return TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=at_once,
        per_device_eval_batch_size=at_once,
        gradient_accumulation_steps=math.ceil(options.batch / at_once),
        num_train_epochs=options.epochs,
        learning_rate=options.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=max(1, round(WARM * steps)),
        weight_decay=0.0,
        seed=options.seed % 2**32,
        eval_strategy="steps",
        eval_steps=every,
        save_steps=every,
        logging_steps=every,
        save_total_limit=1,  # beside the best one
        load_best_model_at_end=True,
        metric_for_best_model="loss",
        use_cpu=options.device == "cpu",
        dataloader_pin_memory=options.device != "cpu",
        remove_unused_columns=False,
        prediction_loss_only=True,
        disable_tqdm=True,
        report_to="none",
    )


def _collated(examples: Sequence[Example]) -> dict[str, Any]:
    """The trainer counts the labels: ids that the loss counts."""
    known = [torch.tensor(e.answer)[torch.from_numpy(e.is_known)] for e in examples]
    labels = torch.cat(known)
    return {"labels": labels, "shift_labels": labels, "examples": list(examples)}


class _Progress(TrainerCallback):
    def __init__(self) -> None:
        self._held = ""

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self._bar = Bar("tuning", state.max_steps)

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        told = f"step {state.global_step} of {state.max_steps}{self._held}"
        self._bar.show(state.global_step, told)

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any, **more: Any) -> None:
        self._held = f", held out {metrics['eval_loss']:.3f}"

    def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self._bar.hide()


@contextmanager
def _failures(training: Training) -> Iterator[None]:
    """Report too little memory, a full disk or a broken checkpoint as one line."""
    try:
        yield
    except (RuntimeError, MemoryError, OSError, SafetensorError, ValueError) as error:
        is_memory = isinstance(error, torch.OutOfMemoryError | MemoryError)
        if is_memory or "can't allocate memory" in str(error):
            way = "give a smaller --at-once, in another --out"
            told = f"there is too little memory for step {training.state.global_step}; {way}"
        elif isinstance(error, OSError | SafetensorError) or "write" in str(error):
            told = f"{training._folder} cannot be read or written ({error!s:.120})"
            told = f"{told}; make room and run it again, or remove it to begin anew"
        else:
            raise
        raise TuneError(told) from None


def digest_of(*sides: Sequence[Example]) -> str:
    """A hash of the recordings that train and of those held out."""
    digest = hashlib.blake2b(digest_size=8)
    for side in sides:
        for e in side:
            digest.update(f"{e.features.name} {e.prompt} {e.answer} {e.is_known}\n".encode())
        digest.update(b"\n")
    return digest.hexdigest()
