"""Real processes under faults; links cut after any byte: tests/net/test_history.py."""

import contextlib
import random
import signal

import anyio
import pytest
from far import FIRST, free_port, opening, raw, say, verifiers, verifying, wire_rules
from msgspec.structs import replace
from patience import until
from processes import memory_mb
from speech import SAMPLES
from tqdm import tqdm
from wire import until_metric

from bench.proxy import Proxy, Toxics
from streamer import Describer, TextDelta
from streamer.core.link import wire
from streamer.model.checkpoint.card import read_card
from streamer.model.thinker import EMBEDDED
from streamer.stages.events import TurnFailed

BUDGET_S, SPARE_S = 2.0, 1.8  # a second budget would be more
ENDS = ("sentence", "eos", "loop", "max_tokens")
LONG = pytest.mark.long


def near(port, **options):
    """A describer whose cloud is at `port`."""
    return Describer.open(cloud=f"ws://127.0.0.1:{port}", **options)


async def turn(describer, file, found, name):
    """(deltas' text, deltas' ids, whether each was verified, the last event) of one turn."""
    text, ids, verified = "", [], []
    async with describer.session() as session:
        await session.feed(file.read_bytes()[44:])
        await session.commit()
        async for event in session:
            if isinstance(event, TextDelta):
                text, ids = text + event.text, ids + list(event.ids)
                verified += [event.verified] * len(event.ids)
    found[name] = text, ids, verified, event


def check(name, found, one):
    """Exact, gated or strict: what was said, against `one`, which the cloud says alone."""
    text, ids, verified, end = found
    if isinstance(end, TurnFailed):
        assert name == "strict", end
        assert f"within {BUDGET_S:g} s" in end.message
        assert "--mode gated" in end.message
        assert "\n" not in end.message
    else:
        assert (end.text, list(end.ids)) == (text, ids)
        assert end.stop_reason in ENDS
    match name:
        case "gated":
            assert end.stall_ms < 1000 * (BUDGET_S + SPARE_S)
            assert end.n_accepted <= end.n_uploaded
            n = verified.index(False) if False in verified else len(ids)
            assert ids[:n] == one["ids"][:n], "committed text never changes"
        case "strict" if isinstance(end, TurnFailed):
            assert all(verified)
            assert ids == one["ids"][: len(ids)]
            assert one["text"].startswith(text)
        case _:
            assert all(verified)
            wanted = (one["text"], one["ids"], one["stop_reason"])
            assert (text, ids, end.stop_reason) == wanted


@pytest.mark.parametrize(
    ("harm", "times"),
    [
        *(("killed", 2), ("stopped", 4)),
        *(pytest.param(harm, 100, marks=LONG) for harm in ("killed", "stopped")),
    ],
)
async def test_a_verifier_is_harmed_at_any_moment(wanted, harm, times):
    """Killed and replaced, or stopped and continued, in the middle of turns."""
    chance = random.Random(times)
    budget = {"verify_budget_s": BUDGET_S}
    ways = {
        "exact": {"mode": "exact", "verify_budget_s": 120},  # a process may start slowly
        "gated": {"mode": "gated", "threshold": 0.0, **budget},
    }
    if harm == "stopped":
        ways["strict"] = {"mode": "exact", **budget}
    async with contextlib.AsyncExitStack() as stack:
        another = stack.enter_context(verifiers())
        port, process = await anyio.to_thread.run_sync(another)
        proxy = await stack.enter_async_context(Proxy(port, Toxics(latency_s=0.005)))
        opened = {}
        for name, options in ways.items():
            opened[name] = await stack.enter_async_context(near(proxy.port, **options))
            await opened[name].load()
        for i in tqdm(range(times), harm, disable=None):
            for describer in opened.values():  # a breaker's pause doubles with failures in a row
                await until(lambda describer=describer: describer.link.is_up)
            file, found = SAMPLES[i % len(SAMPLES)], {}
            async with anyio.create_task_group() as group:
                group.start_soon(turn, opened["exact"], file, found, "exact")
                await anyio.sleep(chance.uniform(0.0, 0.4))
                async with anyio.create_task_group() as others:
                    for name in ways.keys() - {"exact"}:
                        others.start_soon(turn, opened[name], file, found, name)
                    await anyio.sleep(chance.uniform(0.0, 0.4))
                    process.send_signal(signal.SIGKILL if harm == "killed" else signal.SIGSTOP)
                    if harm == "killed":
                        proxy.target_port, process = await anyio.to_thread.run_sync(another)
                    elif i % 3 == 0:
                        await anyio.sleep(chance.uniform(0.0, BUDGET_S))
                        process.send_signal(signal.SIGCONT)
                if harm == "stopped":
                    process.send_signal(signal.SIGCONT)
            for name in ways:
                check(name, found[name], wanted["exact"][file.name])


async def test_without_a_verifier_a_turn_costs_one_budget_and_the_next_one_nothing():
    options = {"mode": "gated", "threshold": 0.0, "verify_budget_s": 0.5}
    async with near(free_port(), **options) as describer:
        found = await describer.describe(SAMPLES[0])
        assert (found.stop_reason, found.verified_share) == ("sentence", 0.0)
        assert found.stall_ms < 3_000, "one budget, and then it asks no more"
        again = await describer.describe(SAMPLES[1])
        assert (again.stop_reason, again.cloud_calls, again.stall_ms) == ("sentence", 0, 0.0)


@pytest.mark.parametrize("times", [5, pytest.param(50, marks=LONG)])
async def test_edges_cut_off_at_any_moment_leave_nothing(wanted, times, tokenizer):
    """In audio, prefill or decoding: every slot comes back, and memory stays."""
    chance, sizes = random.Random(times), []
    rules = wire_rules(read_card(EMBEDDED / "cloud").phrases)
    with verifying("--max-sessions", 2, "--resume-s", 0) as (url, process):
        for i in tqdm(range(times), "edges cut off", disable=None):
            data = SAMPLES[i % len(SAMPLES)].read_bytes()[44:]
            pieces = [
                wire.Audio(at // 2, data[at : at + 32_000], False)
                for at in range(0, len(data), 32_000)
            ]
            async with raw(url) as edge:
                await say(edge, opening(tokenizer=tokenizer, rules=rules), *pieces)
                await say(edge, wire.Finish(len(data) // 2, {}), replace(FIRST, runs_on=True))
                await anyio.sleep(chance.uniform(0.0, 0.5))
                edge.transport.abort()
            await until_metric(url, "streamer_sessions 0.0")
            sizes.append(memory_mb(process))
        await until_metric(url, "streamer_links 0.0")
        async with Describer.open(mode="exact", cloud=url) as describer:
            found = await describer.describe(SAMPLES[0])
            assert list(found.ids) == wanted["exact"][SAMPLES[0].name]["ids"]
    settled = sizes[len(sizes) // 5 :]
    assert max(settled) - settled[0] < 16
