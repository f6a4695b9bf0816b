"""A verifier elsewhere may choose all ids that clean rules ever choose, and no others."""

import random

import numpy as np
import pytest

from streamer.core.decoding.plan import Verdict, VerifyRequest, prefix_hash
from streamer.core.link.edge_turn import Plausible, RemoteFault
from streamer.core.rules.constrain import constrain
from streamer.core.rules.settings import Rules
from streamer.core.text.vocabulary import Vocabulary

BYTES = [bytes([i]) for i in range(256)]
TOKENS = [
    *BYTES,
    *(w.encode() for w in ("音", "音色", "慢", "，", "。", "音\n", "·")),
    b"\xe9\xbe",
    b"<eos>",
    b"<audio>",
]
EOS, SPECIAL = len(TOKENS) - 2, len(TOKENS) - 1
VOCABULARY = Vocabulary.build(TOKENS, [EOS, SPECIAL], [EOS], len(TOKENS) + 5)
RULES = Rules(min_new_tokens=0)


def allowed_behind(answer):
    found = constrain(VOCABULARY, RULES, answer)
    ids = np.flatnonzero(~VOCABULARY.never) if found.only is None else found.only
    return [i for i in ids.tolist() if i != EOS] or [EOS]


def request(answer, base, start, n):
    return VerifyRequest(
        1,
        base,
        prefix_hash(answer[:base]),
        tuple(answer[base:start]),
        tuple(answer[start : start + n]),
    )


@pytest.mark.parametrize("seed", range(40))
def test_whatever_the_rules_allow_is_taken_however_it_is_asked_for(seed):
    """Split characters too, with blocks that end anywhere in them; runs without a request."""
    chance, checks = random.Random(seed), Plausible(VOCABULARY)
    answer = []
    while len(answer) < 60:  # half of the time it opens a character, where it may
        ids = allowed_behind(answer)
        split = [i for i in ids if VOCABULARY.invalid[i]]
        answer.append(chance.choice(split if split and chance.random() < 0.5 else ids))
    assert any(VOCABULARY.invalid[i] for i in answer)
    base = at = 0
    while at < len(answer) - 8:
        start, n = at + chance.randint(0, 3), chance.randint(0, 3)
        asked = (
            None
            if start == at and n == 0 and at > 0 and base == at
            else request(answer, base, start, n)
        )
        accepted = chance.randint(0, n)
        at = base = start + accepted + 1
        checks.check(Verdict(1, accepted, answer[at - 1]), asked)


@pytest.mark.parametrize(
    "bad", [0x1B, 0x9B, ord("\n"), TOKENS.index("音\n".encode()), SPECIAL, len(TOKENS) + 1, 0x98]
)
@pytest.mark.parametrize("behind", [(), (TOKENS.index("音".encode()),)])
def test_what_the_rules_never_choose_is_a_fault(bad, behind):
    with pytest.raises(RemoteFault, match=f"id {bad}, which the rules never allow"):
        Plausible(VOCABULARY).check(Verdict(1, 0, bad), request(behind, 0, len(behind), 0))
    Plausible(None).check(Verdict(1, 0, bad), request(behind, 0, len(behind), 0))


def test_an_escape_code_of_two_bytes_is_a_fault_across_verdicts():
    """U+009B is what a terminal takes for ESC [; U+00B7 has an id of its own, so C2 opens it or
    nothing."""
    checks = Plausible(VOCABULARY)
    checks.check(Verdict(1, 0, 0xC2), request((), 0, 0, 0))
    with pytest.raises(RemoteFault):
        checks.check(Verdict(2, 0, 0x9B), None)
    with pytest.raises(RemoteFault):
        checks.check(Verdict(2, 0, 0x1B), request((0xC2,), 1, 1, 0))
    checks.check(Verdict(2, 0, 0xA9), request((0xC2,), 1, 1, 0))
