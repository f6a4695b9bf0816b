"""`streamer describe` with a verifier elsewhere says what one process says; errors are one line."""

import os

import pytest
from far import describe
from speech import SAMPLES


@pytest.mark.parametrize("mode", ["exact", "cloud", "gated"])
def test_two_processes_say_what_one_says(verifier, wanted, mode):
    status, rows, told = describe(*SAMPLES, "--mode", mode, "--cloud", verifier)
    assert (status, told) == (0, "")
    for row in rows:
        one = wanted["gated" if mode == "gated" else "exact"][os.path.basename(row["file"])]
        assert (row["text"], row["ids"], row["stop_reason"]) == (one["text"], one["ids"], one["stop_reason"])
        assert row["mode"] == mode
    assert len(rows) == len(SAMPLES)
