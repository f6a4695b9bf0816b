"""From logits to ids: drafts of the edge, verdicts of the target, sentences on a turn that goes on.

Where the model's card gives a form of the sentence (core/rules/form.py), an id is chosen among the
ids that keep the form, by logit plus bias. Else the order of docs/decoding.md holds: repetition
penalty, bans and soft biases, temperature once, choice. The edge's drafts and the cloud's
corrections are chosen by the same code, and a row's result does not depend on other rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.core.calibration import Block, Prefix
from streamer.core.decoding.plan import (
    Plan,
    Refusal,
    Signal,
    Verdict,
    VerifyRequest,
    accept,
    fires,
    num_same,
    prefix_hash,
)
from streamer.core.measures.frames import HOP_SAMPLES
from streamer.core.rules.form import SentenceForm, State
from streamer.core.rules.settings import (
    FLAT,
    LOOP_COUNT,
    NOT_SHOWN,
    Constraint,
    LevelWeights,
    Rules,
    Sampling,
    constrain,
    gumbel,
    stop,
)
from streamer.core.text.vocabulary import Ids, Vocabulary
from streamer.model.audio.ear import PitchTrack, f0_of
from streamer.model.audio.mel import MelWindow
from streamer.model.listener import Listener, hear_parts
from streamer.model.scheduler import SHORT_IDS, Steps, drive
from streamer.model.thinker import Thinker, form_of

BANNED = -math.inf
LEAST_LOG_PROB = -1e4
END_BIAS = np.float32(8.0)  # under a sentence end that comes early
LOOP_TOP, LOOP_TEMPERATURE = 5, 0.8  # of a draw in place of a local loop
Floats = NDArray[np.float32]
Draft = tuple[list[int], list[Signal]]


def choose(
    logits: Floats, answer: Sequence[int], vocabulary: Vocabulary, rules: Rules, sampling: Sampling
) -> int:
    """The id after `answer` by the rules, for one row of raw `logits` [V] float32, which are not
    changed: greedy or Gumbel-max, then the local rule. Equal scores: the lowest id."""
    constraint = constrain(vocabulary, rules, answer)
    scores = ruled(logits, constraint, vocabulary, rules)
    ids = np.flatnonzero(scores > BANNED)
    token = draw(ids, scores[ids].astype(np.float64), len(answer), sampling)
    if rules.loop_local and constraint.recent.count(token) >= LOOP_COUNT:
        top = np.argsort(-scores, kind="stable")[:LOOP_TOP]
        milder = replace(sampling, temperature=LOOP_TEMPERATURE, top_p=1.0)
        token = draw(top, scores[top].astype(np.float64), len(answer), milder)
    return token


def ruled(raw: Floats, c: Constraint, vocabulary: Vocabulary, rules: Rules) -> Floats:
    """New scores [V] by all rules, banned ids at -inf. Where every id is banned, the n-gram ban is
    dropped, then adjacency, then commas; at last EOS is left."""
    scores = raw.copy()
    old = scores[c.penalised]
    penalty = np.float32(rules.repetition_penalty)
    # CTRL, arXiv 1909.05858
    scores[c.penalised] = np.where(old > 0, old / penalty, old * penalty)
    scores[c.lowered] -= END_BIAS
    if rules.clean:
        scores[vocabulary.never] = BANNED
    scores[c.never] = BANNED
    tiers = (c.commas, c.adjacency, c.ngram)
    for num_tiers in (3, 2, 1, 0):
        left = scores.copy()
        for banned in tiers[:num_tiers]:
            left[banned] = BANNED
        if left.max() > BANNED:
            return left
    scores[vocabulary.fallback] = 0.0
    return scores


def draw(ids: Ids, scores: NDArray[np.float64], index: int, sampling: Sampling) -> int:
    """One of `ids` [n] by their `scores` [n]: a draw by Gumbel-max from softmax(scores / T) within
    the top-p set of these; without a temperature the best, of equal scores the lowest id.

    index: place of the id in the answer.
    """
    if sampling.temperature == 0.0:
        return int(ids[scores.argmax()])
    heated = scores / sampling.temperature
    if sampling.top_p < 1.0:
        kept = _nucleus(heated, sampling.top_p)
        ids, heated = ids[kept], heated[kept]
    return int(ids[np.argmax(heated + gumbel(sampling.seed, index, ids))])


def _nucleus(heated: NDArray[np.float64], top_p: float) -> Ids:
    """Places, ascending, of the smallest set that holds `top_p` (arXiv 1904.09751)."""
    weights = np.exp(heated - heated.max())
    total = weights.sum()
    # ids below this weight hold less than 1 - top_p together, so only those above it are sorted
    likely = np.flatnonzero(weights >= (1.0 - top_p) * total / len(weights))
    order = likely[np.argsort(-weights[likely], kind="stable")]
    return np.sort(order[np.cumsum(weights[order]) - weights[order] < top_p * total])


def log_probs_of(logits: Floats, ids: Sequence[int]) -> list[float]:
    """ln p of each of the `ids` in the raw softmax of its row of `logits` [R, V]: the confidence
    needs the model's own. A row's sum has one order, whatever rows stand beside it."""
    below = logits - logits.max(-1, keepdims=True)
    found = below[np.arange(len(ids)), ids] - np.log(np.exp(below).sum(-1))
    return np.maximum(found, LEAST_LOG_PROB).tolist()


def entropy_of(scores: NDArray[Any]) -> float:
    """The entropy in nats of the softmax of `scores` [n]."""
    below = np.maximum(scores - scores.max(), LEAST_LOG_PROB)  # 0 * -inf is not a number
    weights = np.exp(below)
    total = weights.sum()
    # ln Z - sum(w x) / Z; the last digit may say -1e-8
    return max(0.0, float(np.log(total) - (weights * below).sum() / total))


@dataclass
class Decoder:
    """Drafts and verifies on `listener`, whose turn is over.

    form: of the sentence; None: the rules decide. Once ids have left the form (another drafter's,
    committed unverified), the rules decide, too.
    """

    listener: Listener
    vocabulary: Vocabulary
    rules: Rules
    sampling: Sampling
    form: SentenceForm | None = None

    @classmethod
    def of(
        cls, listener: Listener, rules: Rules, sampling: Sampling, weights: LevelWeights = FLAT
    ) -> Decoder:
        """With the form that the model's card gives, under `weights`."""
        thinker = listener.thinker
        return cls(listener, thinker.vocabulary, rules, sampling, form_of(thinker, rules, weights))

    def draft(self, n: int, most: int = 0) -> Steps[Draft]:
        """`n` ids, and up to `most` of them where guesses are right. A step is fed guesses, too:
        those that the model itself chooses share it, and the first wrong one is dropped with all
        after it. A draft ends early at the id that ends the answer: no id after it would be kept.
        """
        sequence = self.listener.sequence
        most = max(n, most)
        ids: list[int] = []
        signals: list[Signal] = []
        while len(ids) < n:
            answer = sequence.answer
            room = min(most - len(ids), SHORT_IDS, self.rules.max_new_tokens - len(answer)) - 1
            guess = [] if self.form is None else self.form.guess(answer, room)
            sequence.extend(guess)
            logits = yield from self.listener.feed(1 + len(guess))
            chosen, told = self.judge(logits, sequence.answer)
            num_right, token = accept(guess, chosen)
            sequence.replace_tail(len(sequence) - len(guess) + num_right, [token])
            ids += chosen[: num_right + 1]
            signals += told
            if stop(self.vocabulary, self.rules, sequence.answer[:-1], token) is not None:
                break
        return ids, signals

    def verify(self, request: VerifyRequest) -> Steps[Verdict | Refusal]:
        """Put the request's ids in place, choose k + 1 ids by the same rules as the edge, accept
        while equal, and append the next id. An empty draft asks for the next id.

        The edge repeats a request whose reply a cut link has lost. A request names all ids before
        its block, so a repeat puts the sequence where it was, and gets the same verdict. Returns a
        Refusal where the target holds other ids.
        """
        sequence, draft, base = self.listener.sequence, request.draft, request.base
        answer = sequence.answer
        if base > len(answer) or prefix_hash(answer[:base]) != request.prefix:
            return Refusal(request.number, "prefix")
        n_same = num_same(answer[base:], request.unverified)  # of a lost verdict: they stay fed
        # Two steps, so that the id before the block keeps its logits to come even when nothing is
        # new before it.
        kept = sequence.answer_start + base + n_same
        sequence.replace_tail(kept, request.unverified[n_same:])
        sequence.extend(draft)
        logits = yield from self.listener.feed(num_logits=len(draft) + 1)
        ids, signals = self.judge(logits, sequence.answer)
        n_accepted, next_id = accept(draft, ids)
        sequence.replace_tail(len(sequence) - len(draft) + n_accepted, [next_id])
        told = np.array([signal.log_prob for signal in signals], "<f2").tobytes()
        return Verdict(request.number, n_accepted, next_id, told)

    def judge(self, logits: Floats, answer: Sequence[int]) -> Draft:
        """Choose an id in place of each of the last k ids of `answer`, which are a draft, and for
        the place after them: from logits [k + 1, V].

        Returns the ids, and the signals of those up to the first one that differs from the draft,
        which stands at all places after it, too.
        """
        k = len(logits) - 1
        form, begin = self.form, len(answer) - k
        state = None if form is None else form.after(answer[:begin])
        ids: list[int] = []
        entropies: list[float] = []
        for row in range(k + 1):
            token, entropy = self._choose(logits[row], answer[: begin + row], state)
            ids.append(token)
            entropies.append(entropy)
            if row == k or token != answer[begin + row]:
                break
            state = None if form is None or state is None else form.step(state, token)
        signals = map(Signal, entropies, log_probs_of(logits[: len(ids)], ids))
        return ids + ids[-1:] * (k + 1 - len(ids)), [*signals]

    def _choose(
        self, logits: Floats, answer: Sequence[int], state: State | None
    ) -> tuple[int, float]:
        """The id after `answer` from one row of raw `logits` [V], and the entropy.

        In a form the entropy is that of the allowed ids' scores: the measures decide most levels,
        so that of the raw softmax matters little.
        """
        if self.form is None or state is None:
            token = choose(logits, answer, self.vocabulary, self.rules, self.sampling)
            return token, entropy_of(logits)
        allowed = self.form.allowed(state)
        if len(allowed) == 1:
            return int(allowed[0]), 0.0
        scores = logits[allowed].astype(np.float64)
        if (biases := self.form.biases(state)) is not None:
            scores += biases
        return draw(allowed, scores, len(answer), self.sampling), entropy_of(scores)


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
        logits = torch.cat(out.logits)[: len(new)].float().numpy()
        return new, [*map(Signal, map(entropy_of, logits), log_probs_of(logits, new))]
        yield


