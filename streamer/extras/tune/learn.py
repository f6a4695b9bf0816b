"""Training: examples, a frozen model with low-rank adapters, and transformers' Trainer over them.

The adapters (LoRA, Hu et al. 2021, arXiv 2106.09685, by PEFT) are on the products of the text model
and on the tower's projector. transformers' own modules run the model; vision, talker and vocoder
are never loaded. On a CPU an interrupted run gives what an uninterrupted one gives.
"""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import torch
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import EarlyStoppingCallback, Trainer, TrainerCallback, TrainingArguments
from transformers import Qwen2_5OmniThinkerForConditionalGeneration as Stock
from transformers.trainer_callback import PrinterCallback
from transformers.utils import logging

from streamer.commands.process import Failed, tell
from streamer.core.rules.form import CHINESE, Phrases
from streamer.extras.tune.command import TuneOptions
from streamer.extras.tune.data import Turn
from streamer.model.checkpoint.card import EOS, ModelCard, Tokenizer
from streamer.model.checkpoint.weights import ModelError
from streamer.model.engines.load import SMALL, stock_config
from streamer.progress import Bar

OPENING = "说话人"
TARGETS = (
    r"model\.language_model\.layers\.\d+\.(self_attn\.[qkvo]_proj|mlp\.(gate|up|down)_proj)"
    r"|model\.audio_tower\.proj"
)
IGNORED = -100  # a label that the loss does not count
WARM = 0.05  # share of the steps in which the learning rate rises
EVALUATIONS = 20  # of the held-out loss, each with a checkpoint
PATIENCE = 4  # evaluations without improvement, after which it stops


@dataclass(frozen=True, slots=True)
class Example:
    """ids [n]: the prompt, one placeholder per embedding, and the answer with its end. labels [n]:
    the same, or IGNORED. sound: as of Turn."""

    sound: str
    ids: tuple[int, ...]
    labels: tuple[int, ...]


def examples_of(
    turns: Sequence[Turn], directory: Path, card: ModelCard, phrases: Phrases, audio_id: int
) -> list[Example]:
    """Each turn's prompt for one model, and the sentence that says the turn's levels. Raises
    ModelError if the model's tokenizer has no end of an answer."""
    tokenizer = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
    ours = Tokenizer(directory)
    prefix, suffix = ours.encode(card.prompt.prefix), ours.encode(card.prompt.suffix)
    end = next((i for i in map(tokenizer.token_to_id, EOS) if i is not None), None)
    if end is None:
        raise ModelError(directory, f"its tokenizer has neither {' nor '.join(EOS)}")
    found = []
    for turn in turns:
        text, unknown = sentence_of(turn, phrases)
        said = tokenizer.encode(text, add_special_tokens=False)
        answer = []
        for each, (first, last) in zip(said.ids, said.offsets, strict=True):
            is_unknown = any(begin < last and first < stop for begin, stop in unknown)
            answer.append(IGNORED if is_unknown else each)
        before = [*prefix, *[audio_id] * turn.num_embeddings, *suffix]
        labels = (*[IGNORED] * len(before), *answer, end)
        found.append(Example(turn.sound, (*before, *said.ids, end), labels))
    return found


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


def adapted(directory: Path, device: str, dtype: torch.dtype, rank: int, seed: int) -> Any:
    """A frozen thinker with trainable adapters, PEFT's model. Raises OSError."""
    logging.set_verbosity_error()  # vision and talker are not loaded, which is reported at length
    logging.disable_progress_bar()
    config = stock_config(directory)
    config.vision_config.depth = 0
    options = {"attn_implementation": "sdpa", "dtype": dtype, "trust_remote_code": False}
    stock = Stock.from_pretrained(directory, config=config, **options).to(device)
    stock.model.visual = None
    stock.requires_grad_(False)
    if sum(weight.numel() for weight in stock.parameters()) > SMALL:
        stock.model.language_model.gradient_checkpointing_enable({"use_reentrant": False})
    torch.manual_seed(seed % 2**64)
    wanted = LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=0.0, target_modules=TARGETS)
    with warnings.catch_warnings():  # PEFT asks transformers by an old name
        warnings.simplefilter("ignore", FutureWarning)
        return get_peft_model(stock, wanted)


