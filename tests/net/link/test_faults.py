"""Real verifier processes under faults; links cut after any byte: tests/net/test_history.py."""

import contextlib
import random
import signal

import anyio
import pytest
from far import verifying
from patience import until
from speech import SAMPLES

from bench.proxy import Proxy, Toxics
from streamer import Describer, TextDelta

WAYS = {
    "exact": {"mode": "exact", "verify_budget_s": 120},  # a process may start slowly
    "gated": {"mode": "gated", "threshold": 0.0, "verify_budget_s": 2.0},
}


async def turn(describer, file, name, found):
    """One turn: for each id, whether it was verified, as told while it came."""
    text, told = "", []
    async with describer.session() as session:
        await session.feed(file.read_bytes()[44:])
        await session.commit()
        async for event in session:
            if isinstance(event, TextDelta):
                text += event.text
                told += [(token, event.verified) for token in event.ids]
    assert (event.text, list(event.ids)) == (text, [token for token, _ in told])
    found[name] = told


@pytest.mark.parametrize(
    ("blow", "times"),
    [
        (signal.SIGKILL, 2),
        (signal.SIGSTOP, 3),
        *(pytest.param(s, 100, marks=pytest.mark.long) for s in (signal.SIGKILL, signal.SIGSTOP)),
    ],
)
async def test_a_verifier_is_killed_or_stopped_at_any_moment(wanted, blow, times):
    """In the middle of turns; another takes the place of a dead one."""
    chance = random.Random(times)
    async with contextlib.AsyncExitStack() as stack:
        url, process = stack.enter_context(verifying())
        port = int(url.rsplit(":", 1)[1])
        proxy = await stack.enter_async_context(Proxy(port, Toxics(latency_s=0.005)))
        opened = {}
        for name, options in WAYS.items():
            far = Describer.open(cloud=f"ws://127.0.0.1:{proxy.port}", **options)
            opened[name] = await stack.enter_async_context(far)
            await opened[name].load()
        for i in range(times):
            for describer in opened.values():
                await until(lambda describer=describer: describer.link.is_up)
            file, found = SAMPLES[i % len(SAMPLES)], {}
            async with anyio.create_task_group() as group:
                for name, describer in opened.items():
                    group.start_soon(turn, describer, file, name, found)
                await anyio.sleep(chance.uniform(0.0, 0.6))
                process.send_signal(blow)
                if blow is signal.SIGKILL:
                    url, process = stack.enter_context(verifying())
                    proxy.target_port = int(url.rsplit(":", 1)[1])
                else:
                    await anyio.sleep(chance.uniform(0.0, 1.0))
                    process.send_signal(signal.SIGCONT)
            ids = wanted["exact"][file.name]["ids"]
            assert found["exact"] == [(token, True) for token in ids]
            verified = [was for _, was in found["gated"]]
            n = verified.index(False) if False in verified else len(verified)
            assert [token for token, _ in found["gated"][:n]] == ids[:n]
