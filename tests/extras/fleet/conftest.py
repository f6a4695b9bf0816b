"""Fixtures of tests with real replicas."""

import pytest

from streamer.extras.fleet import replicas as of_roster


@pytest.fixture
def patient(monkeypatch):
    """A busy machine's silence is none."""
    monkeypatch.setattr(of_roster, "SILENCE_S", 10.0)