def collated(examples: Sequence[Example]) -> dict[str, Tensor]:
    """A batch; padding is at the end, where no id attends to it."""

    def padded(rows: Sequence[Any], value: float = 0) -> Tensor:
        return pad_sequence([torch.as_tensor(row) for row in rows], True, value)

    mels = [np.load(example.sound)["mel"].T for example in examples]
    return {
        "input_ids": padded([example.ids for example in examples]),
        "labels": padded([example.labels for example in examples], IGNORED),
        "input_features": padded(mels).mT,
        "feature_attention_mask": padded([np.ones(len(mel), np.int64) for mel in mels]),
    }


def losses(model: Any, inputs: dict[str, Tensor]) -> Tensor:
    """Cross-entropy of each label of a batch, in nats."""
    stock = model.base_model.model
    wanted = inputs["labels"][:, 1:]
    places = torch.arange(inputs["labels"].shape[1], device=wanted.device)
    given = {name: value for name, value in inputs.items() if name != "labels"}
    places = places.expand(3, len(wanted), -1)
    hidden = stock.model(**given, position_ids=places, use_cache=False).last_hidden_state
    counts = wanted != IGNORED
    logits = stock.lm_head(hidden[:, :-1][counts]).float()
    return F.cross_entropy(logits, wanted[counts], reduction="none")


@dataclass
class State:
    """A finished training: its steps, the held-out loss before it, in nats per id, and the best
    one, whose adapter the model has."""

    step: int
    before: float
    best: float
    best_step: int


class Training(Trainer):
    """transformers' trainer over examples. It stops after PATIENCE evaluations without improvement,
    and continues from the checkpoint of an interrupted run."""

    def __init__(
        self,
        model: Any,
        learnt: Sequence[Example],
        held: Sequence[Example],
        options: TuneOptions,
        work: Path,
    ) -> None:
        super().__init__(
            model=model,
            args=_arguments(options, len(learnt), work / "training"),
            train_dataset=list(learnt),
            eval_dataset=list(held),
            data_collator=collated,
            callbacks=[EarlyStoppingCallback(PATIENCE), _Progress()],
        )
        self.remove_callback(PrinterCallback)

    def run(self) -> State:
        """Raises Failed, and OSError."""
        found = Path(self.args.output_dir).glob("checkpoint-*/trainer_state.json")  # written last
        whole = sorted(found, key=lambda file: int(file.parent.name.partition("-")[2]))
        begun = whole[-1].parent if whole else None
        self.args.eval_on_start = begun is None
        if begun:
            tell(f"goes on from {begun.name}")
        way = "in another --out"
        try:
            self.train(resume_from_checkpoint=begun and str(begun))
        except (torch.OutOfMemoryError, MemoryError):
            told = f"there is too little memory for step {self.state.global_step}"
            raise Failed(f"{told}; give a smaller --at-once, {way}") from None
        losses = [row["eval_loss"] for row in self.state.log_history if "eval_loss" in row]
        if not all(map(math.isfinite, losses)):
            told = "the held-out loss is not finite; give a smaller --learning-rate"
            raise Failed(f"{told}, {way}")
        best_step = self.state.best_global_step or 0
        return State(self.state.global_step, losses[0], min(losses), best_step)

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """The mean over the labels of the whole batch, of which `inputs` may be a part."""
        found = losses(self.model, inputs)
        loss = found.sum() / (len(found) if num_items_in_batch is None else num_items_in_batch)
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
        seed=options.seed % 2**32,
        eval_strategy="steps",
        eval_steps=every,
        save_steps=every,
        logging_steps=every,
        save_total_limit=1,  # beside the best one
        load_best_model_at_end=True,
        use_cpu=options.device == "cpu",
        dataloader_pin_memory=options.device != "cpu",
        remove_unused_columns=False,
        disable_tqdm=True,
        report_to="none",
    )


class _Progress(TrainerCallback):
    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self._bar = Bar("tuning", state.max_steps)

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self._bar.show(state.global_step, f"step {state.global_step} of {state.max_steps}")

    def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self._bar.hide()
