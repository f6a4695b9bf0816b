"""A verifier that lies: gated goes on within its budget, exact ends with an error in time."""

import anyio
import pytest
from far import honest, lying
from msgspec import msgpack
from speech import SAMPLES

from bench.proxy import Proxy, Toxics
from streamer import Describer, TextDelta
from streamer.core.decoding.plan import Refusal, Verdict, VerifyRequest
from streamer.core.link import wire
from streamer.model.checkpoint.tokenizer import vocabulary_of
from streamer.model.thinker import EMBEDDED, shapes_of
from streamer.stages.events import TurnFailed
from streamer.stages.ports import TargetLost

WHOLE = 1 << 20
BUDGET_S = 0.3
# A safety net for a busy machine. Without the budget it would be 5 s a block, and 30 s in exact.
MOST_STALL_MS = 4_000
MOST_S = 25.0
CLOUD = EMBEDDED / "cloud"
ESCAPE = vocabulary_of(CLOUD, shapes_of(CLOUD).text.vocab).texts.index("\x1b")
LONG = pytest.mark.long


def with_verdict(make):
    """Honest but for its verdicts."""

    def reply(message, chance):
        if isinstance(message, VerifyRequest):
            return make(message, chance)
        return honest(message, chance)

    return reply


def fuzzed(message, chance):
    return [chance.randbytes(chance.randint(0, 60))]


def repeating(message, chance):
    """It opens turns and talks all the time, and hears nothing."""
    return [] if isinstance(message, wire.Audio | wire.Finish) else honest(message, chance)


repeating.repeats_s = 0.2

HOSTILE = {
    "an id beyond the vocabulary": with_verdict(lambda m, _: [Verdict(m.number, 0, WHOLE)]),
    "an escape code": with_verdict(lambda m, _: [Verdict(m.number, 0, ESCAPE)]),
    "more accepted than sent": with_verdict(lambda m, _: [Verdict(m.number, 99, 5)]),
    "a log-probability that is none": with_verdict(
        lambda m, _: [msgpack.encode([3, m.number, 0, 5, b"\x00\x7c"])]
    ),
    "a number that is not": with_verdict(lambda m, _: [Verdict(m.number + 1000, 0, 5)]),
    "refuses all": with_verdict(lambda m, _: [Refusal(m.number, "prefix")]),
    "rejects all": with_verdict(lambda m, _: [wire.Rejected(False, "not now")]),
    "rejects for good": with_verdict(lambda m, _: [wire.Rejected(True, "not ever")]),
    "no verdict": with_verdict(lambda m, _: []),
    "garbage for a verdict": with_verdict(fuzzed),
    "garbage for everything": fuzzed,
    "more samples than there are": lambda m, _: (
        [wire.Opened(1 << 30, "")] if isinstance(m, wire.Open) else honest(m, _)
    ),
    "more samples heard than there are": lambda m, _: (
        [wire.Heard(1 << 30, True)] if isinstance(m, wire.Audio) else honest(m, _)
    ),
    "repeats Heard": repeating,
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


SELDOM = ("more accepted than sent", "a number that is not", "garbage for everything")
SELDOM += ("closes at once", "no verdict")


@pytest.mark.parametrize(
    "lie", [pytest.param(lie, marks=LONG) if lie in SELDOM else lie for lie in HOSTILE]
)
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


async def test_what_never_left_was_not_uploaded(verifier, wanted):
    """On a thin link: no call, no upload, no blame, and no further stall."""
    options = {"mode": "gated", "threshold": 0.0, "verify_budget_s": BUDGET_S}
    pcm = SAMPLES[3].read_bytes()[44:]
    async with (
        Proxy(int(verifier.rsplit(":", 1)[1])) as proxy,
        Describer.open(cloud=f"ws://127.0.0.1:{proxy.port}", **options) as describer,
        describer.session() as session,
    ):
        await session.feed(pcm[:6_400])
        await session.catch_up(0)
        proxy.toxics = Toxics(bandwidth=50_000)
        await session.feed(pcm[6_400:])
        await session.commit()
        end = [event async for event in session][-1]
        assert (end.cloud_calls, end.n_uploaded, end.n_accepted) == (0, 0, 0)
        assert end.bytes_up > 10_000
        assert end.stall_ms < MOST_STALL_MS
        assert list(end.ids) == wanted["edge"][SAMPLES[3].name]["ids"]
        assert describer.link.late.num_failures(0.0) == 0
