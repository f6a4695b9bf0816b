"""A turn's two ends, message by message, and when a link tries again."""

import asyncio

import numpy as np
import pytest
from far import opening
from toy_parts import MODEL, VOCABULARY
from unlinked import ask, turn_without_socket

from streamer.core.decoding.plan import Refusal, Verdict, VerifyRequest, prefix_hash
from streamer.core.link import wire
from streamer.core.rules.settings import Rules, Sampling
from streamer.net.link.client import VERDICT_PAUSES_S, Backoff
from streamer.net.link.server import Broken, ServedTurn
from streamer.net.link.target import DecodingTerms, RemoteFault

TERMS = DecodingTerms(VOCABULARY, Rules(), Sampling())
WEIGHTS = {"rate": (-1023, -3, 0, -40, -900), "pitch": (0, -1, -5, -9)}
FIRST = VerifyRequest(1, 0, prefix_hash(()), (), ())
RUNS_ON = VerifyRequest(1, 0, prefix_hash(()), (), (), True)


def sound(num):
    return np.random.default_rng(0).integers(-9_000, 9_000, num).astype(np.float32) / 32_768


async def edge_with(samples, weights=None):
    return await turn_without_socket(TERMS, samples, weights=weights)


def connect(turn, served=None):
    """A websocket, new or again, until the edge has nothing to say: (the other end, messages)."""
    opened = wire.decode_up(wire.encode(turn.connect()))
    if served is None:
        served = ServedTurn(MODEL, opened)
    turn.receive(wire.Opened(served.num_samples, "model"))
    said = []
    while (message := turn.next_message()) is not None:
        said.append(wire.decode_up(wire.encode(message)))
        match said[-1]:
            case wire.Audio():
                served.audio(said[-1])
            case wire.Finish():
                served.finish(said[-1])
            case _:
                continue
        turn.receive(wire.Heard(served.num_samples, served.is_finished))
    return served, said


@pytest.mark.parametrize("kept", [0, 5_000, 20_000])
async def test_only_lost_audio_crosses_again(kept):
    """After a cut the edge waits for the verifier's word before it sends audio."""
    turn = await edge_with(sound(20_000), {})
    connect(turn)
    turn.connect()
    assert turn.next_message() is None
    turn.receive(wire.Opened(kept, "model"))
    said = list(iter(turn.next_message, None))
    assert sum(m.num_samples for m in said if isinstance(m, wire.Audio)) == 20_000 - kept
    assert isinstance(said[-1], wire.Finish)


async def test_requests_without_a_reply_are_sent_again():
    turn = await edge_with(sound(320), {})
    served, _ = connect(turn)
    requests = [VerifyRequest(n, 0, prefix_hash(()), (), (n,)) for n in (1, 2, 3)]

    first, second, third = await ask(turn, *requests)
    assert list(iter(turn.next_message, None)) == requests
    turn.receive(Verdict(2, 1, 9))
    assert await second == Verdict(2, 1, 9)
    first.cancel()
    await asyncio.wait([first])
    _, said = connect(turn, served)
    assert said == [wire.Finish(320, {}), requests[2]]
    turn.receive(Verdict(1, 0, 9))  # it was given up
    turn.receive(Refusal(3, "prefix"))
    assert await third == Refusal(3, "prefix")
    assert connect(turn, served)[1] == [wire.Finish(320, {})], "a refusal is a reply"


async def test_what_cannot_be_is_the_verifiers_fault():
    cases = {
        "heard more": wire.Heard(321, False),
        "for another one": wire.Opened(321, "model"),
        f"then id {VOCABULARY.num_ids}": Verdict(1, 0, VOCABULARY.num_ids),
        "3 of 0 ids accepted": Verdict(1, 3, 5),
    }
    for told, message in cases.items():
        turn = await edge_with(sound(320), {})
        connect(turn)
        await ask(turn, FIRST)
        with pytest.raises(RemoteFault, match=told):
            turn.receive(message)
    with pytest.raises(RemoteFault, match="for another one"):
        turn.receive(wire.Opened(0, "another model"))
    runs_on = await edge_with(sound(320), {})
    connect(runs_on)
    await ask(runs_on, RUNS_ON)
    list(iter(runs_on.next_message, None))
    with pytest.raises(RemoteFault, match="3 of 0 ids accepted"):
        runs_on.receive(Verdict(2, 3, 5))


async def test_a_resumed_turn_has_the_same_weights():
    turn = await edge_with(sound(320), WEIGHTS)
    served, _ = connect(turn)
    _, said = connect(turn, served)
    assert said == [wire.Finish(320, WEIGHTS)]
    anew, _ = connect(turn)  # the verifier was restarted: the turn is sent again
    assert anew.weights == served.weights == WEIGHTS
    assert anew.num_samples == 320


def served_with(num):
    turn = ServedTurn(MODEL, opening())
    turn.audio(wire.Audio.of(0, sound(num)))
    return turn


def finished(num):
    turn = served_with(num)
    turn.finish(wire.Finish(num, WEIGHTS))
    return turn


@pytest.mark.parametrize(
    ("told", "give"),
    [
        ("samples 0 to 5 are missing", lambda: served_with(0).audio(wire.Audio(5, b"1234", False))),
        ("3200 samples here and 77", lambda: served_with(3_200).finish(wire.Finish(77, {}))),
        ("weights of rate", lambda: served_with(0).finish(wire.Finish(0, {"rate": (-3, -2)}))),
        ("over once it is", lambda: finished(320).audio(wire.Audio(320, bytes(20), False))),
        ("before the turn's end", lambda: served_with(320).check(FIRST)),
        *(
            ("ids that", lambda ids=ids: finished(320).check(VerifyRequest(1, 0, bytes(8), *ids)))
            for ids in [(((1 << 24) - 1,), ()), ((), (0, VOCABULARY.num_ids)), ((0,) * 300, ())]
        ),
    ],
)
def test_what_cannot_be_ends_the_turn(told, give):
    with pytest.raises(Broken, match=told) as broken:
        give()
    assert broken.value.is_final


RULES = {name: value for name, value in vars(Rules()).items() if name != "language"}
MISFITS = {
    "different tokenizers": {"tokenizer": "other"},
    "is to be described in 'en'": {"language": "en"},
    "not the one": {"model": "0123"},
    "say different phrases": {"rules": RULES | {"phrases": "0123"}},
    "has others": {"rules": RULES | {"new_rule": 1}},
    "repetition_penalty must": {"rules": RULES | {"repetition_penalty": 1e-300}},
    "ngram is": {"rules": RULES | {"ngram": 10**9}},
    "max_new_tokens is": {"rules": RULES | {"max_new_tokens": 129}},
    "temperature must be": {"sampling": (-1.0, 1.0, 0)},
}


@pytest.mark.parametrize("told", MISFITS)
def test_an_edge_that_does_not_fit_learns_why(told):
    with pytest.raises(Broken, match=told) as broken:
        ServedTurn(MODEL, opening(**MISFITS[told]))
    assert broken.value.is_final
    assert len(str(broken.value)) <= 200, "it fits into a Rejected"


def test_pauses_grow_until_a_success():
    backoff, pauses = Backoff(*VERDICT_PAUSES_S), []
    for now in range(9):
        backoff.failed(now)
        pauses.append(backoff.pause_s)
    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
    backoff.succeeded()
    assert backoff.pause_s == 0.0
