"""One real server in exact mode for the tests of this room, and the sentences that it must give."""

import os

import pytest
import pytest_asyncio
from browser import chromium
from speech import SAMPLES
from wire import describe_files, serving


@pytest.fixture(scope="package")
def server():
    with serving("--mode", "exact", "--resume-s", 5, "--max-sessions", 32) as (url, _):
        yield url


@pytest.fixture(scope="package")
def wanted():
    """The bundled recordings as `streamer describe` describes them in exact mode, by file name."""
    return {os.path.basename(row["file"]): row for row in describe_files(SAMPLES, "exact")}


@pytest.fixture(scope="package")
def measured():
    """The same with measures, which the page asks for: words are held to them."""
    rows = describe_files(SAMPLES, "exact", measures=True)
    return {os.path.basename(row["file"]): row for row in rows}


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def browser():
    """Without a microphone; each guest has a context of its own."""
    async with chromium() as found:
        yield found
