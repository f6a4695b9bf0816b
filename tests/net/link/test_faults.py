"""Real processes under faults: a link cut at any byte, verifiers hung, killed, restarted, gone, and
edges killed.

Exact says what it says without faults, or why not within its limit; gated goes on within its
budget; committed text stands; no slot is lost.
"""

import contextlib
import random
import signal
import subprocess
import sys
import time

import anyio
import pytest
from far import free_port, verifiers, verifying
from patience import until
from processes import ENVIRONMENT, memory_mb
from speech import SAMPLES
from tqdm import tqdm
from wire import until_metric

from bench.proxy import Proxy, Toxics
from streamer import Describer, TextDelta
from streamer.stages.events import TurnFailed
from streamer.stages.ports import TargetLost

BUDGET_S, SPARE_S = 2.0, 1.8  # a second budget would be more
ENDS = ("sentence", "eos", "loop", "max_tokens")
LONG = pytest.mark.long


def near(port, **options):
    """A describer whose cloud is at `port`."""
    return Describer.open(cloud=f"ws://127.0.0.1:{port}", **options)


async def turn(describer, file, found, name):
    """One turn through a session: (deltas' text, deltas' ids, whether each was verified, the last
    event)."""
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
    """one: what the cloud says. gated: the deltas are the text; it went on after at most one
    budget. degraded: the cloud's text as far as it was there, then the edge's own, marked. strict:
    the whole text, or one clear line and the text's beginning."""
    text, ids, verified, end = found
    if isinstance(end, TurnFailed):
        assert name == "strict", end
        assert f"within {BUDGET_S:g} s" in end.message
        assert "--degrade" in end.message
        assert "\n" not in end.message
    else:
        assert (end.text, list(end.ids)) == (text, ids)
        assert end.stop_reason in ENDS
    match name:
        case "gated":
            assert end.stall_ms < 1000 * (BUDGET_S + SPARE_S)
            assert end.n_accepted <= end.n_uploaded
        case "degraded":
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
    """Killed, and a fresh process is in its place while exact still waits: exact goes on where it
    was, gated and --degrade do not wait for it. Stopped, and continued when those are through, or
    in a third of the turns while they still wait."""
    chance = random.Random(times)
    budget = {"verify_budget_s": BUDGET_S}
    ways = {
        "exact": {"mode": "exact", "verify_budget_s": 120},  # a process may start slowly
        "gated": {"mode": "gated", "threshold": 0.0, **budget},
        "degraded": {"mode": "exact", "degrade": True, **budget},
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
            # The turn before has waited for it: this one fails at once.
            with pytest.raises(TargetLost, match="is not there"):
                await describer.describe(SAMPLES[0])
    for options in ({"mode": "exact", "degrade": True}, {"mode": "gated", "threshold": 0.0}):
        async with near(port, verify_budget_s=0.5, **options) as describer:
            found = await describer.describe(SAMPLES[0])
            assert (found.stop_reason, found.verified_share) == ("sentence", 0.0)
            assert found.stall_ms < 3_000, "one budget, and then it asks no more"
            again = await describer.describe(SAMPLES[1])
            assert (again.stop_reason, again.cloud_calls, again.stall_ms) == ("sentence", 0, 0.0)


BARE_EDGE = """
import secrets, sys
from websockets.sync.client import connect
from streamer.core.link import wire
from streamer.core.rules.settings import Sampling
from streamer.core.decoding.verdict import VerifyRequest, prefix_hash
from streamer.core.link.edge_turn import DecodingTerms, EdgeTurn
from streamer.core.rules.settings import Rules
import numpy as np

turn = EdgeTurn(secrets.token_bytes(16), DecodingTerms(sys.argv[2], 1 << 20, Rules(language="zh"), Sampling(), runs_on=True))
with connect(f"{sys.argv[1]}{wire.PATH}?wire={wire.VERSION}", compression=None) as socket:
    socket.send(wire.encode(turn.connect()))
    turn.hear(np.frombuffer(open(sys.argv[3], "rb").read()[44:], "<i2").astype(np.float32) / 32768)
    turn.finish()
    turn.ask(VerifyRequest(1, 0, prefix_hash(()), (), ()))
    print("begins", flush=True)
    while True:
        while (message := turn.next_message()) is not None:
            socket.send(wire.encode(message))
        turn.receive(wire.decode_down(socket.recv()))
"""


def edge(*arguments):
    command = [sys.executable, "-c", BARE_EDGE, *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)
    assert process.stdout.readline()
    return process


@pytest.mark.parametrize("times", [5, pytest.param(50, marks=LONG)])
async def test_edges_killed_at_any_moment_leave_nothing(wanted, times, tokenizer):
    """SIGKILL in audio, prefill or decoding. Every slot comes back; memory after the first few
    stays what it is."""
    chance, sizes = random.Random(times), []
    with verifying("--max-sessions", 2, "--resume-s", 0) as (url, process):
        for i in tqdm(range(times), "edges killed", disable=None):
            file = SAMPLES[i % len(SAMPLES)]
            dying = await anyio.to_thread.run_sync(edge, url, tokenizer, file)
            await anyio.sleep(chance.uniform(0.0, 0.5))
            dying.kill()
            dying.communicate()
            await until_metric(url, "streamer_sessions 0.0")
            sizes.append(memory_mb(process))
        await until_metric(url, "streamer_links 0.0")
        async with Describer.open(mode="exact", cloud=url) as describer:
            found = await describer.describe(SAMPLES[0])
            assert list(found.ids) == wanted["exact"][SAMPLES[0].name]["ids"]
    settled = sizes[len(sizes) // 5 :]
    assert max(settled) - settled[0] < 16
