"""Fixtures of the link's tests: a verifier process, and the answers of a single process."""

import os

import pytest
from far import verifying
from speech import SAMPLES
from wire import describe_files


@pytest.fixture(scope="package")
def verifier():
    """A verifier of the shipped cloud model: its address."""
    with verifying() as (url, _):
        yield url


@pytest.fixture(scope="package")
def wanted():
    """mode -> file name -> what `streamer describe` says in one process."""
    found = {}
    for mode in ("exact", "gated", "edge"):
        found[mode] = {os.path.basename(row["file"]): row for row in describe_files(SAMPLES, mode)}
    return found
