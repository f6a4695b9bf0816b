"""The rules of an answer: settings, bans on the next id, its end, chance, and weights of levels.

docs/decoding.md tells what each rule is for. Each is a pure function of the ANSWER's ids, never of
the prompt, whose words must stay sayable. So it needs no undo when a block is rolled back.

The constraint on the next id is applied to logits by model/decoding.py. It is for models without a
form of the sentence (form.py). Its rules are stated on texts. Only ids that may break one are
looked at: those with a mark, once per state of the text (a count, a word), and those that begin as
the text ends.

The end is tested at every id before it is committed, inside a block too: nothing follows it.

Chance: `argmax(logits / T + gumbel)` draws from softmax(logits / T): Gumbel-max (Maddison et al.,
arXiv 1411.0030). The noise is a hash of (seed, index, id), so edge and cloud share it without a
word on the wire, and a rollback or another batch does not change it.

Level weights: how strongly measured numbers favour each level of an attribute. A weight is a
natural logarithm in units of 1/32 nat: 0 for an attribute's best level, FLOOR for a level that is
practically excluded (e^-32). An attribute that is absent is flat: its levels are left to the model.
An attribute with no weights at all, `()`, is left out of the sentence: of a whisper nothing is said
about pitch. Weights are quantised once, when a turn ends. The edge and the cloud then add the same
integers, so that both choose the same ids.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Annotated, NamedTuple

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from streamer.core.text.vocabulary import (
    ENDED,
    HAN,
    HAS_CONTENT,
    MARKED,
    SENTENCE_ENDS,
    Ids,
    Vocabulary,
    content_of,
    first_word,
    is_han,
    is_letter,
    last_word,
)

LOOP_COUNT = 2
ALL = "all"  # in the place of attributes' names: those that the card has
# The bounds hold for rules from elsewhere, which run in the steps of all turns.
Number = Annotated[int, Meta(ge=0, le=4_096)]
Tokens = Annotated[int, Meta(ge=1, le=128)]
# A divisor of logits: in float32 a smaller one would make them infinite, or be 0 itself.
Divisor = Annotated[float, Meta(ge=1e-3, le=4_096)]


@dataclass(frozen=True)
class Rules:
    """The table of rules. A number of 0, a penalty of 1, "" or False switches a rule off."""

    repetition_penalty: Divisor = 1.22  # on ids of pure Han; never on punctuation
    adjacency: bool = True  # no Han character twice across ids, unless the double is a word
    ngram: Number = 3  # no n-gram of content ids twice, punctuation left out
    comma_gap: Number = 4  # content characters between a punctuation and a comma-like
    end_gap: Number = 8  # with fewer since the last one a sentence end is lowered
    min_new_tokens: Number = 16  # a sentence has as many ids; EOS may follow them
    max_new_tokens: Tokens = 96
    loop_local: bool = True  # an id that stands LOOP_COUNT times in the last four is drawn again
    loop_global: bool = True  # stop when the last max(8, 2p) ids have a period p of at most 8
    # never: specials, role words, line breaks, text after an end, ids that are no text
    clean: bool = True
    # Each sentence names these attributes once each, and no other, by the phrases of the model's
    # card: their names with commas between them, or "all" of the card; "" is any sentence
    form: str = ALL
    language: str = ""  # of the sentence: one that the model's card has; "" is the card's first

    def saying(self, said: str) -> Rules:
        """For sentences that name the attributes `said`, as `form` has them: these may be short."""
        return self if said == ALL else replace(self, form=said, min_new_tokens=0)


# Words of the chat template; a program without this rule leaked them in 29 to 33 % of its outputs.
ROLES = ("human", "user", "assistant", "system")
_ROLE = re.compile(r"[\W_]*(?:" + "|".join(ROLES) + ")", re.IGNORECASE)
_SIGNS = re.compile(r"^[\W_]+")
_TRIPLE = re.compile(rf"([{HAN}])\1\1")


class Constraint(NamedTuple):
    """The rules on one choice, as arrays of ids, int64, each without repeats.

    `commas`, `adjacency` and `ngram` are dropped, in the order ngram, adjacency, commas, while
    every id is banned; `never` and the vocabulary's own mask are not. When nothing at all is left,
    an EOS id is chosen.
    """

    never: Ids  # beyond the vocabulary's mask: an end that comes too early, a role word
    commas: Ids
    adjacency: Ids
    ngram: Ids
    penalised: Ids  # logits divided by the rules' penalty where positive, else multiplied
    lowered: Ids  # logits less END_BIAS
    recent: list[int]  # the last four answer ids


def constrain(vocabulary: Vocabulary, rules: Rules, answer: Sequence[int]) -> Constraint:
    """The constraint on the id after `answer`, which holds no id of the prompt."""
    text = vocabulary.text_of(answer)
    early, commas, lowered = _by_marks(vocabulary, rules, text, len(answer))
    ends = vocabulary.eos if len(answer) < rules.min_new_tokens else ()
    roles = _role_ids(vocabulary, text) if rules.clean else ()
    texts = vocabulary.texts
    content = [i for i in answer if HAS_CONTENT.search(texts[i])]
    grams: set[int] = set()  # the ends of n-grams that the content would repeat
    if rules.ngram:
        width = rules.ngram - 1
        tail = content[len(content) - width :]
        starts = range(len(content) - width)
        grams = {content[i + width] for i in starts if content[i : i + width] == tail}
    recent = list(answer[-4:])
    if last_word(text):  # such a word is one id, so a comma may well be every second one
        recent = [i for i in recent if i in content]
    return Constraint(
        never=_array([*early, *ends, *roles]),
        commas=commas,
        adjacency=_array(_repeated(vocabulary, text) if rules.adjacency else ()),
        ngram=_array(grams),
        penalised=_array(i for i in answer[-128:] if is_han(texts[i])),
        lowered=lowered,
        recent=recent,
    )


def _by_marks(vocabulary: Vocabulary, rules: Rules, text: str, index: int) -> tuple[Ids, Ids, Ids]:
    """The ids that break each of the rules on marks: an end that comes too early, a comma, an end
    that is lowered. They are found once per state of the text."""
    is_early = index < rules.min_new_tokens - 1
    clause, sentence = MARKED.split(text)[-1], ENDED.split(text)[-1]
    bodies = enumerate(vocabulary.texts)
    marked = vocabulary.cached("marked", lambda: [i for i, body in bodies if MARKED.search(body)])
    gaps = rules.comma_gap, rules.end_gap
    counts = min(content_of(clause), gaps[0]), min(content_of(sentence), gaps[1])

    def make() -> tuple[Ids, Ids, Ids]:
        early, commas, lowered = set[int](), set[int](), set[int]()
        for i in marked:
            if rules.clean and vocabulary.never[i]:
                continue
            piece = vocabulary.texts[i]
            for mark in MARKED.finditer(piece):
                said = sentence + piece[: mark.start()]
                if mark[0] in SENTENCE_ENDS:
                    if is_early:
                        early.add(i)
                    elif content_of(said) < rules.end_gap:
                        lowered.add(i)
                elif content_of(MARKED.split(said)[-1]) < rules.comma_gap:
                    commas.add(i)
        return _array(early), _array(commas), _array(lowered)

    state = ("marks", gaps, rules.clean, counts, is_letter(text[-1:]), is_early)
    return vocabulary.cached(state, make)


def _role_ids(vocabulary: Vocabulary, text: str) -> Sequence[int]:
    """Ids that would complete a role word at the start of the last line of `text`, in any case.

    Blanks and signs before it do not count: "### Human", "**Assistant" are templates too. A whole
    role word (another drafter's, committed unverified) is past mending.
    """
    begun = _SIGNS.sub("", text.rpartition("\n")[2]).lower()
    if not any(role.startswith(begun) for role in ROLES if role != begun):
        return ()
    bodies = enumerate(vocabulary.texts)
    return vocabulary.cached(
        ("role", begun), lambda: [i for i, body in bodies if body and _ROLE.match(begun + body)]
    )


def _repeated(vocabulary: Vocabulary, text: str) -> Iterable[int]:
    """Ids that repeat the end of `text`: a word of letters, in any case; a Han character, unless
    the double is a word and this is no third one. And ids that hold one three times in a row."""
    texts = vocabulary.texts

    def make() -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        found[""] = [i for i, body in enumerate(texts) if _TRIPLE.search(body)]
        for i, body in enumerate(texts):
            if body:
                found.setdefault(first_word(body) or body[0], []).append(i)
        return found

    starts = vocabulary.cached("starts", make)
    again: list[int] = []
    if word := last_word(text):
        # as it would follow itself
        again = starts.get(word if text.endswith(" ") else f" {word}", again)
    elif is_han(end := text[-1:]):
        again = starts.get(end, again)
        if end in vocabulary.doubles and text[-2:] != 2 * end:
            again = [i for i in again if texts[i].startswith(2 * end)]
    return [*starts[""], *again]


def _array(ids: Iterable[int]) -> Ids:
    return np.array(sorted({*ids}), dtype=np.int64)


# Values of a description's `stop_reason`; the first four are found here, the others by callers.
STOP_REASONS = ("sentence", "eos", "loop", "max_tokens", "no_speech", "cancelled")
NOT_SHOWN = ("eos", "loop")  # the id that causes one of these does not belong to the answer


def stop(vocabulary: Vocabulary, rules: Rules, answer: Sequence[int], candidate: int) -> str | None:
    """Why the answer ends with `candidate` after `answer`. None: commit it and go on."""
    if candidate in vocabulary.eos:
        return "eos"
    if len(answer) >= rules.min_new_tokens - 1 and ENDED.search(vocabulary.texts[candidate]):
        return "sentence"
    tail = [*answer[-15:], candidate]
    if rules.loop_global and any(_has_period(tail, p, max(8, 2 * p)) for p in range(1, 9)):
        return "loop"
    if len(answer) + 1 >= rules.max_new_tokens:
        return "max_tokens"
    return None


def first_stop(
    vocabulary: Vocabulary, rules: Rules, answer: Sequence[int], begin: int
) -> tuple[int, str] | None:
    """The place of the first id, from `begin` on, with which `answer` ends, and why; or None."""
    for at in range(begin, len(answer)):
        if (reason := stop(vocabulary, rules, answer[:at], answer[at])) is not None:
            return at, reason
    return None


def loop_suspected(answer: Sequence[int]) -> bool:
    """Whether the last ids may begin a loop: for a period p <= 8 the last three or more came again.

    Three for p <= 6, p / 2 for longer ones: earlier than `stop`, so that the cloud can look first.
    """
    tail = list(answer[-12:])
    return any(_has_period(tail, p, p + max(3, p // 2)) for p in range(1, 9))


def _has_period(tail: list[int], period: int, width: int) -> bool:
    """Whether the last `width` ids have this period."""
    ids = tail[-width:]
    return len(ids) == width and ids[period:] == ids[:-period]


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


@dataclass(frozen=True)
class Sampling:
    """How an id is chosen. temperature 0: greedy; top_p: within the smallest set of that share."""

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        """ValueError unless temperature is 0 or 1e-6 .. 1e6, 0 < top_p <= 1, 0 <= seed < 2**64."""
        # below, logits / T overflow
        if self.temperature != 0.0 and not 1e-6 <= self.temperature <= 1e6:
            told = "temperature must be 0 (greedy) or 0.000001 to 1000000"
            raise ValueError(f"{told}, not {self.temperature}")
        if not 0.0 < self.top_p <= 1.0:
            raise ValueError(f"top_p must be above 0 and at most 1, not {self.top_p}")
        if not 0 <= self.seed < 2**64:
            raise ValueError(f"seed must be 0 to 2**64 - 1, not {self.seed}")


def gumbel(seed: int, index: int, ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """Standard Gumbel noise, float64 of the shape of `ids`, for the answer's id number `index`.

    An id's value does not depend on which other ids are asked for. Values lie within -3.6 .. 36.8.
    """
    key, place = np.array([[seed], [index]], dtype=np.uint64)
    stream = _mix(_mix(key) + place * _GOLDEN)
    bits = _mix(stream ^ _mix((ids.astype(np.uint64) + np.uint64(1)) * _GOLDEN))
    # 52 bits and a half: strictly between 0 and 1, and exact in float64
    return -np.log(-np.log(((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52))


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """splitmix64's increment and finaliser (Steele, Lea, Flood 2014); uint64 arithmetic wraps."""
    x = x + _GOLDEN
    x = (x ^ (x >> np.uint64(30))) * _MIX_1
    x = (x ^ (x >> np.uint64(27))) * _MIX_2
    return x ^ (x >> np.uint64(31))


UNITS_PER_NAT = 32
FLOOR = -1023

# attribute -> one weight per level, the physically lowest level first
LevelWeights = Mapping[str, tuple[int, ...]]
FLAT: LevelWeights = MappingProxyType({})


def quantised(log_weights: Mapping[str, Sequence[float]]) -> LevelWeights:
    """Level weights from natural logarithms of any common scale; -inf excludes a level.

    An attribute whose weights are all equal is left out. Raises ValueError for NaN.
    """
    found = {}
    for name, logs in log_weights.items():
        best = max(logs)
        nats = (max(log - best, float(FLOOR)) for log in logs)
        weights = tuple(max(FLOOR, round(UNITS_PER_NAT * nat)) for nat in nats)
        if any(weights):
            found[name] = weights
    return found
