"""The gate of mode gated: whether a drafted block needs the cloud (docs/decoding.md).

Thresholds are for the softmax that an id is chosen from: in a form, that of the allowed ids with
their biases; else the RAW softmax, before any rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from streamer.core.rules.stop import loop_suspected
from streamer.core.text.characters import PUNCTUATION, SENTENCE_ENDS
from streamer.core.text.vocabulary import Vocabulary


class Signal(NamedTuple):
    """Three numbers about one drafted id, from the drafter's softmax.

    entropy: of the distribution that the id was chosen from, nats. margin: p1 - p2 of its two
    likeliest. log_prob: of the CHOSEN id, always in the raw softmax.
    """

    entropy: float
    margin: float
    log_prob: float


@dataclass(frozen=True)
class Gate:
    """Fires when any id of a block passes a threshold. None switches that test off."""

    entropy: float | None = 5.75  # max entropy above this, nats (report 5)
    margin: float | None = None  # min margin below this
    log_prob: float | None = None  # min log-probability below this, nats
    surprise: float | None = None  # the block's weighted -log-probability above this, nats
    density: float | None = 0.4  # more punctuation than this per character of the block (report 5)
    loop: bool = True  # the answer with the block looks like the start of a loop (report 3)


# A signal's threshold as the user states it, times this, is the doubt above which the gate
# fires.
SIGNALS = {"entropy": 1.0, "margin": -1.0, "log_prob": -1.0, "surprise": 1.0}
PUNCTUATION_WEIGHT = 0.25  # in a block's surprise: no attribute depends on a comma


@dataclass(frozen=True)
class Preset:
    """A gate and how many ids to draft per block."""

    gate: Gate
    k: int


# Fix report 5, for Qwen's vocabulary: the middle of 5.5-6.0 and of 3.0-3.5. A streamer.json may
# carry others.
PRESETS = {"fluent": Preset(Gate(entropy=5.75), k=4), "quality": Preset(Gate(entropy=3.25), k=6)}


def fires(
    gate: Gate,
    vocabulary: Vocabulary,
    answer: Sequence[int],
    block_ids: Sequence[int],
    signals: Sequence[Signal],
) -> str | None:
    """Why the block after `answer` should be verified: the name of the first test of `gate` that it
    fails, or None.

    `signals`: one per id of the block. An empty block never fires.
    """
    if not block_ids:
        return None
    for name, sign in SIGNALS.items():
        threshold = getattr(gate, name)
        if threshold is None:
            continue
        if doubt(name, vocabulary, block_ids, signals) > sign * threshold:
            return name
    if gate.density is not None and density(vocabulary.text_of(block_ids)) > gate.density:
        return "density"
    if gate.loop and loop_suspected([*answer[-12:], *block_ids]):
        return "loop"
    return None


def doubt(
    name: str, vocabulary: Vocabulary, ids: Sequence[int], signals: Sequence[Signal]
) -> float:
    """How unsure the drafter was of a block, by one of SIGNALS: more for more doubt. Calibration
    ranks blocks by it.

    surprise: -log of the chance that the raw softmax draws these very ids, those without content
    counting less.
    """
    if name == "entropy":
        return max(s.entropy for s in signals)
    if name == "margin":
        return -min(s.margin for s in signals)
    if name == "log_prob":
        return -min(s.log_prob for s in signals)
    total = 0.0
    # not `sum`: from Python 3.12 on it rounds otherwise
    for i, s in zip(ids, signals, strict=True):
        total += (1.0 if vocabulary.has_content[i] else PUNCTUATION_WEIGHT) * s.log_prob
    return -total


def density(text: str) -> float:
    """Punctuation per character of a block's text (report 5), 0 for none.

    The sentence end that closes the block does not count: a last block of "。" alone is no flood.
    """
    if not text:
        return 0.0
    counted = text[:-1] if text[-1] in SENTENCE_ENDS else text
    return sum(c in PUNCTUATION for c in counted) / len(text)
