"""The history of one client over any number of sockets, and the proof that it is whole."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import Any

RATE_HZ = 16_000


@dataclass(frozen=True)
class Entry:
    """began (its first turn), sent (message), seen (event), cut, refused (status), resumed."""

    kind: str
    what: Any = None


@dataclass
class Attempt:
    """One turn in one session, as it was seen. verified: of each id."""

    turn: int
    ids: list[int] = field(default_factory=list)
    verified: list[bool] = field(default_factory=list)
    text: str = ""
    description: dict[str, Any] | None = None


@dataclass
class History:
    entries: list[Entry] = field(default_factory=list)
    _waiting: dict[asyncio.Event, int] = field(default_factory=dict)  # until there are so many

    def note(self, kind: str, what: Any = None) -> None:
        self.entries.append(Entry(kind, what))
        for event, num in self._waiting.items():
            if len(self.entries) >= num:
                event.set()

    async def grown_by(self, num: int, within_s: float) -> None:
        """Returns when there are `num` more, at the latest after `within_s`."""
        grown = asyncio.Event()
        self._waiting[grown] = len(self.entries) + num
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s if num else 0):
                await grown.wait()
        del self._waiting[grown]

    def count(self, kind: str) -> int:
        return sum(entry.kind == kind for entry in self.entries)


def attempts_of(history: History) -> list[Attempt]:
    """Every turn of every session as committed, or an AssertionError."""
    session: _Session | None = None
    found = []
    for entry in history.entries:
        if entry.kind == "began":
            session = _Session(entry.what)
        elif entry.kind == "seen":
            assert session is not None, "an event before a session"
            session.take(entry.what)
            found += session.new
            session.new = []
    return found


class _Session:
    """The events of one session, each once and in order."""

    def __init__(self, first_turn: int) -> None:
        self.new: list[Attempt] = []
        self._next_turn = first_turn
        self._num_seen = 0
        self._items: dict[str, Attempt] = {}  # in the order of their commits
        self._written = ""  # of the response that is open

    def take(self, event: dict[str, Any]) -> None:
        number = int(event["event_id"].rpartition("_")[2])
        assert number == self._num_seen, f"event {number} after {self._num_seen - 1}"
        self._num_seen += 1
        match event["type"]:
            case "input_audio_buffer.committed":
                assert event["item_id"] not in self._items, "a turn is committed twice"
                attempt = self._items[event["item_id"]] = Attempt(self._next_turn)
                self._next_turn += 1
                self.new.append(attempt)
            case "response.output_text.delta":
                self._written += event["delta"]
            case "streamer.delta":
                attempt = self._open(event["item_id"])
                attempt.ids += event["ids"]
                attempt.verified += [event["verified"]] * len(event["ids"])
                attempt.text += event["text"]
            case "streamer.description":
                self._end(self._open(event["item_id"]), event["description"])
            case "error":
                raise AssertionError(f"an error: {event['error']}")

    def _open(self, item_id: str) -> Attempt:
        """The turn that is answered: the oldest without a description."""
        waiting = [name for name, each in self._items.items() if each.description is None]
        assert waiting[:1] == [item_id], f"{item_id} is answered; {waiting[:1]} has its turn"
        return self._items[item_id]

    def _end(self, attempt: Attempt, description: dict[str, Any]) -> None:
        assert description["n_tokens"] == len(attempt.ids), "the description counts other ids"
        assert description["text"] == attempt.text == self._written, "its text is another one"
        attempt.description = description
        self._written = ""


def prove(history, turns, wrong):
    """The answers: each turn once, in order. wrong(attempt): why it is no answer, or None."""
    attempts = attempts_of(history)
    answers = [attempt for attempt in attempts if attempt.description is not None]
    assert [attempt.turn for attempt in answers] == list(range(len(turns))), "lost or doubled"
    for attempt in attempts:
        why = wrong(attempt)
        assert why is None, f"turn {attempt.turn}: {why}"
    for answer in answers:
        assert answer.description is not None
        heard = round(answer.description["audio_s"] * RATE_HZ)
        # the description's seconds are rounded to 1 ms
        assert abs(heard - len(turns[answer.turn]) // 2) <= RATE_HZ // 1_000, "audio is lost"
    return answers
