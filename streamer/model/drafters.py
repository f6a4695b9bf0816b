"""The edge's next ids. In: a listener whose turn is over. Out: drafted ids, the gate's signals."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from streamer.core.decoding.gate import Signal
from streamer.core.rules.clauses import Ranges
from streamer.core.rules.sampling import Sampling
from streamer.core.rules.settings import Rules
from streamer.model.choose import signals_of
from streamer.model.listener import Listener
from streamer.model.sampler import Chooser
from streamer.model.scheduler import Steps
from streamer.model.thinker import form_of

Draft = tuple[list[int], list[Signal]]


@dataclass(eq=False)
class IncrementalDrafter:
    """Ids from the KV slot up to one that ends the answer: nothing behind it would be kept. Both
    drafters are as stages/ports.py's Drafter says.

    A whole block per step where the engine's kernels choose too; else, and for
    what is rare, one id per step.
    """

    listener: Listener
    rules: Rules
    sampling: Sampling
    ranges: Ranges = field(default_factory=dict)
    chooser: Chooser = field(init=False)
    _width: int = field(init=False)  # of the engine's logits
    _writes: bool = field(init=False)  # whether the engine's kernels choose, too

    def __post_init__(self) -> None:
        thinker = self.listener.thinker
        form = form_of(thinker, self.rules, self.ranges)
        self.chooser = Chooser(thinker.vocabulary, self.rules, self.sampling, form)
        self._width = thinker.shapes.text.vocab
        self._writes = thinker.engine.writes

    def draft(self, n: int) -> Steps[Draft]:
        sequence = self.listener.sequence
        chooser = self.chooser
        listener = self.listener
        ids: list[int] = []
        signals: list[Signal] = []
        chooser.begin(sequence.answer)
        while len(ids) < n:
            writer = chooser.writer(n - len(ids), self._width) if self._writes else None
            logits = yield from listener.feed(1, writer)
            if writer is not None:
                num_kept = chooser.written(writer.ids)
                ids += writer.ids[:num_kept]
                signals += writer.signals[:num_kept]
                if num_kept < len(writer.ids):
                    # Its logits are gone: what stands before it is fed once more.
                    sequence.replace_tail(len(sequence) - len(writer.ids) + num_kept)
                    logits = yield from listener.feed(1)
                elif writer.is_last:
                    break
                elif not writer.is_rare:
                    continue
            token, is_last, signal = chooser.next(logits)
            sequence.extend((token,))
            ids.append(token)
            signals.append(signal)
            if is_last:
                break
        return ids, signals


class GenerateDrafter:
    """The first version's drafter: transformers' own `generate()` over the whole context, for every
    block.

    no_repeat_ngram_size 2, repetition_penalty 1.05, over prompt and answer alike, and none of our
    rules. Audio is encoded and prefilled again per block (the original's defect 7): kept as
    reference and baseline only.
    """

    def __init__(self, listener: Listener, stock: Any) -> None:
        self.listener = listener
        self._stock = stock

    def draft(self, n: int) -> Steps[Draft]:
        """No step of ours: the stock model keeps its own cache, for this one block."""
        return self._generate(n)
        yield

    def _generate(self, n: int) -> Draft:
        import torch  # it is loaded: the stock model is torch's

        sequence = self.listener.sequence
        features = self.listener.features()
        ids = torch.tensor([sequence.ids])
        out = self._stock.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            input_features=torch.from_numpy(features)[None],
            feature_attention_mask=torch.ones((1, features.shape[1]), dtype=torch.long),
            max_new_tokens=n,
            do_sample=False,
            no_repeat_ngram_size=2,
            repetition_penalty=1.05,
            return_dict_in_generate=True,
            output_logits=True,
        )
        new = out.sequences[0, ids.shape[1] :].tolist()
        sequence.extend(new)
        return new, signals_of(torch.cat(out.logits)[: len(new)].float().numpy(), new)
