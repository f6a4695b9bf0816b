"""Training: examples, a frozen model with low-rank adapters, and transformers' Trainer over them;
then the tuned model: adapters merged, evaluation on held-out turns, and its two cards.

The adapters (LoRA, Hu et al. 2021, arXiv 2106.09685, by PEFT) are on the products of the text model
and on the tower's projector. transformers' own modules run the model; vision, talker and vocoder
are never loaded. On a CPU an interrupted run gives what an uninterrupted one gives.
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import torch
import torch.nn.functional as F
from msgspec import to_builtins
from msgspec.structs import replace
from peft import LoraConfig, get_peft_model
from peft.tuners.lora import LoraLayer
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import EarlyStoppingCallback, Trainer, TrainerCallback, TrainingArguments
from transformers import Qwen2_5OmniThinkerForConditionalGeneration as Stock
from transformers.trainer_callback import PrinterCallback, TrainerState
from transformers.utils import logging

import streamer
from streamer.commands.process import Failed, tell
from streamer.core.attributes import ATTRIBUTES
from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.core.rules.form import CHINESE, Phrases
from streamer.extras.tune.command import Base, TuneOptions
from streamer.extras.tune.data import Turn
from streamer.model.checkpoint.card import EOS, FILE
from streamer.model.checkpoint.weights import ModelError, wanted_name, weight_files
from streamer.model.engines.load import SMALL, stock_config
from streamer.progress import Bar

OPENING = "说话人"
TARGETS = (
    r"model\.language_model\.layers\.\d+\.(self_attn\.[qkvo]_proj|mlp\.(gate|up|down)_proj)"
    r"|model\.audio_tower\.proj"
)
RANK = 16  # of the adapters
IGNORED = -100  # a label that the loss does not count
WARM = 0.05  # share of the steps in which the learning rate rises
EVALUATIONS = 20  # of the held-out loss, each with a checkpoint
PATIENCE = 4  # evaluations without improvement, after which it stops
LICENCE = "LICENCE OF THIS MODEL: not chosen yet; look at the base model's and at your recordings'"
TABLE = ("attribute", "turns", "before", "after", "most frequent level")
Table = Sequence[Sequence[str]]
Said = list[dict[str, int | None]]


@dataclass(frozen=True, slots=True)
class Example:
    """ids [n]: the prompt, one placeholder per embedding, and the answer with its end. labels [n]:
    the same, or IGNORED. sound: as of Turn."""

    sound: str
    ids: tuple[int, ...]
    labels: tuple[int, ...]


def examples_of(turns: Sequence[Turn], base: Base) -> list[Example]:
    """Each turn's prompt for the model, and the sentence that says the turn's levels. Raises
    ModelError if the model's tokenizer has no end of an answer."""
    tokenizer = tokenizers.Tokenizer.from_file(str(base.directory / "tokenizer.json"))

    def encoded(text: str) -> Any:
        return tokenizer.encode(text, add_special_tokens=False)

    prompt = base.card.prompt
    prefix, suffix = encoded(prompt.prefix).ids, encoded(prompt.suffix).ids
    end = next((i for i in map(tokenizer.token_to_id, EOS) if i is not None), None)
    if end is None:
        raise ModelError(base.directory, f"its tokenizer has neither {' nor '.join(EOS)}")
    found = []
    for turn in turns:
        text, unknown = sentence_of(turn, base.card.attributes)
        said = encoded(text)
        answer = []
        for each, (first, last) in zip(said.ids, said.offsets, strict=True):
            is_unknown = any(begin < last and first < stop for begin, stop in unknown)
            answer.append(IGNORED if is_unknown else each)
        before = [*prefix, *[base.shapes.audio_id] * turn.num_embeddings, *suffix]
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


