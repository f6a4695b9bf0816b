"""One real server in exact mode for the tests of this room, and the sentences that it must give."""

import pytest
import pytest_asyncio
from browser import chromium
from wire import described_by_name, serving


@pytest.fixture(scope="package")
def server():
    with serving("--mode", "exact", "--resume-s", 5, "--max-sessions", 32) as (url, _):
        yield url


@pytest.fixture(scope="package")
def wanted():
    return described_by_name("exact")


@pytest.fixture(scope="package")
def measured():
    """As an English browser shows them, with measures."""
    return described_by_name("exact", "--measures", "--language", "en")


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def browser():
    """Without a microphone; each guest has a context of its own."""
    async with chromium() as found:
        yield found