def describe_so_far(
    listener: Listener,
    window: MelWindow,
    rules: Rules,
    sampling: Sampling,
    weights: LevelWeights = FLAT,
) -> Steps[list[int]]:
    """Steps that return the sentence's ids; to be dropped before `listener` feeds again."""
    fork = yield from listener.so_far(window)
    ids, _ = yield from Decoder.of(fork, rules, sampling, weights).draft(rules.max_new_tokens)
    vocabulary = listener.thinker.vocabulary
    return ids[:-1] if stop(vocabulary, rules, ids[:-1], ids[-1]) in NOT_SHOWN else ids


def shadow(
    edge: Listener, cloud: Listener, plan: Plan, weights: LevelWeights
) -> Callable[[Prefix], Block]:
    """A function that gives the block that the edge drafts after a prefix, and the cloud's verdict,
    greedy, on a turn whose audio is in.

    Audio is encoded and prefilled once per model. Each question rolls both sequences back by length
    and feeds only the ids that differ from the last one.
    """
    drafter = Decoder.of(edge, plan.rules, Sampling(), weights)
    verifier = Decoder.of(cloud, plan.rules, Sampling(), weights)

    def block_at(prefix: Prefix) -> Block:
        sequence = edge.sequence
        num_kept = num_same(sequence.answer, prefix)
        sequence.replace_tail(sequence.answer_start + num_kept, prefix[num_kept:])
        ids, signals = drive(edge.engine, drafter.draft(plan.k))
        request = VerifyRequest(1, 0, prefix_hash([]), prefix, tuple(ids))
        verdict = drive(cloud.engine, verifier.verify(request))
        assert isinstance(verdict, Verdict), "it starts from nothing"
        doubt = max(signal.entropy for signal in signals)
        if fires(math.inf, edge.thinker.vocabulary, prefix, ids, signals):
            doubt = math.inf
        return Block(tuple(ids), doubt, verdict.n_accepted, verdict.next_id)

    return block_at


