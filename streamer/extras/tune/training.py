"""Examples in; the adapter that says held-out ones best out. A run that was killed goes on where it
was, and gives what an unbroken one gives: the order and the rate of each step follow from its
number.
"""

from __future__ import annotations

import hashlib
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from streamer.extras.tune.examples import Example
from streamer.extras.tune.lora import Adapted
from streamer.extras.tune.options import TuneOptions
from streamer.extras.tune.state import State, restore, save
from streamer.extras.tune.turn import TuneError
from streamer.progress import Bar

WARM = 0.05  # the share of the steps in which the learning rate rises
LAST = 0.1  # of the learning rate, at the end
MAX_NORM = 1.0
FILE = "state.pt"


class Training:
    """Learns until `epochs` are over, or `patience` checks brought nothing."""

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
        self._file = work / FILE
        self._optimiser = torch.optim.AdamW(model.parameters(), weight_decay=0.0)
        self._per_epoch = math.ceil(len(learnt) / options.batch)
        self.num_steps = options.epochs * self._per_epoch
        digest = digest_of(learnt, held)
        self.state = State(digest)
        if (found := restore(self._file, digest)) is not None:
            self.state, adapter, optimiser = found
            model.set_adapter(adapter)
            self._optimiser.load_state_dict(optimiser)

    def run(self, on_save: Callable[[State], None] = lambda state: None) -> State:
        """on_save: is told of each state that was saved. Raises TuneError."""
        state = self.state
        saved = time.monotonic()
        with Bar("tuning", self.num_steps) as bar:
            while not state.is_over:
                bar.show(state.step, self._note())
                with _memory(state.step):
                    if not state.curve:
                        self._check()
                    self._step()
                    if state.step % self._options.check_steps == 0 or state.is_over:
                        self._check()
                if state.is_over or time.monotonic() - saved >= 60 * self._options.save_minutes:
                    save(self._file, state, self._model.adapter(), self._optimiser)
                    on_save(state)
                    saved = time.monotonic()
        return state

    def _note(self) -> str:
        loss = f", held out {self.state.curve[-1][2]:.3f}" if self.state.curve else ""
        return f"step {self.state.step} of {self.num_steps}{loss}"

    def _step(self) -> None:
        state = self.state
        epoch, index = divmod(state.step, self._per_epoch)
        order = list(range(len(self._learnt)))
        random.Random(f"{self._options.seed}/{epoch}").shuffle(order)
        size = self._options.batch
        batch = [self._learnt[i] for i in order[index * size : (index + 1) * size]]
        for group in self._optimiser.param_groups:
            group["lr"] = self._options.learning_rate * self._share(state.step)
        state.learnt.append(self._descend(batch))
        state.step += 1
        state.is_over = state.step == self.num_steps

    def _descend(self, batch: Sequence[Example]) -> float:
        """One step down the mean loss of all known ids; that loss."""
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
        """So many at once, of like lengths, so that little is padded."""
        ordered = sorted(examples, key=len)
        for at in range(0, len(ordered), self._options.at_once):
            yield ordered[at : at + self._options.at_once]

    def _share(self, step: int) -> float:
        """Of the learning rate: it rises, then falls as a cosine."""
        warm = max(1, round(WARM * self.num_steps))
        if step < warm:
            return (step + 1) / warm
        left = 0.5 + 0.5 * math.cos(math.pi * (step - warm) / max(1, self.num_steps - warm))
        return LAST + (1 - LAST) * left

    @torch.no_grad()
    def _check(self) -> None:
        """The loss held out; the best adapter so far is kept."""
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
        if state.num_worse >= self._options.patience:
            state.is_over = True


@contextmanager
def _memory(step: int) -> Iterator[None]:
    """Within: running out of memory is one line."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        is_cpu = "can't allocate memory" in str(error)
        if not (is_cpu or isinstance(error, torch.OutOfMemoryError | MemoryError)):
            raise
        way = "give a smaller --at-once or --turn-s, or --precision bf16, in another --out"
        raise TuneError(f"there is too little memory for step {step}; {way}") from None


def digest_of(learnt: Sequence[Example], held: Sequence[Example]) -> str:
    """Of what is learnt and checked, in its order."""
    digest = hashlib.blake2b(digest_size=8)
    for side in (learnt, held):
        for e in side:
            digest.update(f"{e.features.name} {e.prompt} {e.answer} {e.is_known}\n".encode())
        digest.update(b"\n")
    return digest.hexdigest()
