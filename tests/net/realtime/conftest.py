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


def by_name(*more):
    """The bundled recordings as `streamer describe` describes them in exact mode, by file name."""
    return {os.path.basename(row["file"]): row for row in describe_files(SAMPLES, "exact", *more)}


@pytest.fixture(scope="package")
def wanted():
    return by_name()


@pytest.fixture(scope="package")
def measured():
    """As an English browser shows them, with measures."""
    return by_name("--measures", "--language", "en")


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def browser():
    """Without a microphone; each guest has a context of its own."""
    async with chromium() as found:
        yield found
