"""A real verifier behind a bad link: cut at any byte, hung, killed, restarted, gone. Exact says
what it says without faults, or ends with an error; gated goes on; nobody else notices."""

import random
import signal
import time

import anyio
import pytest
from far import free_port, verifying
from patience import PATIENCE_S
from speech import SAMPLES

from bench.proxy import Proxy, Toxics
from streamer import Describer, TextDelta
from streamer.stages.events import TurnFailed
from streamer.stages.ports import TargetLost


def port_of(url):
    return int(url.rsplit(":", 1)[1])


def near(port, **options):
    """A describer whose cloud is behind `port`."""
    return Describer.open(cloud=f"ws://127.0.0.1:{port}", **options)


async def is_up(describer, up=True):
    """The link is as wanted."""
    with anyio.fail_after(PATIENCE_S):
        while describer.link.is_up is not up:
            await anyio.sleep(0.02)


@pytest.mark.parametrize(
    ("mode", "cuts"),
    [("exact", 6), ("cloud", 3), pytest.param("exact", 100, marks=pytest.mark.long)],
)
async def test_cut_at_random_bytes_the_text_is_the_same(verifier, wanted, mode, cuts):
    """The link dies anywhere, in the middle of audio, requests or verdicts, and comes back."""
    chance, done = random.Random(cuts), 0
    async with (
        Proxy(port_of(verifier), Toxics(latency_s=0.002)) as proxy,
        near(proxy.port, mode=mode) as describer,
    ):
        while done < cuts:
            file = chance.choice(SAMPLES)
            before = proxy.num_connections
            proxy.cut_after = chance.choice(
                [chance.randint(1, 160_000), chance.randint(100_000, 165_000)]
            )
            found = await describer.describe(file)
            one = wanted["exact"][file.name]
            assert (found.text, list(found.ids), found.stop_reason) == (
                one["text"],
                one["ids"],
                one["stop_reason"],
            )
            done += proxy.num_connections - before
    assert done >= cuts


@pytest.mark.parametrize(
    "toxics", [Toxics(jitter_s=0.03, slice_bytes=3), Toxics(latency_s=0.02, bandwidth=125_000)]
)
async def test_a_slow_link_changes_nothing(verifier, wanted, toxics):
    async with (
        Proxy(port_of(verifier), toxics) as proxy,
        near(proxy.port, mode="exact") as describer,
    ):
        found = await describer.describe(SAMPLES[0])
        assert list(found.ids) == wanted["exact"][SAMPLES[0].name]["ids"]


async def describe_into(describer, file, found):
    found.append(await describer.describe(file))


@pytest.fixture(scope="module")
def own():
    """A verifier process to be stopped and continued: (address, process)."""
    with verifying() as found:
        yield found


async def test_hung_gated_goes_on_within_the_budget_and_asks_again_when_it_is_back(own):
    """SIGSTOP: one budget is spent, then the breaker is open; SIGCONT: it closes by itself."""
    url, process = own
    async with near(port_of(url), mode="gated", threshold=0.0, verify_budget_s=3) as describer:
        usual = await describer.describe(SAMPLES[0])
        assert usual.verified_share > 0.5
        process.send_signal(signal.SIGSTOP)
        for i in range(2):
            found = await describer.describe(SAMPLES[0])
            assert found.verified_share == 0.0
            assert found.stop_reason == "sentence"
            assert found.stall_ms < (3 + 2.5) * 1000 if i == 0 else found.stall_ms < 1
        process.send_signal(signal.SIGCONT)
        await is_up(describer)
        again = await describer.describe(SAMPLES[0])
        assert again.ids == usual.ids
        assert again.verified_share == usual.verified_share


async def test_hung_exact_waits_and_its_text_is_the_same(own, wanted):
    url, process = own
    async with near(port_of(url), mode="exact") as describer:
        await describer.load()
        found = []
        async with anyio.create_task_group() as group:
            group.start_soon(describe_into, describer, SAMPLES[1], found)
            await anyio.sleep(0.1)
            process.send_signal(signal.SIGSTOP)
            await anyio.sleep(1.0)
            process.send_signal(signal.SIGCONT)
        assert list(found[0].ids) == wanted["exact"][SAMPLES[1].name]["ids"]


async def test_gone_exact_ends_with_an_error_and_keeps_what_it_said(wanted):
    """It waits to the limit; committed text stays; --degrade goes on instead; gated too."""
    port = free_port()
    with verifying(port=port) as (_, process):
        async with (
            near(port, mode="exact", verify_budget_s=0.5) as describer,
            describer.session() as session,
        ):
            await describer.describe(SAMPLES[0])
            process.kill()
            pcm = SAMPLES[0].read_bytes()[44:]
            await session.feed(pcm)
            await session.commit()
            started = time.perf_counter()
            events = [event async for event in session]
            assert isinstance(events[-1], TurnFailed)
            # a safety net above: without the budget it is 30 s
            assert 0.4 < time.perf_counter() - started < 20.0
            assert "within 0.5 s" in events[-1].message
            assert "--degrade" in events[-1].message
            # The turn before has waited for it: this one is told at once.
            with pytest.raises(
                TargetLost, match=r"the verifier at ws://127\.0\.0\.1.+ is not there"
            ):
                await describer.describe(SAMPLES[0])
    for options in ({"mode": "exact", "degrade": True}, {"mode": "gated", "threshold": 0.0}):
        async with near(port, verify_budget_s=0.5, **options) as describer:
            found = await describer.describe(SAMPLES[0])
            assert (found.stop_reason, found.verified_share) == ("sentence", 0.0)
            assert found.stall_ms < 3_000, "one budget, and then it asks no more"
            again = await describer.describe(SAMPLES[1])
            assert (again.stop_reason, again.cloud_calls, again.stall_ms) == ("sentence", 0, 0.0)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(i, marks=pytest.mark.long) for i in range(1, 12))]
)
async def test_what_was_said_stays_said_when_the_verifier_dies_in_mid_sentence(seed):
    """The deltas are the text, whatever the moment; what comes after is unverified."""
    chance = random.Random(seed)
    with verifying() as (url, process):
        options = {"mode": "exact", "degrade": True, "verify_budget_s": 0.3}
        async with near(port_of(url), **options) as describer, describer.session() as session:
            await session.feed(SAMPLES[seed % 4].read_bytes()[44:])
            await session.commit()
            at, text, ids = chance.randint(1, 3), "", []
            async for event in session:
                if isinstance(event, TextDelta):
                    text, at = text + event.text, at - 1
                    ids += event.ids
                    if at == 0:
                        process.kill()
            assert (event.text, list(event.ids), event.stop_reason) == (text, ids, "sentence")
            assert 0.0 < event.verified_share <= 1.0
