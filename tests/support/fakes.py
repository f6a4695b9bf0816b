"""A toy model over a few tokens, where thousands of runs are needed, and its drafters; the expected
result of decoding, by a plain loop: slow and easy to check.
"""

from __future__ import annotations

import math
import random
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streamer.core.decoding.plan import Signal
from streamer.core.decoding.sequence import Sequence as Ids
from streamer.core.rules.form import SentenceForm, marks_of
from streamer.core.rules.settings import NOT_SHOWN, Rules, gumbel, stop
from streamer.core.text.vocabulary import Vocabulary
from streamer.model.decoding import Decoder, choose

WORDS = (
    *("说话人", "语速", "较慢", "音调", "平稳", "，", "停顿", "音色", "中", "。", "看", "看看"),
    *("轻", "很", "快", "高", "低", "情绪", "平静", "而", "且", "声音", "响亮", "柔和", "a"),
    *("B", "、"),
)


OFF = {"repetition_penalty": 1.0, "form": ""}
OFF |= dict.fromkeys(("ngram", "comma_gap", "end_gap", "min_new_tokens"), 0)
OFF |= dict.fromkeys(("adjacency", "loop_local", "loop_global", "clean"), False)


def no_rules(**kept: Any) -> Rules:
    """Every rule off but for `max_new_tokens` and those of `kept`."""
    return Rules(**(OFF | kept))


def toy_vocabulary() -> Vocabulary:
    """27 words, a special id and an EOS."""
    table = [w.encode() for w in WORDS] + [b"<|AUDIO|>", b"<|im_end|>"]
    return Vocabulary(table, special=[len(WORDS), len(WORDS) + 1], eos=[len(WORDS) + 1])


def toy_form(vocabulary: Vocabulary) -> SentenceForm:
    """Three attributes of two levels; all are spelled by several words."""
    phrases = {
        "rate": ("语速较慢", "语速快"),
        "pitch": ("音调平稳", "音调高"),
        "loudness": ("声音响亮", "声音很轻"),
    }
    card = {name: [{"phrases": [one]} for one in each] for name, each in phrases.items()}
    return SentenceForm(vocabulary, card)


@dataclass(frozen=True)
class ToyModel:
    """Logits [V] as a hash of the last `order` ids and the length of the context."""

    num_ids: int
    seed: int
    order: int = 3
    sharpness: float = 2.5

    def logits(self, context: Sequence[int]) -> np.ndarray:
        key = hash((self.seed, len(context), *context[-self.order :])) & 0xFFFFFFFF
        noise = np.random.default_rng(key).normal(0.0, self.sharpness, self.num_ids)
        return np.array(noise, np.float32)


@dataclass
class ToyStream:
    """Feeds `sequence.pending` into a "cache" of the ids at each position."""

    model: ToyModel
    sequence: Ids
    cache: list[int] = field(default_factory=list)  # what each cached position was fed with
    num_refed: int = 0  # ids fed again though the slot held them after the same ids

    def feed(self, num_logits: int) -> Generator[None, None, np.ndarray]:
        """As steps of a model."""
        yield
        start, pending = self.sequence.n_cached, self.sequence.pending
        assert self.cache[:start] == list(self.sequence.ids[:start]), "the slot holds other ids"
        for old, new in zip(self.cache[start:], pending, strict=False):
            if old != new:
                break
            self.num_refed += 1
        self.cache[start:] = pending
        self.sequence.mark_fed(len(pending))
        end = len(self.cache)
        ends = range(end - num_logits + 1, end + 1)
        return np.stack([self.model.logits(self.cache[:at]) for at in ends])


def at_once(steps: Generator[None, None, Any]) -> Any:
    """The value of a toy's steps."""
    while True:
        try:
            next(steps)
        except StopIteration as over:
            return over.value


@dataclass
class ToyDrafter:
    """Drafts by the rules ("model"), by chance ("random"), or to do harm ("hostile")."""

    decoder: Decoder
    kind: str
    chance: random.Random

    def draft(self, n: int) -> Generator[None, None, tuple[list[int], list[Signal]]]:
        decoder, stream = self.decoder, self.decoder.listener
        logits = yield from stream.feed(1)
        if self.kind == "model":
            ids, signals = decoder.judge(logits, stream.sequence.answer)
        else:
            count = 1 if self.kind == "random" else self.chance.randint(1, n)
            pool = range(decoder.vocabulary.num_ids)
            if self.kind == "hostile":  # ids that no rule allows: repeats, EOS, specials, commas
                last, eos = stream.sequence.answer[-2:], decoder.vocabulary.eos
                pool = [*last, *eos, len(pool) - 2, 5, 9]
            ids = [self.chance.choice(pool) for _ in range(count)]
            signals = [Signal(self.chance.uniform(0, 3), -1.0) for _ in ids]
        stream.sequence.extend(ids)
        return ids, signals


def target_alone(model, vocabulary, prompt, rules, sampling, form=None):
    """One id at a time from the whole context, no cache, no draft: (answer, stop reason)."""
    answer: list[int] = []
    while True:
        logits = model.logits([*prompt, *answer])
        state = None if form is None else form.after(answer)
        if form is None or state is None:
            token = choose(logits, answer, vocabulary, rules, sampling)
        else:
            token = in_form(logits, form, answer, sampling)
        stopped = stop(vocabulary, rules, answer, token)
        if stopped not in NOT_SHOWN:
            answer.append(token)
        if stopped is not None:
            return answer, stopped


def in_form(logits, form, answer, sampling):
    """The choice within a form, in plain words: of all ids that keep it, one by one."""
    state = form.after(answer)
    ids = [i for i in range(len(logits)) if form.step(state, i) is not None]
    biases = form.biases(state)
    biases = np.zeros(len(ids)) if biases is None else biases
    scores = {token: float(logits[token]) + biases[i] for i, token in enumerate(ids)}
    if sampling.temperature == 0:
        return max(ids, key=lambda token: (scores[token], -token))
    heated = {token: score / sampling.temperature for token, score in scores.items()}
    best = max(heated.values())
    total = sum(math.exp(heat - best) for heat in heated.values())
    kept, mass = [], 0.0
    for token in sorted(ids, key=lambda token: (-heated[token], token)):
        if mass < sampling.top_p * total:
            kept.append(token)
        mass += math.exp(heated[token] - best)
    noise = gumbel(sampling.seed, len(answer), np.array(kept))
    return max(zip(kept, noise, strict=True), key=lambda pair: heated[pair[0]] + pair[1])[0]


def levels_said(text: str, language: str) -> dict[str, int]:
    """The levels of a sentence: an opening, then each attribute once between marks."""
    from pipelines.embedded.export import spoken  # it loads torch

    words, (comma, end, gap) = spoken(language), marks_of(language)
    opening = next(filter(text.startswith, words["openings"]))
    assert text.endswith(end)
    clauses = (comma + text[len(opening) : -len(end)]).split(comma)[1:]
    level_of = {
        gap + phrase: (name, number)
        for name, levels in words["attributes"].items()
        for number, level in enumerate(levels)
        for phrase in level["phrases"]
    }
    found = dict(level_of[clause] for clause in clauses)
    assert len(found) == len(clauses) == len(words["attributes"]), text
    return found
