"""Fixtures of the link's tests: a verifier process, and the answers of a single process."""

import pytest
from far import verifying
from wire import described_by_name


@pytest.fixture(scope="package")
def verifier():
    """A verifier of the shipped cloud model: its address."""
    with verifying() as (url, _):
        yield url


@pytest.fixture(scope="package")
def wanted():
    """mode -> file name -> what `streamer describe` says in one process."""
    return {mode: described_by_name(mode) for mode in ("exact", "gated", "edge")}
