"""The state machine on toy models: exact says what the target says, under any fault of a link."""

import heapq
import math
import random
from dataclasses import replace

import fakes
import pytest

from streamer.core.decoding import plan
from streamer.core.decoding.machine import Speculator
from streamer.core.decoding.sequence import Sequence
from streamer.core.rules.settings import Rules, Sampling
from streamer.model.decoding import Decoder, choose

VOCABULARY = fakes.toy_vocabulary()
FORM = fakes.toy_form(VOCABULARY)
PROMPT = (3, 7, 1)
FAULTS = ("loss", "refusal", "twice", "restart", "absence", "cancel", "gone")


class Traced(Sequence):
    """Knows which of its ids the edge drafted."""

    __slots__ = ("is_drafted",)

    def __init__(self):
        super().__init__(PROMPT)
        self.is_drafted = [False] * len(PROMPT)
        self.start_answer()

    def extend(self, ids):
        super().extend(ids)
        self.is_drafted += [True] * (len(self) - len(self.is_drafted))

    def replace_tail(self, n, new_ids=()):
        super().replace_tail(n, new_ids)
        self.is_drafted[n:] = [False] * (len(self) - n)


class House:
    """A machine, its edge, a target and a link that does what `chance` wants, on its own clock."""

    def __init__(self, seed, faults=FAULTS, kind="model", mode=None, form=None):
        self.chance = chance = random.Random(seed)
        few, none = Rules(max_new_tokens=40), fakes.no_rules(max_new_tokens=25)
        rules = chance.choice([few, none, Rules(ngram=2, comma_gap=0)])
        threshold = chance.choice([0.6, 1.2, math.inf])
        drawn_mode = chance.choice(["gated", "gated", "gated", "exact"])
        k, budget_s = chance.randint(1, 7), chance.choice([0.05, 0.5])
        ahead, credits = chance.choice([0, 1, 2, 3, 24]), chance.randint(1, 4)
        self.plan = plan.Plan(mode or drawn_mode, k, threshold, rules, budget_s, ahead, credits)
        self.sampling, self.form = Sampling(chance.choice([0.0, 1.0]), 0.9, seed), form
        drawn = {fault: chance.choice([0.0, 0.02, 0.2]) for fault in FAULTS}
        self.faults = {fault: share * (fault in faults) for fault, share in drawn.items()}
        if faults != FAULTS:  # no deadline is missed
            self.plan = replace(self.plan, verify_budget_s=1e9)
        self.target = fakes.ToyModel(VOCABULARY.num_ids, seed)
        self.sequence, self.edge_s = Traced(), chance.choice([0.0001, 0.03, 0.1, 0.4])
        self.is_twin = chance.random() < 0.5
        sharpness = 2.5 if self.is_twin else 3.0
        model = fakes.ToyModel(VOCABULARY.num_ids, seed + (not self.is_twin), sharpness=sharpness)
        edge, told = fakes.ToyStream(model, self.sequence), (self.plan.rules, self.sampling)
        self.drafter = fakes.ToyDrafter(Decoder(edge, VOCABULARY, *told, form), kind, chance)
        self.machine = Speculator(self.plan, VOCABULARY, self.sequence, plan.Pace(self.edge_s))
        self.now, self.is_up = 0.0, True
        self.due = []
        self.numbers = []
        self.restart()

    def restart(self):
        """The verifier knows nothing any more."""
        sequence = Sequence(PROMPT)
        sequence.start_answer()
        cloud, told = fakes.ToyStream(self.target, sequence), (self.plan.rules, self.sampling)
        self.verifier = Decoder(cloud, VOCABULARY, *told, self.form)

    def happens(self, fault):
        return self.chance.random() < self.faults[fault]

    def disturb(self):
        while self.due and self.due[0][0] <= self.now:
            match heapq.heappop(self.due)[2]:
                case None:
                    self.machine.failed()
                case reply:
                    self.machine.replied(reply)
        self.is_up ^= self.happens("absence")
        if self.happens("restart"):
            self.restart()
        if self.happens("cancel"):
            self.machine.cancel()
        if self.chance.random() < 0.1:
            self.edge_s = self.chance.choice([0.0001, 0.01, 0.1])

    def draft(self, n):
        drafted = [fakes.at_once(self.drafter.draft(1)) for _ in range(n)]
        self.now += n * self.edge_s
        self.machine.drafted([one for _, signals in drafted for one in signals], self.now)

    def ask(self, request):
        assert request.number not in self.numbers
        self.numbers.append(request.number)
        reply = fakes.at_once(self.verifier.verify(request))
        if self.plan.credits == 1 and not any(self.faults.values()):
            assert isinstance(reply, plan.Verdict)
        reply = plan.Refusal(request.number, "prefix") if self.happens("refusal") else reply
        if self.happens("gone"):
            reply = None
        for copy in range((not self.happens("loss")) + self.happens("twice")):
            at = self.now + self.chance.uniform(0.0, 0.3)
            heapq.heappush(self.due, (at, 2 * request.number + copy, reply))

    def says(self, answer):
        logits = self.target.logits((*PROMPT, *answer))
        if self.form is not None:
            return fakes.in_form(logits, self.form, answer, self.sampling)
        return choose(logits, answer, VOCABULARY, self.plan.rules, self.sampling)


def assert_in_step(*streams):
    """Each cache holds the ids of its sequence: a fresh forward would give the same."""
    for stream in streams:
        cached = stream.sequence.n_cached
        assert cached <= len(stream.sequence) - 1
        assert tuple(stream.cache[:cached]) == stream.sequence.ids[:cached]


