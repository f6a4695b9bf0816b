"""Real processes under faults: a link cut at any byte, verifiers hung, killed, restarted, gone, and
edges killed.

Exact says what it says without faults, or why not within its limit; gated goes on within its
budget; committed text stands; no slot is lost.
"""

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest
from far import free_port, verifiers, verifying
from patience import PATIENCE_S
from processes import ENVIRONMENT
from speech import SAMPLES
from tqdm import tqdm
from wire import http

from bench.proxy import Proxy, Toxics
from streamer import Describer, TextDelta
from streamer.stages.events import TurnFailed
from streamer.stages.ports import TargetLost

BUDGET_S, SPARE_S = 2.0, 1.8  # a second budget would be more
ENDS = ("sentence", "eos", "loop", "max_tokens")
LONG = pytest.mark.long


def port_of(url):
    return int(url.rsplit(":", 1)[1])


def near(port, **options):
    """A describer whose cloud is at `port`."""
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
    """The deltas are the text; it went on after at most one budget."""
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


BARE_EDGE = """
import secrets, sys
from websockets.sync.client import connect
from streamer.core.link import wire
from streamer.core.rules.sampling import Sampling
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


def edge(code, *arguments):
    process = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    assert process.stdout.readline()
    return process


def metric(url, name):
    text = http(url + "/v1/realtime", "/metrics")[1]
    return float(re.search(rf"^{name} (\S+)$", text, re.M)[1])


async def until_metric(url, name, value):
    with anyio.fail_after(PATIENCE_S):
        while await anyio.to_thread.run_sync(metric, url, name) != value:
            await anyio.sleep(0.05)


def resident_mb(process):
    text = Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) / 1024


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="memory is read from /proc")
@pytest.mark.parametrize("times", [5, pytest.param(50, marks=pytest.mark.long)])
async def test_edges_killed_at_any_moment_leave_nothing(wanted, times, tokenizer):
    """SIGKILL in audio, prefill or decoding. Every slot comes back; memory after the first few
    stays what it is."""
    chance, sizes = random.Random(times), []
    with verifying("--max-sessions", 2, "--resume-s", 0) as (url, process):
        for i in tqdm(range(times), "edges killed", disable=None):
            dying = await anyio.to_thread.run_sync(
                edge, BARE_EDGE, url, tokenizer, SAMPLES[i % len(SAMPLES)]
            )
            await anyio.sleep(chance.uniform(0.0, 0.5))
            dying.kill()
            dying.communicate()
            await until_metric(url, "streamer_sessions", 0)
            sizes.append(resident_mb(process))
        assert metric(url, "streamer_links") == 0
        async with Describer.open(mode="exact", cloud=url) as describer:
            found = await describer.describe(SAMPLES[0])
            assert list(found.ids) == wanted["exact"][SAMPLES[0].name]["ids"]
    settled = sizes[len(sizes) // 5 :]
    print(
        f"memory of the verifier over {times} killed edges, MB: {[round(size) for size in sizes[:: max(1, times // 10)]]}"
    )
    assert max(settled) - settled[0] < 16
