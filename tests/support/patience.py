"""Waits for expected events: safety nets against hangs, no measurements."""

import time

import anyio

PATIENCE_S = 120.0  # so long that no load of the machine decides a test
EXIT_S = 25.0  # for a server that ends: below the 30 s after which it cuts those who still speak


async def until(condition, within_s=PATIENCE_S):
    """Wait until `condition()` is true."""
    with anyio.fail_after(within_s):
        while not condition():
            await anyio.sleep(0.01)


def wait_for(condition, within_s=PATIENCE_S):
    """The same where there is no loop."""
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.02)
