"""Edges as processes, killed at any moment or all at once on one verifier: nobody's place is kept for the
dead, and no id crosses."""

import json
import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest
from far import verifying
from patience import PATIENCE_S
from processes import ENVIRONMENT
from speech import SAMPLES
from tqdm import tqdm
from wire import http

from streamer import Describer

REAL_EDGE = """
import anyio, sys
from streamer import Describer

async def main():
    async with Describer.open(mode="exact", cloud=sys.argv[1]) as describer, describer.session() as session:
        await session.feed(bytes(range(256)) * 250)
        print("fed", flush=True)
        await anyio.sleep_forever()

anyio.run(main)
"""


BARE_EDGE = """
import secrets, sys
from websockets.sync.client import connect
from streamer.core.link import wire
from streamer.core.rules.sampling import Sampling
from streamer.core.decoding.verdict import VerifyRequest, prefix_hash
from streamer.core.link.edge_turn import DecodingTerms, EdgeTurn
from streamer.core.rules.settings import Rules
import numpy as np

turn = EdgeTurn(secrets.token_bytes(16), DecodingTerms(sys.argv[2], "zh", 1 << 20, Rules(), Sampling(), runs_on=True))
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


@pytest.mark.parametrize("edges", [3, pytest.param(16, marks=pytest.mark.long)])
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
