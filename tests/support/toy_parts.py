"""A toy pair as Parts and Judges; the samples that were heard begin its context. An edge's turn without
a socket.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from types import SimpleNamespace

import anyio
import numpy as np
from fakes import ToyModel, ToyStream, at_once, toy_vocabulary

from streamer.core.audio.turn import Closed, Heard, TurnOpened
from streamer.core.decoding.plan import Plan
from streamer.core.decoding.sequence import Sequence
from streamer.core.rules.settings import Rules, Sampling
from streamer.model.decoding import Decoder
from streamer.net.link.server import VerifierModel
from streamer.net.link.target import DecodingTerms, RemoteTarget
from streamer.stages.parts import Parts

VOCABULARY = toy_vocabulary()
MODEL = VerifierModel("model", VOCABULARY, 60.0, {"": "", "zh": ""})
EDGE_PROMPT = (3, 7, 1)
EDGE_SEED, CLOUD_SEED = 1, 2


def prompt_of(samples):
    """Three ids that tell which samples were heard, in which order. samples: float32 [n]."""
    position = np.arange(1, len(samples) + 1)
    number = int(np.sum(np.round(samples * 32768).astype(np.int64) * position))
    return (len(samples) % 19, number % 23, number // 23 % 23)


def samples_of(pcm):
    return np.frombuffer(pcm, "<i2").astype(np.float32) / 32768


@dataclass(frozen=True)
class Decoding:
    """How a house decodes."""

    plan: Plan
    sampling: Sampling


class AtOnce:
    """Runs steps where they are submitted."""

    def listen(self, language):
        return ToyHearer()

    async def submit(self, steps, is_urgent=True):
        await anyio.lowlevel.checkpoint()
        return at_once(steps)


class ToyHearing:
    """PCM16 at 16 kHz; a turn begins with its first piece."""

    measurer = None
    coach = None

    def __init__(self):
        self.num_turns = 0
        self._held = b""
        self._num: int | None = None  # samples of the open turn

    def push(self, pcm):
        opened = []
        if self._num is None:
            opened.append(TurnOpened(self.num_turns))
            self.num_turns += 1
            self._num = 0
        data = self._held + pcm
        whole = len(data) & ~1
        samples, self._held = samples_of(data[:whole]), data[whole:]
        self._num += len(samples)
        return [*opened, Heard(self.num_turns - 1, (), 0.0, samples=samples)]

    def news(self):
        return []

    def commit(self):
        if self._num is None:
            return []
        num, self._num, self._held = self._num, None, b""
        return [Closed(self.num_turns - 1, (), 0.0, num, True, None)]


class ToyHearer:
    """The edge's turn."""

    def __init__(self):
        self._heard = []

    def hear(self, heard):
        self._heard.append(heard.samples)

    def finish(self, rest, maximum, prefills=False):
        self.sequence = Sequence((*EDGE_PROMPT, *prompt_of(np.concatenate(self._heard))))
        self.sequence.start_answer()
        self.stream = ToyStream(ToyModel(VOCABULARY.num_ids, EDGE_SEED), self.sequence)
        yield

    def close(self):
        pass


def toy_parts(decoding, cloud):
    """cloud: a link to a verifier elsewhere, or None."""
    plan, sampling = decoding.plan, decoding.sampling

    def drafter(edge, rules, sampling, weights):
        decoder = Decoder(edge.stream, VOCABULARY, rules, sampling)
        return SimpleNamespace(draft=lambda n, most=0: decoder.draft(1))

    edge = AtOnce() if plan.mode != "cloud" else None
    nothing = {"updates": None, "phrases": {}, "level_names": {}, "is_measured": False}
    decodes = {"plan": plan, "sampling": sampling, "drafts": drafter}
    decodes |= {"vocabulary": VOCABULARY, "suffix": EDGE_PROMPT}
    # a session begins by other options, and is fed by these alone
    hears = {"edge": edge, "cloud": cloud, "cut": lambda options, weighs: ToyHearing()}
    return Parts(**decodes, **hears, **nothing, max_turn_s=60.0, slots=anyio.Semaphore(64))


class ToyJudge:
    """See stages/parts.py's Judge: the cloud's turn on a verifier."""

    def __init__(self, turn):
        self._turn, self._heard, self._verifier = turn, [], None

    async def hear(self, samples):
        self._heard.append(samples)

    async def finish(self, weights):
        sequence = Sequence(prompt_of(np.concatenate(self._heard)))
        sequence.start_answer()
        stream = ToyStream(ToyModel(VOCABULARY.num_ids, CLOUD_SEED), sequence)
        self._verifier = Decoder(stream, VOCABULARY, self._turn.rules, self._turn.sampling)

    async def verify(self, request):
        await anyio.lowlevel.checkpoint()
        return at_once(self._verifier.verify(request))

    def close(self):
        pass


HEARS = {"on_model": lambda model: None, "verdict_came": lambda: None}


async def turn_without_socket(*pieces, weights=None, vocabulary=VOCABULARY):
    """A turn with these pieces of samples [n] float32; over if there are weights."""
    verifier = SimpleNamespace(eager=True)
    terms = DecodingTerms(vocabulary, Sampling())
    cloud = SimpleNamespace(
        clock=lambda: 0.0, why_not=None, verifier=verifier, terms=terms, **HEARS
    )
    turn = RemoteTarget(cloud, Rules())
    for samples in pieces:
        await turn.hear(Heard(0, (), 0.0, samples=samples))
    if weights is not None:
        await turn.finish(None, weights)
    return turn


def said_by(messages):
    """The edge's messages until something has to happen first."""
    return list(iter(messages.__next__, None))


async def ask(turn, *requests):
    """Requests by `verify`: tasks that await the replies."""
    asked = [asyncio.create_task(turn.verify(request)) for request in requests]
    await asyncio.sleep(0)
    return asked
