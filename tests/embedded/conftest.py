"""Recordings of people, cloned once for all that reads them."""

import pytest
from people import clone_into


@pytest.fixture(scope="package")
def cloned(tmp_path_factory):
    return clone_into(tmp_path_factory.mktemp("clones"))
