"""The pair that the command line describes with."""

import pytest


@pytest.fixture(scope="module")
def models(tiny_pair):
    return ["--edge", tiny_pair[0], "--cloud", tiny_pair[1]]
