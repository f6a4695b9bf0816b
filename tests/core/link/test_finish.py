"""A turn's end on the link: with level weights where measures were asked for, the same each
time it is told."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
from toy_parts import MODEL, VOCABULARY

from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.core.audio.trim import AROUND_SAMPLES, trimmed
from streamer.core.link import wire
from streamer.core.link.decoding_terms import DecodingTerms
from streamer.core.link.edge_turn import RemoteTurn
from streamer.core.link.verifier_turn import Broken, End, ServedTurn
from streamer.core.rules.level_weights import LevelWeights
from streamer.core.rules.sampling import Sampling
from streamer.core.rules.settings import Rules

TERMS = DecodingTerms(VOCABULARY.fingerprint, "zh", VOCABULARY.num_ids, Rules(), Sampling())
WEIGHTS = {"rate": (-1023, -31, 0), "pitch": (0, -2)}


def turn_with(weights: LevelWeights) -> RemoteTurn:
    turn = RemoteTurn(0, bytes(16), TERMS)
    turn.hear(np.zeros(320, np.float32))
    turn.finish(weights)
    return turn


def link(turn: RemoteTurn, served: ServedTurn | None = None) -> tuple[ServedTurn, list[wire.Up]]:
    """A link, new or again: what the edge says until it has nothing more to say."""
    turn.attach()
    opened = wire.decode_up(wire.encode(turn.pull()))
    assert isinstance(opened, wire.Open)
    if served is None:
        served = ServedTurn(MODEL, opened)
    else:
        served.reopen(opened)
    turn.take(wire.OpenedMessage(0, turn.epoch, served.num_samples, "model"))
    said = []
    while (message := turn.pull()) is not None:
        said.append(wire.decode_up(wire.encode(message)))
        served.take(said[-1])
    return served, said


def test_the_verifier_has_the_weights_of_the_edge() -> None:
    served, said = link(turn_with(WEIGHTS))
    assert said[-1] == wire.FinishWithin(0, 320, WEIGHTS)
    assert served.is_finished
    assert served.weights == WEIGHTS


def test_without_measures_nothing_of_them_is_said() -> None:
    served, said = link(turn_with({}))
    assert said[-1] == wire.Finish(0, 320)
    assert served.weights == {}


def test_a_link_that_was_cut_brings_the_same_again() -> None:
    turn = turn_with(WEIGHTS)
    served, _ = link(turn)
    _, said = link(turn, served)
    assert said == [wire.FinishWithin(0, 320, WEIGHTS)]
    anew, _ = link(turn)  # the verifier was restarted: the turn is told again
    assert anew.weights == served.weights == WEIGHTS


@pytest.mark.parametrize("other", [{}, {"rate": (0, -3)}, {**WEIGHTS, "timbre": (0, -1)}])
def test_other_weights_end_the_turn(other: LevelWeights) -> None:
    served, _ = link(turn_with(WEIGHTS))
    again = wire.FinishWithin(0, 320, other) if other else wire.Finish(0, 320)
    with pytest.raises(Broken, match="other level weights"):
        served.take(again)
    assert served.take(wire.FinishWithin(0, 320, WEIGHTS)) == End()


def test_weights_without_a_best_level_end_the_turn() -> None:
    served, _ = link(RemoteTurn(0, bytes(16), TERMS))
    with pytest.raises(Broken, match="weights of rate must be"):
        served.take(wire.FinishWithin(0, 0, {"rate": (-3, -2)}))


@pytest.mark.parametrize("more", [0, 1])
def test_the_longest_turn_that_is_all_sound_fits_with_the_silence_around_it(more: int) -> None:
    """The bound is the edge's own: of a turn of max_turn_s it hears so much, and no more."""
    longest = int(MODEL.max_turn_s * SAMPLE_RATE_HZ)
    heard = trimmed(np.full(longest, 0.5, np.float32))
    turn = RemoteTurn(0, bytes(16), TERMS)
    turn.hear(np.pad(heard, (0, more * (longest + AROUND_SAMPLES + 1 - len(heard)))))
    turn.finish()
    with pytest.raises(Broken, match="60 s") if more else nullcontext():
        served, _ = link(turn)
        assert served.is_finished