def adapted(base: Base, options: TuneOptions) -> Any:
    """A frozen thinker with trainable adapters, PEFT's model. Raises OSError."""
    # before weights are read: threads that wait for work on small tensors take a second of CPU time
    if base.num_params <= SMALL and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)
    logging.set_verbosity_error()  # vision and talker are not loaded, which is reported at length
    logging.disable_progress_bar()
    config = stock_config(base.directory)
    config.vision_config.depth = 0
    dtype = torch.float32 if options.device == "cpu" else torch.bfloat16
    stock = Stock.from_pretrained(base.directory, config=config, dtype=dtype).to(options.device)
    stock.model.visual = None
    stock.requires_grad_(False)
    if base.num_params > SMALL:
        stock.model.language_model.gradient_checkpointing_enable({"use_reentrant": False})
    torch.manual_seed(options.seed % 2**64)
    wanted = LoraConfig(r=RANK, lora_alpha=2 * RANK, lora_dropout=0.0, target_modules=TARGETS)
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

    def run(self) -> TrainerState:
        """The end of the training; the model has the best adapter. Raises Failed, and OSError."""
        found = Path(self.args.output_dir).glob("checkpoint-*/trainer_state.json")  # written last
        last = max(found, key=lambda file: int(file.parent.name.partition("-")[2]), default=None)
        begun = last and last.parent
        self.args.eval_on_start = begun is None
        if begun:
            tell(f"goes on from {begun.name}")
        way = "in another --out"
        try:
            self.train(resume_from_checkpoint=begun and str(begun))
        except (torch.OutOfMemoryError, MemoryError):
            told = f"there is too little memory for step {self.state.global_step}"
            raise Failed(f"{told}; give a smaller --at-once, {way}") from None
        if not all(math.isfinite(row.get("eval_loss", 0.0)) for row in self.state.log_history):
            told = "the held-out loss is not finite; give a smaller --learning-rate"
            raise Failed(f"{told}, {way}")
        return self.state

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
        save_total_limit=1,  # beside the best one
        load_best_model_at_end=True,
        use_cpu=options.device == "cpu",
        dataloader_pin_memory=options.device != "cpu",
        remove_unused_columns=False,
        disable_tqdm=True,
    )


class _Progress(TrainerCallback):
    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self._bar = Bar("tuning", state.max_steps)

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self._bar.show(state.global_step, f"step {state.global_step} of {state.max_steps}")


def learn_and_finish(
    base: Base, learnt: Sequence[Turn], held: Sequence[Turn], options: TuneOptions, work: Path
) -> Table:
    """Write `options.out`, whole or not at all; a table of its figures. Raises Failed, ModelError,
    OSError."""
    made, plain, out = work / "made", work / "base", Path(options.out)
    for directory in (made, plain):
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
    model = adapted(base, options)
    sides = [examples_of(turns, base) for turns in (learnt, held)]
    state = Training(model, sides[0], sides[1], options, work).run()
    merge(base.directory, model, made)
    model.save_pretrained(made / "adapter")
    for file in base.directory.iterdir():  # the base model, to speak under the new card
        if file.is_file() and file.name != FILE:
            (plain / file.name).symlink_to(file.resolve())
    for directory in (made, plain):
        (directory / FILE).write_text(streamer_json(base, out.name), "utf-8")
    before = _say(plain, held, options, "the base model speaks")
    after = _say(made, held, options, "the tuned model speaks")
    table = [TABLE, *scores(held, before, after)]
    told = model_card(base, len(learnt), state, table, options)
    (made / "MODEL_CARD.md").write_text(told, "utf-8")
    os.rename(made, out)
    return table