def warm_up(thinker: Thinker) -> None:
    """Take `thinker` once through everything a turn does, on noise; no slot stays taken."""
    num_samples = SAMPLE_RATE_HZ * 5 // 2  # one whole window and a part of one
    noise = np.random.default_rng(0).normal(0.0, 0.01, num_samples).astype(np.float32)
    for (listener,), _ in hear_parts([thinker], [noise], prefills=False):
        decoder = Decoder.of(listener, Rules(), Sampling(), {"rate": (0, -1, -2, -3, -4)})
        drive(listener.engine, decoder.draft(4))
        for k in (4, 6):  # a verification feeds k + 1 ids
            listener.sequence.extend(range(k + 1))
            drive(listener.engine, listener.feed(num_logits=k + 1))
    speech = np.ones(num_samples // HOP_SAMPLES, bool)  # a turn may be measured
    f0_of(PitchTrack().push(noise, speech, is_last=True), speech)


@dataclass
class RulesLogitsProcessor:
    """The rules in transformers' own `generate()`: the oracle that our own loop is tested against.

        prompt_length = input_ids.shape[1]
        rule = RulesLogitsProcessor(vocabulary, Rules(), Sampling(), prompt_length)
        end = SentenceStoppingCriteria(vocabulary, Rules(), prompt_length)
        model.generate(input_ids, logits_processor=[rule], stopping_criteria=[end],
                       do_sample=False, max_new_tokens=96)

    `do_sample=False` also for sampling: it draws itself, with noise that can be repeated. All ids
    but the one that our own loop chooses are banned. An id that would complete a loop is replaced
    by EOS, because a loop stops BEFORE it is committed. Rows that have ended already may hold
    anything: `generate()` pads them. Every row's prompt is `prompt_length` ids long.
    """

    vocabulary: Vocabulary
    rules: Rules
    sampling: Sampling
    prompt_length: int

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """`input_ids` [B, L], raw `scores` [B, V]. Returns [B, V]: 0 for one id, else -inf."""
        vocabulary, rules = self.vocabulary, self.rules
        found = scores.new_full(scores.shape, BANNED)
        for row, ids in enumerate(input_ids.tolist()):
            answer, raw = ids[self.prompt_length :], scores[row].float().cpu().numpy()
            chosen = choose(raw, answer, vocabulary, rules, self.sampling)
            ends_unshown = stop(vocabulary, rules, answer, chosen) in NOT_SHOWN
            found[row, vocabulary.fallback if ends_unshown else chosen] = 0.0
        return found


@dataclass
class SentenceStoppingCriteria:
    """True for rows whose last id ends the answer: a sentence end, EOS, the last id allowed."""

    vocabulary: Vocabulary
    rules: Rules
    prompt_length: int

    def __call__(self, input_ids: Any, scores: Any, **kwargs: object) -> Any:
        """`input_ids` [B, L]. Returns [B] bool."""
        answers = [ids[self.prompt_length :] for ids in input_ids.tolist()]
        told = (self.vocabulary, self.rules)
        ended = [bool(each) and stop(*told, each[:-1], each[-1]) is not None for each in answers]
        return input_ids.new_tensor(ended).bool()
