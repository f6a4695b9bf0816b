"""A link in virtual time: an edge that is right with a chance, a target at the far end of a delay.
Out: what it cost.

The state machine as it is; seconds are counted, never waited for.
"""

import random
from dataclasses import dataclass

from fakes import toy_vocabulary

from streamer.core.decoding.gate import Signal
from streamer.core.decoding.in_flight import Pace
from streamer.core.decoding.machine import Speculator
from streamer.core.decoding.plan import DraftMore, Emit, Plan, Verify, Wait
from streamer.core.decoding.sequence import Sequence
from streamer.core.decoding.verdict import Refusal, TargetLedger, Verdict
from streamer.core.rules.settings import Rules

VOCABULARY = toy_vocabulary()
RULES = Rules.off(max_new_tokens=96)
# the sentence end; ids that end nothing
STOP, WORDS = 9, (0, 1, 2, 3, 4, 6, 7, 8, 12, 13, 14, 15, 16)
CALM = Signal(0.0, 1.0, 0.0)
STEP, MORE = 1.17, 0.11  # the target's work: of a request, and of each id of its draft


@dataclass(frozen=True)
class Link:
    """a: chance that a drafted id is right. In seconds: an id on the edge, the round trip, an id on
    the target."""

    a: float
    draft_s: float
    rtt_s: float
    step_s: float = 0.002


@dataclass
class Cost:
    """seconds; the target's work in steps of one id each; ids of the answer."""

    seconds: float = 0.0
    work: float = 0.0
    num_ids: int = 0


class Target:
    """Judges one request after the other; those that it refuses cost no step."""

    def __init__(self, truth, link, cost):
        self.truth, self.link, self.cost, self.free_at = truth, link, cost, 0.0
        self.sequence = Sequence((3, 7, 1))
        self.sequence.start_answer()
        self.ledger = TargetLedger(self.sequence)

    def judge(self, request, now):
        """(when the reply is back, the reply)."""
        at = max(now + self.link.rtt_s / 2, self.free_at)
        reply = self.ledger.begin(request)
        if reply is None:
            work = (STEP if request.draft else 1) + MORE * len(request.draft)
            self.cost.work += work
            at += work * self.link.step_s
            first, k = len(self.sequence.answer) - len(request.draft), len(request.draft)
            reply = self.ledger.conclude(
                request, (self.truth + WORDS[:1] * (k + 1))[first : first + k + 1]
            )
        self.free_at = at
        return at + self.link.rtt_s / 2, reply


def write(plan, link, chance, pace, length, cost):
    """One answer of `length` ids."""
    truth = (*(chance.choice(WORDS) for _ in range(length - 1)), STOP)
    right = [chance.random() < link.a for _ in truth]
    sequence = Sequence((3, 7, 1))
    sequence.start_answer()
    machine, target = Speculator(plan, VOCABULARY, sequence, pace), Target(truth, link, cost)
    now, coming = 0.0, []
    while True:
        for reply in [reply for at, reply in coming if at <= now]:
            if isinstance(reply, Verdict):
                machine.verdict(reply, now)
            else:
                assert isinstance(reply, Refusal)
                machine.refused(reply)
        coming = [(at, reply) for at, reply in coming if at > now]
        match machine.next(now):
            case DraftMore(n):
                ids = draft(sequence.answer, truth, right, n)
                sequence.extend(ids)
                now += n * link.draft_s
                machine.drafted(ids, [CALM] * n, now)
            case Verify(request):
                coming.append(target.judge(request, now))
            case Wait():
                now = min(at for at, _ in coming)
            case Emit():
                pass
            case _:
                assert tuple(sequence.answer) == truth, (
                    "exact equals the target, whatever the edge drafts"
                )
                cost.seconds += now
                cost.num_ids += length
                return


def draft(answer, truth, right, n):
    """The edge's next ids: right where it is right and has been so far, else another word."""
    ids = []
    for at in range(len(answer), len(answer) + n):
        is_right = tuple(answer) + tuple(ids) == truth[:at] and at < len(truth) and right[at]
        wrong = WORDS[1] if at < len(truth) and truth[at] == WORDS[0] else WORDS[0]
        ids.append(truth[at] if is_right else wrong)
    return ids


def measure(plan, link, num=60, length=22, seed=5):
    """The cost of `num` answers, the same for every plan; ten before them are for the pace to
    learn."""
    chance, pace = random.Random(seed), Pace()
    for _ in range(10):
        write(plan, link, chance, pace, length, Cost())
    cost = Cost()
    for _ in range(num):
        write(plan, link, chance, pace, length, cost)
    return cost


def exact(**options):
    return Plan("exact", rules=RULES, verify_budget_s=1e9, **options)


PLAIN = exact(k=4)
AHEAD = exact(k=4, ahead=48, credits=4)
