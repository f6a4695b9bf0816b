"""The two-sequence test over the wire, without a socket: any delay, loss, doubling, reorder, cut
link and lost slot.

Both ends as they are (RemoteTurn, ServedTurn, TargetLedger, every message encoded and decoded) on
toy models. The target's context begins with what it heard, so a sample lost, doubled or heard twice
changes every id.
"""

import random

import numpy as np
import pytest
from fakes import ToyDrafter, ToyModel, ToyStream, ToyVerifier, toy_vocabulary
from oracles import target_alone

from streamer.core.decoding.gate import Gate
from streamer.core.decoding.pace import Pace
from streamer.core.decoding.plan import Done, DraftMore, Emit, Plan, Verify, Wait
from streamer.core.decoding.sequence import Sequence
from streamer.core.decoding.speculate import Speculator
from streamer.core.decoding.verdict import Refusal, Verdict, VerifyRequest, prefix_hash
from streamer.core.link import wire
from streamer.core.link.edge_turn import DecodingTerms, RemoteTurn
from streamer.core.link.verifier_turn import End, Hear, ServedTurn, VerifierModel, VerifyWork
from streamer.core.rules.constrain import constrain
from streamer.core.rules.sampling import Sampling
from streamer.core.rules.settings import Rules
from streamer.core.rules.stop import stop
from streamer.model.choose import choose

VOCABULARY = toy_vocabulary()
MODEL = VerifierModel("model", VOCABULARY.fingerprint, "zh", VOCABULARY.num_ids, 60.0)
EDGE_PROMPT = (3, 7, 1)


