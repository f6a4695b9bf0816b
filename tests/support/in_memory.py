"""An edge and a verifier joined in memory, in virtual time, by a network drawn from a seed."""

from __future__ import annotations

import random

import numpy as np
from drawn import rules_and_sampling
from fakes import ToyDrafter, ToyModel, ToyStream
from toy_parts import EDGE_PROMPT, MODEL, VOCABULARY, cloud_verifier, replies_of

from streamer.core.decoding.machine import Pace, Speculator
from streamer.core.decoding.plan import Done, DraftMore, Emit, Verify, Wait
from streamer.core.decoding.sequence import Sequence
from streamer.core.decoding.verdict import Refusal, Verdict
from streamer.core.link import wire
from streamer.core.link.edge_turn import DecodingTerms, EdgeTurn
from streamer.core.link.verifier_turn import VerifierTurn


class Far:
    """A verifier in memory: its turns by session; `forget` loses all slots, as a restart does."""

    def __init__(self, rules, sampling):
        self.rules, self.sampling = rules, sampling
        self.turns, self.turn, self.num_refed = {}, None, 0

    def cut(self):
        self.turn = None

    def forget(self):
        self.turns.clear()

    def take(self, data):
        """Bytes up, bytes down."""
        message = wire.decode_up(data)
        if isinstance(message, wire.Open):
            self.turn = self.turns.get(message.session)
            if self.turn is None:
                self.turn = self.turns[message.session] = Hosted(VerifierTurn(MODEL, message))
            else:
                self.turn.served.resume(message)
            return [wire.encode(wire.Opened(self.turn.served.num_samples, MODEL.fingerprint))]
        return [wire.encode(reply) for reply in self.turn.work(message, self)]


class Hosted:
    """One turn on it."""

    def __init__(self, served):
        self.served, self.heard, self.verifier = served, [], None

    def work(self, message, far):
        match message:
            case wire.Audio():
                self.heard.append(self.served.audio(message))
                yield wire.Heard(self.served.num_samples, False)
            case wire.Finish():
                self.served.finish(message)
                terms = self.served.rules, self.served.sampling
                assert terms == (far.rules, far.sampling)
                if self.verifier is None:
                    self.verifier = cloud_verifier(np.concatenate(self.heard), *terms)
                yield wire.Heard(self.served.num_samples, True)
            case wire.Verify():
                request = self.served.request(message)
                for reply in replies_of(self.verifier, request, message.runs_on):
                    if isinstance(reply, Refusal):
                        yield wire.Refused(reply.number, reply.reason)
                    else:
                        yield wire.Judged.of(reply)
                far.num_refed += self.verifier.stream.num_refed
                self.verifier.stream.num_refed = 0


class Wire:
    """Bytes both ways. Requests and replies may be lost, doubled, delayed and reordered; audio
    comes in order."""

    def __init__(self, far, turn, chance, loss, cut_share, restart_share):
        self.far, self.turn, self.chance = far, turn, chance
        self.loss, self.cut_share, self.restart_share = loss, cut_share, restart_share
        self.num_cuts, self.num_bytes = -1, []
        self.cut(restart=False)

    def cut(self, restart):
        self.num_cuts += 1
        self.up, self.down = [], []
        self.far.cut()
        if restart:
            self.far.forget()
        self.put(self.up, wire.encode(self.turn.connect()), False)

    def move(self):
        """A moment: replies that arrived."""
        if self.chance.random() < self.cut_share:
            self.cut(self.chance.random() < self.restart_share)
        while (message := self.turn.next_message()) is not None:
            data = wire.encode(message)
            if isinstance(message, wire.Verify):
                ids = len(message.unverified) + len(message.draft)
                self.num_bytes.append(len(data) - ids)
            self.put(self.up, data, isinstance(message, wire.Verify))
        for data in self.some(self.up):
            for reply in self.far.take(data):
                answers = isinstance(wire.decode_down(reply), wire.Judged | wire.Refused)
                self.put(self.down, reply, answers)
        for data in self.some(self.down):
            reply = self.turn.receive(wire.decode_down(data))
            if reply is not None:
                yield reply

    def put(self, queue, data, may_suffer):
        copies, loss = 1, self.loss
        if may_suffer:
            (copies,) = self.chance.choices((0, 1, 2), (loss, 1 - 1.5 * loss, loss / 2))
        for _ in range(copies):
            place = len(queue)
            if may_suffer and loss:
                while place and queue[place - 1][1] and self.chance.random() < 0.4:
                    place -= 1
            queue.insert(place, (data, may_suffer))

    def some(self, queue):
        n = self.chance.randint(0, len(queue))
        taken, queue[:] = queue[:n], queue[n:]
        return [data for data, _ in taken]


