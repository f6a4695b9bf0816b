"""A verifier that lies: gated goes on within its budget, exact ends with an error in time."""

import anyio
import pytest
from far import free_port, honest, lying
from speech import SAMPLES

from streamer import Describer, TextDelta
from streamer.core.decoding.plan import Refusal, Verdict, VerifyRequest
from streamer.core.link import wire
from streamer.model.checkpoint.layout import shapes_of
from streamer.model.checkpoint.tokenizer import Tokenizer
from streamer.model.thinker import EMBEDDED
from streamer.stages.events import TurnFailed
from streamer.stages.ports import TargetLost

BUDGET_S = 0.3
# A safety net for a busy machine. Without the budget it would be 5 s a block, and 30 s in exact.
MOST_STALL_MS = 4_000
MOST_S = 25.0
CLOUD = EMBEDDED / "cloud"
ESCAPE = Tokenizer(CLOUD).vocabulary(shapes_of(CLOUD).text.vocab).texts.index("\x1b")


def with_verdict(make):
    """Honest but for its verdicts."""

    def reply(message, chance):
        if isinstance(message, VerifyRequest):
            return make(message, chance)
        return honest(message, chance)

    return reply


def fuzzed(message, chance):
    return [chance.randbytes(chance.randint(0, 60))]


HOSTILE = {
    "an escape code": with_verdict(lambda m, _: [Verdict(m.number, 0, ESCAPE)]),
    "refuses all": with_verdict(lambda m, _: [Refusal(m.number, "prefix")]),
    "rejects all": with_verdict(lambda m, _: [wire.Rejected(False, "not now")]),
    "rejects for good": with_verdict(lambda m, _: [wire.Rejected(True, "not ever")]),
    "no verdict": with_verdict(lambda m, _: []),
    "garbage for everything": fuzzed,
    "silence": lambda m, _: [],
    "closes at once": None,
}


async def one_turn(describer, file):
    async with describer.session() as session:
        await session.feed(file.read_bytes()[44:])
        await session.commit()
        started = anyio.current_time()
        events = [event async for event in session]
        return events, anyio.current_time() - started


@pytest.mark.parametrize("lie", HOSTILE)
async def test_gated_goes_on_and_exact_says_so(lie, wanted):
    """Live and from a file: a file waits as long as a live turn would, and no longer."""
    alone = wanted["edge"][SAMPLES[0].name]["ids"]
    async with lying(HOSTILE[lie]) as port:
        options = {"cloud": f"ws://127.0.0.1:{port}", "verify_budget_s": BUDGET_S}
        async with Describer.open(mode="gated", threshold=0.0, **options) as describer:
            await describer.load()
            events, _ = await one_turn(describer, SAMPLES[0])
            said = "".join(event.text for event in events if isinstance(event, TextDelta))
            assert events[-1].text == said
            with anyio.fail_after(MOST_S):
                found = await describer.describe(SAMPLES[0])
            for one in (events[-1], found):
                assert (list(one.ids), one.verified_share) == (alone, 0.0)
                assert one.stall_ms < MOST_STALL_MS
        async with Describer.open(mode="exact", **options) as describer:
            await describer.load()
            events, seconds = await one_turn(describer, SAMPLES[0])
            assert isinstance(events[-1], TurnFailed), events[-1]
            assert seconds < MOST_S
            assert "\n" not in events[-1].message
            with anyio.fail_after(MOST_S), pytest.raises(TargetLost):
                await describer.describe(SAMPLES[0])


async def test_without_a_verifier_a_turn_costs_one_budget_and_the_next_one_nothing():
    options = {"mode": "gated", "threshold": 0.0, "verify_budget_s": 0.5}
    async with Describer.open(cloud=f"ws://127.0.0.1:{free_port()}", **options) as describer:
        found = await describer.describe(SAMPLES[0])
        assert (found.stop_reason, found.verified_share) == ("sentence", 0.0)
        assert found.stall_ms < 3_000, "one budget, and then it asks no more"
        again = await describer.describe(SAMPLES[1])
        assert (again.stop_reason, again.cloud_calls, again.stall_ms) == ("sentence", 0, 0.0)
