"""Verifiers and edges that are killed or stopped at random moments, as processes. What was said
stays said; exact says what it says without faults, or says why not within its limit; gated goes on
within its budget; nobody's place is kept for the dead."""

import json
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
from far import verifiers, verifying
from processes import ENVIRONMENT
from speech import SAMPLES
from tqdm import tqdm
from wire import http

from bench.proxy import Proxy, Toxics
from streamer import Describer, TextDelta
from streamer.stages.events import TurnFailed

BUDGET_S, SPARE_S = 0.3, 0.25
ENDS = ("sentence", "eos", "loop", "max_tokens")
LONG = pytest.mark.long


def near(port, **options):
    return Describer.open(cloud=f"ws://127.0.0.1:{port}", **options)


async def is_up(describer, within_s=30):
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
    """No word for 5 s: the link is given up, and another one asked for; the verifier comes back
    within exact's limit."""
    with verifying() as (url, process):
        async with near(int(url.rsplit(":", 1)[1]), mode="exact") as describer:
            await describer.load()
            found = {}
            async with anyio.create_task_group() as group:
                process.send_signal(signal.SIGSTOP)
                group.start_soon(turn, describer, SAMPLES[2], found, "exact")
                with anyio.fail_after(15):
                    while "no answer for 5 s" not in describer.link.trouble:
                        await anyio.sleep(0.05)
                process.send_signal(signal.SIGCONT)
            check_exact(found["exact"], wanted["exact"][SAMPLES[2].name])


REAL_EDGE = """
import anyio, sys
from streamer import Describer

async def main():
    async with Describer.open(mode="exact", cloud=sys.argv[1]) as describer, describer.session() as session:
        await session.feed(bytes(64_000))
        print("fed", flush=True)
        await anyio.sleep_forever()

anyio.run(main)
"""
BARE_EDGE = """
import secrets, sys
from websockets.sync.client import connect
from streamer.core.link import wire
from streamer.core.rules.sampling import Sampling
from streamer.core.link.decoding_terms import FIRST, DecodingTerms
from streamer.core.link.edge_turn import RemoteTurn
from streamer.core.rules.settings import Rules
import numpy as np

turn = RemoteTurn(0, secrets.token_bytes(16), DecodingTerms(sys.argv[2], "zh", 1 << 20, Rules(), Sampling(), runs_on=True))
with connect(sys.argv[1] + wire.PATH, compression=None) as socket:
    turn.attach()
    turn.hear(np.frombuffer(open(sys.argv[3], "rb").read()[44:], "<i2").astype(np.float32) / 32768)
    turn.finish()
    turn.ask(FIRST)
    print("begins", flush=True)
    while True:
        while (message := turn.pull()) is not None:
            socket.send(wire.encode(message))
        turn.take(wire.decode_down(socket.recv()))
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
    with anyio.fail_after(20):
        while await anyio.to_thread.run_sync(metric, url, name) != value:
            await anyio.sleep(0.05)


async def test_a_killed_edge_leaves_its_slot():
    """When the window to come back is over; at once to one that needs it (test_tenancy)."""
    with verifying("--max-sessions", 1, "--resume-s", 1) as (url, _):
        process = await anyio.to_thread.run_sync(edge, REAL_EDGE, url)
        await until_metric(url, "streamer_sessions", 1)
        process.kill()
        process.communicate()
        await until_metric(url, "streamer_sessions_held", 1)
        await until_metric(url, "streamer_sessions", 0)
        assert await anyio.to_thread.run_sync(metric, url, "streamer_sessions_held") == 0


def resident_mb(process):
    text = Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) / 1024


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="memory is read from /proc")
@pytest.mark.parametrize("times", [5, pytest.param(50, marks=LONG)])
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
        async with near(int(url.rsplit(":", 1)[1]), mode="exact") as describer:
            found = await describer.describe(SAMPLES[0])
            assert list(found.ids) == wanted["exact"][SAMPLES[0].name]["ids"]
    settled = sizes[len(sizes) // 5 :]
    print(
        f"memory of the verifier over {times} killed edges, MB: {[round(size) for size in sizes[:: max(1, times // 10)]]}"
    )
    assert max(settled) - settled[0] < 16


@pytest.mark.parametrize("edges", [3, pytest.param(16, marks=LONG)])
async def test_many_edges_as_processes_no_id_crosses(verifier, wanted, edges):
    """Each its own process, in any mode, all at once on one verifier: what each says alone."""
    modes, running = ("exact", "gated", "cloud", "exact"), []
    started = time.monotonic()
    for i in range(edges):
        files = [SAMPLES[(i + k) % len(SAMPLES)] for k in range(len(SAMPLES))]
        command = [
            sys.executable,
            "-m",
            "streamer",
            "describe",
            "--json",
            "--mode",
            modes[i % 4],
            "--cloud",
            verifier,
            *map(str, files),
        ]
        # Gated says what one process says only where no deadline is missed: sixteen processes
        # start at once here.
        command += ["--verify-budget-s", "120"]
        running.append(
            (
                modes[i % 4],
                files,
                subprocess.Popen(
                    command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT
                ),
            )
        )
    for mode, files, process in running:
        out, told = await anyio.to_thread.run_sync(process.communicate)
        rows = [json.loads(row) for row in out.decode().splitlines()]
        assert (process.returncode, told.decode(), len(rows)) == (0, "", len(files))
        for file, row in zip(files, rows, strict=True):
            one = wanted["gated" if mode == "gated" else "exact"][file.name]
            assert (row["text"], row["ids"]) == (one["text"], one["ids"])
    print(f"{edges} edges, {time.monotonic() - started:.0f} s")