def settings(seed):
    chance = random.Random(seed)
    rules, sampling = rules_and_sampling(chance, seed)
    drawn = np.random.default_rng(seed).integers(-9_000, 9_000, chance.randint(1, 30_000))
    return chance, rules, sampling, drawn.astype(np.float32) / 32768


def speak(turn, link, samples, chance):
    """The turn hears all, in pieces of any size, and is over."""
    at = 0
    while at < len(samples):
        n = chance.choice([1, 160, 3_200, 20_000])
        turn.hear(samples[at : at + n])
        at += n
        list(link.move())
    turn.finish()
    for _ in range(chance.randint(0, 3)):
        assert not list(link.move()), "nobody has asked yet"


class Edge:
    """A toy that drafts; `machine` says what it does next. shown: ids; said: of Emits, where they
    are asked for."""

    def __init__(self, plan, sampling, chance, kind, seed, said):
        self.sequence = Sequence(EDGE_PROMPT)
        self.sequence.start_answer()
        self.toy = ToyStream(ToyModel(VOCABULARY.num_ids, seed), self.sequence)
        self.drafter = ToyDrafter(self.toy, VOCABULARY, plan.rules, sampling, kind, chance)
        pace = Pace(draft_s=chance.choice([1e-4, 0.01, 0.1]))
        self.machine = Speculator(plan, VOCABULARY, self.sequence, pace)
        self.shown, self.said = [], said

    def act(self, now, is_up, link, may_cut):
        """One step of the machine; the reason at the end."""
        match self.machine.next(now, is_up):
            case DraftMore(n):
                ids, signals = self.drafter.draft(n)
                self.machine.drafted(ids, signals, now)
            case Verify(request):
                self.answered(link.turn.ask(request))
            case Wait() if may_cut:
                link.cut(False)  # what was lost is asked again on a new link
            case Emit(ids, verified):
                if self.said is not None:
                    self.said.append((len(self.shown), ids, verified))
                self.shown += ids
            case Done(reason):
                assert self.toy.num_refed == 0, "each id once on the edge"
                assert self.sequence.answer == self.shown
                return reason
        return None

    def answered(self, reply):
        if isinstance(reply, Verdict):
            self.machine.verdict(reply)
        elif isinstance(reply, Refusal):
            self.machine.refused(reply)

    def check(self):
        sequence = self.sequence
        assert self.toy.cache[: sequence.n_cached] == list(sequence.ids[: sequence.n_cached])
        assert sequence.answer[: len(self.shown)] == self.shown, "committed text never changes"


def run(
    plan,
    sampling,
    chance,
    samples,
    kind="model",
    edge_seed=1,
    loss=0.0,
    cut_share=0.0,
    restart_share=0.0,
    budget=20_000,
    down=0,
    said=None,
):
    """One answer over the wire: (answer, reason, machine, wire). down: moments until the target is
    up; said: of Emits."""
    v, runs_on = VOCABULARY, plan.mode == "cloud"
    terms = DecodingTerms(v.fingerprint, v.num_ids, plan.rules, sampling, runs_on)
    turn = EdgeTurn(bytes(16), terms)
    link = Wire(Far(plan.rules, sampling), turn, chance, loss, cut_share, restart_share)
    speak(turn, link, samples, chance)
    edge = Edge(plan, sampling, chance, kind, edge_seed, said)
    for moment in range(budget):
        now = 0.001 * (moment + 1)
        reason = edge.act(now, moment >= down, link, loss and moment % 40 == 39)
        if reason is not None:
            return edge.shown, reason, edge.machine, link
        assert edge.machine.num_in_flight <= plan.credits
        for reply in link.move():
            edge.answered(reply)
        edge.check()
    raise AssertionError("no end")