def prompt_of(samples):
    """Three ids that tell which samples were heard, in which order."""
    position = np.arange(1, len(samples) + 1)
    number = int(np.sum(np.round(samples * 32768).astype(np.int64) * position))
    return (len(samples) % 19, number % 23, number // 23 % 23)


class Far:
    """A verifier: its turns by session; `forget` loses all slots, as a restart does."""

    def __init__(self, rules, sampling):
        self.rules, self.sampling = rules, sampling
        self.turns, self.channels, self.num_refed = {}, {}, 0

    def cut(self):
        self.channels.clear()

    def forget(self):
        self.turns.clear()

    def take(self, data):
        """Bytes up, bytes down."""
        message = wire.decode_up(data)
        if isinstance(message, wire.Open):
            turn = self.turns.get(message.session)
            if turn is None:
                turn = self.turns[message.session] = Hosted(ServedTurn(MODEL, message))
            else:
                turn.served.reopen(message)
            self.channels[message.channel] = turn
            return [
                wire.encode(
                    wire.OpenedMessage(
                        message.channel, message.epoch, turn.served.num_samples, MODEL.fingerprint
                    )
                )
            ]
        turn = self.channels.get(message.channel)
        if turn is None or getattr(message, "epoch", turn.served.epoch) != turn.served.epoch:
            return []
        return [wire.encode(reply) for reply in turn.work(turn.served.take(message), self)]


class Hosted:
    def __init__(self, served):
        self.served, self.heard, self.verifier = served, [], None

    def work(self, work, far):
        match work:
            case Hear(samples):
                self.heard.append(samples)
            case End():
                if self.verifier is None:
                    sequence = Sequence(prompt_of(np.concatenate(self.heard)))
                    sequence.start_answer()
                    stream = ToyStream(ToyModel(VOCABULARY.num_ids, 2), sequence)
                    assert (self.served.rules, self.served.sampling) == (far.rules, far.sampling)
                    self.verifier = ToyVerifier(stream, VOCABULARY, far.rules, far.sampling)
            case VerifyWork(request, runs_on):
                yield from self.judge(request, runs_on)
                far.num_refed += self.verifier.stream.num_refed
                self.verifier.stream.num_refed = 0

    def judge(self, request, runs_on):
        channel, epoch = self.served.channel, self.served.epoch
        while True:
            reply = self.verifier.verify(request)
            if isinstance(reply, Refusal):
                yield wire.Refused(channel, epoch, reply.number, reply.reason)
                return
            yield wire.Judged(channel, epoch, reply.number, reply.n_accepted, reply.next_id)
            at = request.base + len(request.unverified) + reply.n_accepted + 1
            answer = self.verifier.stream.sequence.answer[:at]
            if (
                not runs_on
                or stop(VOCABULARY, far_rules(self), answer[:-1], answer[-1]) is not None
            ):
                return
            request = VerifyRequest(request.number + 1, at, prefix_hash(answer), (), ())


def far_rules(hosted):
    return hosted.served.rules


class Wire:
    """Bytes both ways. Requests and replies may be lost, doubled, delayed and reordered; audio
    comes in order."""

    def __init__(self, far, turn, chance, loss, cut_share, restart_share):
        self.far, self.turn, self.chance = far, turn, chance
        self.loss, self.cut_share, self.restart_share = loss, cut_share, restart_share
        self.up, self.down, self.num_cuts, self.num_bytes = [], [], 0, []
        turn.attach()

    def cut(self, restart):
        self.num_cuts += 1
        self.up, self.down = [], []
        self.far.cut()
        if restart:
            self.far.forget()
        self.turn.attach()

    def move(self):
        """A moment: replies that arrived."""
        if self.chance.random() < self.cut_share:
            self.cut(self.chance.random() < self.restart_share)
        while (message := self.turn.pull()) is not None:
            data = wire.encode(message)
            if isinstance(message, wire.VerifyMessage):
                ids = (len(message.unverified) + len(message.draft)) // 3
                self.num_bytes.append(len(data) - 3 * ids)
            self.put(self.up, data, isinstance(message, wire.VerifyMessage))
        for data in self.some(self.up):
            for reply in self.far.take(data):
                self.put(
                    self.down,
                    reply,
                    isinstance(wire.decode_down(reply), wire.Judged | wire.Refused),
                )
        for data in self.some(self.down):
            reply = self.turn.take(wire.decode_down(data))
            if reply is not None:
                yield reply

    def put(self, queue, data, may_suffer):
        copies = (
            self.chance.choices((0, 1, 2), (self.loss, 1 - 1.5 * self.loss, self.loss / 2))[0]
            if may_suffer
            else 1
        )
        for _ in range(copies):
            place = len(queue)
            while (
                may_suffer
                and self.loss
                and place
                and queue[place - 1][1]
                and self.chance.random() < 0.4
            ):
                place -= 1
            queue.insert(place, (data, may_suffer))

    def some(self, queue):
        n = self.chance.randint(0, len(queue))
        taken, queue[:] = queue[:n], queue[n:]
        return [data for data, _ in taken]


def settings(seed):
    chance = random.Random(seed)
    rules = chance.choice(
        [Rules(max_new_tokens=40), Rules.off(max_new_tokens=25), Rules(ngram=2, comma_gap=0)]
    )
    sampling = chance.choice(
        [Sampling(), Sampling(temperature=1.0, seed=seed), Sampling(0.7, 0.8, seed)]
    )
    samples = (
        np.random.default_rng(seed)
        .integers(-9_000, 9_000, chance.randint(1, 30_000))
        .astype(np.float32)
        / 32768
    )
    return chance, rules, sampling, samples


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
    far = Far(plan.rules, sampling)
    terms = DecodingTerms(
        VOCABULARY.fingerprint,
        "zh",
        VOCABULARY.num_ids,
        plan.rules,
        sampling,
        plan.mode == "cloud",
        plan.mode == "exact" and plan.ahead > 0,
    )
    turn = RemoteTurn(chance.randint(0, 255), bytes(16), terms)
    link = Wire(far, turn, chance, loss, cut_share, restart_share)
    at = 0
    while at < len(samples):
        n = chance.choice([1, 160, 3_200, 20_000])
        turn.hear(samples[at : at + n])
        at += n
        list(link.move())
    turn.finish()
    for _ in range(chance.randint(0, 3)):
        assert not list(link.move()), "nobody has asked yet"
    sequence = Sequence(EDGE_PROMPT)
    sequence.start_answer()
    edge = ToyStream(ToyModel(VOCABULARY.num_ids, edge_seed), sequence)
    drafter = ToyDrafter(edge, VOCABULARY, plan.rules, sampling, kind, chance)
    machine = Speculator(plan, VOCABULARY, sequence, Pace(draft_s=chance.choice([1e-4, 0.01, 0.1])))
    shown, now, most = [], 0.0, 0
    for moment in range(budget):
        now += 0.001
        match machine.next(now, moment >= down):
            case DraftMore(n):
                ids, signals = drafter.draft(n)
                machine.drafted(ids, signals, now)
            case Verify(request):
                match turn.ask(request):
                    case Verdict() as early:
                        machine.verdict(early, now)
                    case Refusal() as refusal:
                        machine.refused(refusal)
            case Wait() if loss and moment % 40 == 39:
                link.cut(False)  # what was lost is asked again on a new link
            case Emit(ids, verified):
                if said is not None:
                    said.append((len(shown), ids, verified))
                shown += ids
            case Done(reason):
                assert edge.num_refed == 0, "each id once on the edge"
                assert sequence.answer == shown
                return shown, reason, machine, link
        most = max(most, machine.num_in_flight)
        assert most <= plan.credits
        for reply in link.move():
            (machine.verdict if isinstance(reply, Verdict) else machine.refused)(reply)
        assert edge.cache[: sequence.n_cached] == list(sequence.ids[: sequence.n_cached])
        assert sequence.answer[: len(shown)] == shown, "committed text never changes"
    raise AssertionError("no end")


def plan_of(chance, mode, rules, **more):
    adapts = mode == "exact" and chance.random() < 0.3
    return Plan(
        mode,
        k=chance.randint(1, 7),
        gate=Gate(entropy=1.2),
        rules=rules,
        ahead=chance.choice([0, 3, 12, 48]),
        credits=chance.randint(1, 4),
        adapts=adapts,
        verify_budget_s=1e9,
        **more,
    )


def oracle(samples, rules, sampling):
    return target_alone(
        ToyModel(VOCABULARY.num_ids, 2), VOCABULARY, prompt_of(samples), rules, sampling
    )


@pytest.mark.parametrize(
    "seed", [*range(36), *(pytest.param(i, marks=pytest.mark.long) for i in range(36, 1_000))]
)
def test_exact_over_the_wire_equals_the_target_alone(seed):
    """Invariant 4 with blocks in flight and draft ahead, for model, twin, random and hostile
    drafters."""
    chance, rules, sampling, samples = settings(seed)
    kind = ("model", "random", "hostile")[seed % 3]
    faults = (0.0, 0.0, 0.0) if seed % 4 == 0 else (0.25 * (seed % 2), 0.03 * (seed % 3), 0.5)
    plan = plan_of(chance, "exact", rules)
    answer, reason, machine, link = run(
        plan, sampling, chance, samples, kind, 2 if seed % 5 == 0 else 1, *faults
    )
    assert (answer, reason) == oracle(samples, rules, sampling)
    assert max(link.num_bytes) <= 24
    counts = machine.counts
    assert counts.n_accepted <= counts.n_uploaded
    assert counts.n_committed == counts.n_verified == len(answer)
    if not any(faults):
        assert link.far.num_refed == 0, "each id once on the target"


@pytest.mark.parametrize(
    "seed", [*range(9), *(pytest.param(i, marks=pytest.mark.long) for i in range(9, 200))]
)
def test_cloud_over_the_wire_equals_the_target_alone(seed):
    """The verifier decodes alone and streams; a cut link goes on where it was."""
    chance, rules, sampling, samples = settings(5_000 + seed)
    plan = Plan("cloud", rules=rules, verify_budget_s=1e9)
    answer, reason, *_ = run(
        plan, sampling, chance, samples, cut_share=0.05 * (seed % 3), restart_share=0.5
    )
    assert (answer, reason) == oracle(samples, rules, sampling)


@pytest.mark.parametrize(
    "seed", [*range(16), *(pytest.param(i, marks=pytest.mark.long) for i in range(16, 500))]
)
def test_gated_over_the_wire(seed):
    """Invariant 8: with fixed k and no deadline missed the faults of the link change no id; counts
    add up."""
    chance, rules, sampling, samples = settings(9_000 + seed)
    plan = plan_of(chance, "gated", rules)
    alone = run(plan, sampling, random.Random(seed), samples)
    found = []
    for ahead, flights in ((0, 1), (plan.ahead, plan.credits)):
        more = Plan(plan.mode, plan.k, plan.gate, rules, 1e9, ahead, flights)
        found.append(
            run(
                more,
                sampling,
                random.Random(seed),
                samples,
                loss=0.2,
                cut_share=0.02,
                restart_share=0.3,
            )
        )
    for answer, reason, machine, _ in found:
        assert (answer, reason) == alone[:2]
        assert machine.counts.n_committed == len(answer)
        assert machine.counts.n_verified == alone[2].counts.n_verified


@pytest.mark.parametrize(
    "seed", [*range(24), *(pytest.param(i, marks=pytest.mark.long) for i in range(24, 500))]
)
def test_what_degraded_exact_calls_verified_is_the_targets(seed):
    """The link comes up when the edge has committed alone: each id called verified is the target's
    behind what stands before it, and none waits for a verdict that was given to another request."""
    chance, rules, sampling, samples = settings(15_000 + seed)
    plan = Plan(
        "exact",
        chance.randint(1, 6),
        rules=rules,
        verify_budget_s=1e9,
        ahead=chance.choice([3, 12, 48]),
        credits=chance.randint(1, 4),
        degrade=True,
    )
    said = []
    run(
        plan,
        sampling,
        chance,
        samples,
        "hostile",
        down=chance.choice([0, 2, 3, 5, 8, 12]),
        said=said,
    )
    answer = [i for _, ids, _ in said for i in ids]
    model, never = ToyModel(VOCABULARY.num_ids, 2), VOCABULARY.never
    for start, ids, verified in said:
        for at in range(start, start + len(ids) if verified else start):
            logits = model.logits([*prompt_of(samples), *answer[:at]])[None]
            chosen = choose(
                logits, [constrain(VOCABULARY, rules, answer[:at])], never, sampling, rules
            ).ids
            assert chosen == [answer[at]]


@pytest.mark.parametrize("when", ["unsent", "sent", "judged"])
def test_a_verdict_of_first_answers_no_other_request(when):
    terms = DecodingTerms(
        VOCABULARY.fingerprint, "zh", VOCABULARY.num_ids, Rules(), Sampling(), asks_first=True
    )
    turn = RemoteTurn(0, bytes(16), terms)
    turn.attach()
    turn.finish()
    if when != "unsent":
        while turn.pull() is not None:
            pass
    if when == "judged":
        assert turn.take(wire.Judged(0, 1, 1, 0, 9)) is None
    assert turn.ask(VerifyRequest(1, 0, prefix_hash(()), (5, 6), ())) == Refusal(1, "number")
    assert turn.take(wire.Judged(0, 1, 1, 0, 9)) is None
    again = VerifyRequest(2, 0, prefix_hash(()), (5, 6), ())
    assert turn.ask(again) is None
    *_, last = iter(turn.pull, None)
    assert last == wire.verify_message(0, 1, again), "it is sent"
    assert turn.take(wire.Judged(0, 1, 2, 0, 8)) == Verdict(2, 0, 8)


@pytest.mark.parametrize("seed", range(16))
def test_gated_goes_on_when_verdicts_are_late(seed):
    """Whatever was drafted ahead of a verdict that is given up on stays, unverified."""
    chance, rules, sampling, samples = settings(11_000 + seed)
    plan = Plan("gated", chance.randint(1, 6), Gate(entropy=1.2), rules, 0.004, 24, 4)
    answer, reason, machine, _ = run(plan, sampling, chance, samples, loss=0.4)
    counts = machine.counts
    assert reason in ("sentence", "eos", "loop", "max_tokens")
    assert counts.n_committed == len(answer)
    assert 0 <= counts.n_verified <= counts.n_committed
    assert counts.n_drafted >= counts.n_committed - counts.cloud_calls


def test_waste_is_told_apart():
    """Every drafted id is committed, wasted for the committed prefix, or wasted ahead."""
    for seed in range(30):
        chance, rules, sampling, samples = settings(13_000 + seed)
        plan = plan_of(chance, "exact", rules)
        answer, reason, machine, _ = run(plan, sampling, chance, samples)
        counts = machine.counts
        used = counts.n_drafted - counts.n_wasted - counts.n_ahead_wasted
        assert 0 <= used <= len(answer) + (reason in ("eos", "loop"))
        if plan.ahead == 0:
            assert counts.n_ahead_wasted == 0