def merge(directory: Path, model: Any, out: Path) -> None:
    """Write `directory` with the model's adapters added into the empty folder `out`.

    Names, shards and types stay those of the release, and tensors that the adapters do not touch
    are copied. Raises OSError.
    """
    layers = {
        wanted_name(f"{name}.weight"): layer
        for name, layer in model.base_model.model.named_modules()
        if isinstance(layer, LoraLayer)
    }
    for file in sorted(directory.iterdir()):
        if file.is_file() and file.suffix != ".safetensors":
            shutil.copyfile(file, out / file.name)
    for file in weight_files(directory):
        with safe_open(file, framework="pt") as shard:
            tensors = {name: shard.get_tensor(name) for name in shard.keys()}  # noqa: SIM118
            metadata = shard.metadata()
        for name, weight in tensors.items():
            if layer := layers.pop(wanted_name(name) or "", None):
                change = layer.get_delta_weight("default").detach().cpu().float()
                tensors[name] = (weight.float() + change).to(weight.dtype)
        save_file(tensors, out / file.name, metadata or {"format": "pt"})
    if layers:
        raise ValueError(f"no tensor for {next(iter(layers))}")


def _say(directory: Path, turns: Sequence[Turn], options: TuneOptions, what: str) -> Said:
    """The levels that a model says of each turn, in mode edge. Raises ModelError."""
    said: Said = []
    opened = streamer.open(mode="edge", edge=str(directory), device=options.device)
    with Bar(what, len(turns)) as bar, opened as describer:
        for turn in turns:
            source = np.load(turn.sound)["samples"], SAMPLE_RATE_HZ
            said.append(dict(describer.describe(source, measures=False).attributes))
            bar.show(len(said), f"{len(said)} of {len(turns)}")
    return said


def scores(turns: Sequence[Turn], before: Said, after: Said) -> list[tuple[str, ...]]:
    """A row of TABLE per attribute that is known of any turn: the shares of these turns whose level
    the model says before and after tuning, and that have the most frequent level. The last row,
    "all", holds the mean shares."""
    found = {}
    for name in ATTRIBUTES:
        said = [
            (turn.levels[name], old[name], new[name])
            for turn, old, new in zip(turns, before, after, strict=True)
            if turn.levels[name] is not None
        ]
        if said:
            levels, old, new = map(np.array, zip(*said, strict=True))
            usual = np.bincount(levels).argmax()
            found[name] = len(said), [np.mean(each == levels) for each in (old, new, usual)]
    means = np.mean([shares for _, shares in found.values()], axis=0)
    found["all"] = len(turns), means.tolist()
    return [(n, str(num), *(f"{s:.3f}" for s in shares)) for n, (num, shares) in found.items()]


def streamer_json(base: Base, name: str) -> str:
    """The base model's card under a new name, with the phrases that were learnt. Thresholds are
    left out: they were found for other weights. Further languages are left out: sentences in the
    first one were learnt."""
    openings = base.card.openings or (OPENING,)
    card = replace(base.card, name=name, openings=openings, gate={}, languages={})
    return json.dumps({"version": 1} | to_builtins(card), ensure_ascii=False, indent=1) + "\n"


def model_card(
    base: Base, num_learnt: int, state: TrainerState, table: Table, options: TuneOptions
) -> str:
    head, *rows = (f"| {' | '.join(row)} |" for row in table)
    told = "\n".join([head, "|---" * len(TABLE) + "|", *rows])
    names = ("epochs", "batch", "learning_rate", "seed")
    how = ", ".join(f"{name} {getattr(options, name):g}" for name in names)
    return f"""# {Path(options.out).name}

{LICENCE}.

Made by `streamer tune` from {base.card.name}: low-rank adapters on the text model and on the
tower's projector, learnt from {num_learnt} turns and added to the weights. `adapter/` holds them
alone, in PEFT's form. The recordings are not included. Their levels were measured from the sound;
no person judged them.

On turns of held-out speakers, the share whose level is the measured one. Both models speak by the
same rules.

{told}

Held-out loss, nats per token: {state.log_history[0]["eval_loss"]:.3f} before,
{state.best_metric:.3f} at step {state.best_global_step} of {state.global_step}, which was kept.
Options: {how}.

The measures count as the truth, with their errors. The model may hear other kinds of recordings
worse than before, and its other abilities were not tested. It names sound, not feelings.
"""
