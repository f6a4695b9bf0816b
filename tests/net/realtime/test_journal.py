"""Events by number: none lost, none doubled, bounded."""

import json
import random

import pytest

from streamer.net.realtime import journal as module
from streamer.net.realtime.journal import (
    KEPT_BYTES,
    MAX_HELD_BYTES,
    MAX_UNSENT_BYTES,
    OBJECT_BYTES,
    Journal,
)


@pytest.mark.parametrize("seed", range(20))
def test_every_event_that_is_kept_is_found_by_its_number(seed, monkeypatch):
    """Against plain lists, through random appends, confirmations and attachments."""
    monkeypatch.setattr(module, "MAX_HELD_BYTES", 30_000)
    monkeypatch.setattr(module, "KEPT_BYTES", 3_000)
    chance, journal, said, sizes = random.Random(seed), Journal("a"), 0, []
    for _ in range(300):
        text = "x" * chance.choice([0, 9, 500])
        new = [{"type": "x", "i": said + i, "text": text} for i in range(chance.choice([0, 1, 9]))]
        journal.append(new)
        said += len(new)
        sizes += [OBJECT_BYTES + len(journal[said - len(new) + i]) for i in range(len(new))]
        if chance.random() < 0.3:
            journal.confirm(chance.randint(0, said + 10))
        if chance.random() < 0.5:
            journal.sent(chance.randint(0, said))
        journal.attach(chance.random() < 0.5)
        assert journal.end == said
        assert journal.first <= journal.num_read <= journal.num_sent <= said
        assert journal.num_bytes == sum(sizes[journal.first :]) <= 30_000
        assert journal._unsent_bytes == sum(sizes[journal.num_sent :])
        assert journal._read_bytes == sum(sizes[journal.first : journal.num_read]) <= 3_000
        if journal.first < said:
            number = chance.randrange(journal.first, said)
            row = json.loads(journal[number])
            assert (row["event_id"], row["i"]) == (f"event_a_{number}", number)


def test_what_is_read_does_not_push_out_what_is_not():
    assert KEPT_BYTES + 2 * MAX_UNSENT_BYTES < MAX_HELD_BYTES
