"""Drafts of the edge, verdicts of the target, and sentences on a turn that goes on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streamer.core.decoding.plan import (
    Refusal,
    Signal,
    TargetLedger,
    Verdict,
    VerifyRequest,
    num_same,
)
from streamer.core.rules.settings import FLAT, NOT_SHOWN, LevelWeights, Rules, Sampling, stop
from streamer.model.audio.mel import MelWindow
from streamer.model.listener import Listener
from streamer.model.sampler import Sampler, signals_of
from streamer.model.scheduler import SHORT_IDS, Steps
from streamer.model.thinker import form_of

Draft = tuple[list[int], list[Signal]]


class IncrementalDrafter:
    """Drafts id by id from the KV slot of `listener`, whose turn is over.

    A draft ends early at the id that ends the answer: no id after it would be kept.
    """

    def __init__(
        self, listener: Listener, rules: Rules, sampling: Sampling, weights: LevelWeights = FLAT
    ) -> None:
        self.listener = listener
        form = form_of(listener.thinker, rules, weights)
        self._sampler = Sampler(listener.thinker.vocabulary, rules, sampling, form)

    def draft(self, n: int, most: int = 0) -> Steps[Draft]:
        """`n` ids, and up to `most` of them where guesses are right. A step is fed guesses, too:
        those that the model itself chooses share it, and the first wrong one is dropped with all
        after it."""
        sequence, sampler = self.listener.sequence, self._sampler
        most = max(n, most)
        ids: list[int] = []
        signals: list[Signal] = []
        while len(ids) < n:
            guess = sampler.guess(sequence.answer, min(most - len(ids), SHORT_IDS) - 1)
            sequence.extend(guess)
            logits = yield from self.listener.feed(1 + len(guess))
            chosen, told = sampler.judge(logits, sequence.answer, len(guess))
            num_right = num_same(guess, chosen)
            sequence.replace_tail(len(sequence) - len(guess) + num_right, [chosen[num_right]])
            ids += chosen[: num_right + 1]
            signals += told
            if stop(sampler.vocabulary, sampler.rules, sequence.answer[:-1], ids[-1]) is not None:
                break
        return ids, signals


@dataclass
class GenerateDrafter:
    """Drafts each block by transformers' own `generate()` over the whole context.

    It uses no_repeat_ngram_size 2 and repetition_penalty 1.05, over prompt and answer alike, and
    none of our rules. Audio is encoded and prefilled again for each block. This is the drafter of
    the first version, kept as reference and baseline.
    """

    listener: Listener
    stock: Any

    def draft(self, n: int, most: int = 0) -> Steps[Draft]:
        """Up to `n` ids, without an engine step: the stock model keeps its own cache."""
        import torch  # it is loaded: the stock model is torch's

        sequence = self.listener.sequence
        features = self.listener.features()
        ids = torch.tensor([sequence.ids])
        out = self.stock.generate(
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
        yield


class LocalVerifier:
    """Verifies on a listener of this process, whose turn is over."""

    def __init__(
        self, listener: Listener, rules: Rules, sampling: Sampling, weights: LevelWeights = FLAT
    ) -> None:
        self._listener = listener
        form = form_of(listener.thinker, rules, weights)
        self._sampler = Sampler(listener.thinker.vocabulary, rules, sampling, form)
        self._ledger = TargetLedger(listener.sequence)
        # 0.7 ms per row of 150,000 ids: only where they become a confidence
        self._tells = weights is not FLAT

    def verify(self, request: VerifyRequest) -> Steps[Verdict | Refusal]:
        """Feed the new ids, choose k + 1 ids by the same rules as the edge, accept while equal.

        An empty draft asks for the next id. Returns a Refusal where the target holds other ids.
        """
        known = self._ledger.begin(request)
        if known is not None:
            return known
        k = len(request.draft)
        logits = yield from self._listener.feed(num_logits=k + 1)
        ids, signals = self._sampler.judge(logits, self._ledger.sequence.answer, k, self._tells)
        return self._ledger.conclude(request, ids, [signal.log_prob for signal in signals])


def describe_so_far(
    listener: Listener,
    window: MelWindow,
    rules: Rules,
    sampling: Sampling,
    weights: LevelWeights = FLAT,
) -> Steps[list[int]]:
    """Steps that return the sentence's ids; to be dropped before `listener` feeds again."""
    fork = yield from listener.so_far(window)
    drafter = IncrementalDrafter(fork, rules, sampling, weights)
    vocabulary = listener.thinker.vocabulary
    ids, _ = yield from drafter.draft(rules.max_new_tokens)
    return ids[:-1] if stop(vocabulary, rules, ids[:-1], ids[-1]) in NOT_SHOWN else ids