def answered(house):
    """The answer, why it ends, and how many of its ids the target is said to have agreed to."""
    machine, shown, num_verified = house.machine, [], 0
    for _ in range(5_000):
        house.disturb()
        assert_in_step(house.drafter.decoder.listener, house.verifier.listener)
        match machine.next(house.now, house.is_up):
            case plan.DraftMore(n):
                num_open = len(house.sequence.answer) - house.sequence.n_committed
                most = house.plan.k + house.plan.ahead
                assert not machine.num_in_flight or num_open + n <= most
                house.draft(n)
            case plan.VerifyRequest() as request:
                assert machine.num_in_flight <= house.plan.credits
                assert house.is_up or house.plan.mode != "gated"
                assert request.runs_on is (house.plan.mode == "cloud")
                house.ask(request)
            case plan.Wait(until):
                assert until > house.now, "it would be asked again at once, for ever"
                house.now = min(until, house.due[0][0]) if house.due else until
            case plan.Emit(ids, is_verified):
                assert len(ids) == 1 or house.plan.mode != "edge"
                for token in ids:
                    assert not is_verified or house.says(shown) == token
                    shown.append(token)
                num_verified += is_verified * len(ids)
            case plan.Done(reason):
                return shown, reason, num_verified
    raise AssertionError("no end")


@pytest.mark.parametrize("seed", range(150))
def test_nothing_is_called_verified_that_is_not_and_all_is_counted(seed):
    house = House(seed)
    shown, reason, num_verified = answered(house)
    assert reason in ("sentence", "eos", "loop", "max_tokens", "cancelled", "error")
    counts, sequence = house.machine.counts, house.sequence
    assert shown == sequence.answer == sequence.answer[: sequence.n_committed]
    assert (counts.n_committed, counts.n_verified) == (len(shown), num_verified)
    assert counts.cloud_calls == len(house.numbers)
    own = sum(sequence.is_drafted[len(PROMPT) :])
    unshown = counts.n_drafted - own - counts.n_wasted - counts.n_ahead_wasted
    assert unshown == 0 or (unshown == 1 and reason in ("eos", "loop")), "the id that ends it"
    assert counts.n_accepted <= counts.n_uploaded
    assert counts.blocks_unverified <= counts.blocks
    assert house.drafter.decoder.listener.num_refed == 0, "each id once"


@pytest.mark.parametrize("form", [None, FORM], ids=["free", "form"])
@pytest.mark.parametrize("kind", ["model", "random", "hostile"])
@pytest.mark.parametrize("seed", range(1_000, 1_020))
def test_exact_is_the_target_alone_and_no_fault_of_the_link_changes_an_id(seed, kind, form):
    """Invariants 4 and 8, for any k, ahead and credits; gated too, while no deadline is missed."""
    for faults in ((), ("twice", "restart")):
        house = House(seed, faults, kind, "exact", form)
        answer, reason, num_verified = answered(house)
        assert num_verified == len(answer)
        told = house.plan.rules, house.sampling, form
        assert (answer, reason) == fakes.target_alone(house.target, VOCABULARY, PROMPT, *told)
        if not faults:
            counts = house.machine.counts
            assert house.verifier.listener.num_refed == 0, "each id once"
            if kind == "model" and house.is_twin:
                assert counts.n_accepted == counts.n_uploaded
                assert counts.n_corrected == 0
    assert answered(House(seed, (), kind, "cloud", form))[:2] == (answer, reason)
    if kind == "model":  # the others draw other ids when they are asked at other times
        gated = [answered(House(seed, faults, kind, "gated", form)) for faults in ((), ("twice",))]
        assert gated[0][:2] == gated[1][:2]
        assert form is None or form.is_whole(VOCABULARY.text_of(gated[0][0]))


@pytest.mark.parametrize("seed", range(24))
def test_how_many_ids_come_at_a_time_changes_nothing(seed):
    """At the edge alone; each id is a block of its own."""
    house = House(seed, (), mode="edge")
    answer, reason, _ = answered(house)
    told, edge = (house.plan.rules, house.sampling), house.drafter.decoder.listener.model
    assert (answer, reason) == fakes.target_alone(edge, VOCABULARY, PROMPT, *told)
    assert house.machine.counts.blocks == len(answer) + (reason in ("eos", "loop"))


def ask(number, base, unverified, draft, answer=()):
    prefix = plan.prefix_hash(answer[:base])
    return plan.VerifyRequest(number, base, prefix, tuple(unverified), tuple(draft))


def test_a_repeat_is_applied_once_and_other_ids_are_refused():
    """A later request has come meanwhile, and is repeated after it, too."""
    sequence = Sequence(PROMPT)
    sequence.start_answer()
    stream = fakes.ToyStream(fakes.ToyModel(VOCABULARY.num_ids, 0), sequence)
    decoder = Decoder(stream, VOCABULARY, Rules(), Sampling())
    first = ask(1, 0, (2, 4), (5, 5))
    verdict = fakes.at_once(decoder.verify(first))
    assert len(verdict.log_probs) == verdict.n_accepted + 1
    answer = list(sequence.answer)
    assert answer == [2, 4, *first.draft[: verdict.n_accepted], verdict.next_id]
    later = ask(2, len(answer), (8,), (9,), answer)
    replies = [verdict, fakes.at_once(decoder.verify(later))]
    answer = sequence.answer
    assert [fakes.at_once(decoder.verify(request)) for request in (first, later)] == replies
    for request in (ask(3, 1, (), (5,), (7,)), ask(4, 99, (), (5,), range(99))):
        assert fakes.at_once(decoder.verify(request)) == plan.Refusal(request.number, "prefix")
    assert sequence.answer == answer, "a refusal changes nothing"
    assert_in_step(stream)
