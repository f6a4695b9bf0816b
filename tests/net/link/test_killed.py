"""Verifiers that are killed or stopped at random moments, as processes. What was said stays said;
exact says what it says without faults, or says why not within its limit; gated goes on within its
budget."""

import random
import signal

import anyio
import pytest
from far import verifiers, verifying
from patience import PATIENCE_S
from speech import SAMPLES
from tqdm import tqdm

from bench.proxy import Proxy, Toxics
from streamer import Describer, TextDelta
from streamer.stages.events import TurnFailed

BUDGET_S, SPARE_S = 2.0, 1.8  # a second budget would be more
ENDS = ("sentence", "eos", "loop", "max_tokens")
LONG = pytest.mark.long


def near(port, **options):
    return Describer.open(cloud=f"ws://127.0.0.1:{port}", **options)


async def is_up(describer, within_s=PATIENCE_S):
    with anyio.fail_after(within_s):
        while not describer.link.is_up:
            await anyio.sleep(0.02)


async def turn(describer, file, found, name):
    """One turn through a session: (deltas' text, deltas' ids, whether each was verified, the last
    event, when the last sample was fed)."""
    text, ids, verified = "", [], []
    async with describer.session() as session:
        await session.feed(file.read_bytes()[44:])
        await session.commit()
        async for event in session:
            if isinstance(event, TextDelta):
                text, ids = text + event.text, ids + list(event.ids)
                verified += [event.verified] * len(event.ids)
    found[name] = text, ids, verified, event


def check_gated(found):
    """What was said is the text; after at most one budget it went on."""
    text, ids, _, end = found
    assert (end.text, list(end.ids)) == (text, ids)
    assert end.stop_reason in ENDS
    assert end.stall_ms < 1000 * (BUDGET_S + SPARE_S)
    assert end.n_accepted <= end.n_uploaded


def check_exact(found, one):
    text, ids, verified, end = found
    assert not isinstance(end, TurnFailed), end
    assert (end.text, list(end.ids), end.stop_reason) == (
        one["text"],
        one["ids"],
        one["stop_reason"],
    )
    assert (text, ids) == (one["text"], one["ids"])
    assert all(verified)


def check_degraded(found, one):
    """The cloud's text as far as it was there; from then on the edge's own, marked."""
    text, ids, verified, end = found
    assert (end.text, list(end.ids)) == (text, ids)
    assert end.stop_reason in ENDS
    n = verified.index(False) if False in verified else len(ids)
    assert ids[:n] == one["ids"][:n], "committed text never changes"


@pytest.mark.parametrize("times", [2, pytest.param(100, marks=LONG)])
async def test_killed_at_any_moment_and_another_comes(wanted, times):
    """SIGKILL; a fresh process is in its place while exact still waits. Exact goes on where it was,
    gated and --degrade do not wait for it."""
    chance, done = random.Random(times), 0
    with verifiers(times + 1) as another:
        port, process = await anyio.to_thread.run_sync(another)
        async with (
            Proxy(port, Toxics(latency_s=0.005)) as proxy,
            # a busy machine starts a process slowly
            near(proxy.port, mode="exact", verify_budget_s=120) as exact,
            near(proxy.port, mode="gated", threshold=0.0, verify_budget_s=BUDGET_S) as gated,
            near(proxy.port, mode="exact", degrade=True, verify_budget_s=BUDGET_S) as degraded,
        ):
            named = {"exact": exact, "gated": gated, "degraded": degraded}
            for describer in named.values():
                await describer.load()
            for i in tqdm(range(times), "killed", disable=None):
                for describer in named.values():
                    await is_up(describer)
                file, found = SAMPLES[i % len(SAMPLES)], {}
                async with anyio.create_task_group() as group:
                    for name, describer in named.items():
                        group.start_soon(turn, describer, file, found, name)
                    await anyio.sleep(chance.uniform(0.0, 0.8))
                    process.kill()
                    proxy.target_port, process = await anyio.to_thread.run_sync(another)
                one = wanted["exact"][file.name]
                check_exact(found["exact"], one)
                check_gated(found["gated"])
                check_degraded(found["degraded"], one)
                done += 1
    assert done == times


@pytest.mark.parametrize("times", [4, pytest.param(100, marks=LONG)])
async def test_stopped_at_any_moment_and_continued(wanted, times):
    """SIGSTOP, and SIGCONT when gated and --degrade are through, or in a third of the turns while
    they still wait."""
    chance, done = random.Random(times), 0
    with verifying() as (url, process):
        port = int(url.rsplit(":", 1)[1])
        async with (
            near(port, mode="exact") as exact,
            near(port, mode="gated", threshold=0.0, verify_budget_s=BUDGET_S) as gated,
            near(port, mode="exact", degrade=True, verify_budget_s=BUDGET_S) as degraded,
            near(port, mode="exact", verify_budget_s=BUDGET_S) as strict,
        ):
            quick = {"gated": gated, "degraded": degraded, "strict": strict}
            for describer in (exact, *quick.values()):
                await describer.load()
            for i in tqdm(range(times), "stopped", disable=None):
                for describer in (exact, *quick.values()):
                    # the breaker's pause doubles with failures in a row
                    await is_up(describer, 60)
                file, found = SAMPLES[i % len(SAMPLES)], {}
                async with anyio.create_task_group() as group:
                    group.start_soon(turn, exact, file, found, "exact")
                    await anyio.sleep(chance.uniform(0.0, 0.5))
                    async with anyio.create_task_group() as inner:
                        for name, describer in quick.items():
                            inner.start_soon(turn, describer, file, found, name)
                        await anyio.sleep(chance.uniform(0.0, 0.3))
                        process.send_signal(signal.SIGSTOP)
                        if i % 3 == 0:
                            await anyio.sleep(chance.uniform(0.0, BUDGET_S))
                            process.send_signal(signal.SIGCONT)
                    process.send_signal(signal.SIGCONT)
                one = wanted["exact"][file.name]
                check_exact(found["exact"], one)
                check_gated(found["gated"])
                check_degraded(found["degraded"], one)
                check_strict(found["strict"], one)
                done += 1
    assert done == times


def check_strict(found, one):
    """Exact with a short limit and no --degrade: the whole text, or one clear line; what was said
    is the text's beginning."""
    text, ids, verified, end = found
    assert all(verified)
    assert ids == one["ids"][: len(ids)]
    assert one["text"].startswith(text)
    if isinstance(end, TurnFailed):
        assert f"within {BUDGET_S:g} s" in end.message
        assert "--degrade" in end.message
        assert "\n" not in end.message
    else:
        assert ids == one["ids"]


async def test_stopped_for_longer_than_a_link_lives_exact_still_says_the_same(wanted):
    """No answer for 5 s: the spare connection is given up, and another one asked for; the verifier
    comes back within exact's limit."""
    with verifying() as (url, process):
        async with near(int(url.rsplit(":", 1)[1]), mode="exact") as describer:
            await describer.load()
            found = {}
            async with anyio.create_task_group() as group:
                process.send_signal(signal.SIGSTOP)
                group.start_soon(turn, describer, SAMPLES[2], found, "exact")
                with anyio.fail_after(PATIENCE_S):
                    while "no answer" not in describer.link.trouble:
                        await anyio.sleep(0.05)
                process.send_signal(signal.SIGCONT)
            check_exact(found["exact"], wanted["exact"][SAMPLES[2].name])
