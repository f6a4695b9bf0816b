"""A client that comes back. In: a URL's query and a Talk. Out: where it goes on, and what is lost.

`?resume=ID` continues a session whose link was cut. `&event=M`: from event M on; without it, from
the first that no socket was given. `&bytes=N`: the client still has its audio from byte N on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from streamer.net.realtime.server_events import resumed
from streamer.net.realtime.session import Talk


class CannotResume(ValueError):
    """One line for the client."""


@dataclass(frozen=True, slots=True)
class Resume:
    """None where the client did not say."""

    session_id: str
    num_bytes: int | None = None
    event: int | None = None

    @classmethod
    def parse(cls, query: Mapping[str, Sequence[str]]) -> Resume | None:
        """None where the query does not resume. Raises CannotResume."""
        if "resume" not in query:
            return None
        return cls(query["resume"][0], _number(query, "bytes"), _number(query, "event"))

    def check(self, talk: Talk) -> None:
        """Raises CannotResume where the client has more than there was."""
        if self.event is not None and self.event > talk.journal.end:
            told = f"event {self.event} has not been; the next one is {talk.journal.end}"
            raise CannotResume(told)

    def begin(self, talk: Talk, event_id: str) -> tuple[int, bytes]:
        """The first event's number, and the event that tells what was taken and is lost."""
        journal = talk.journal
        wanted = journal.num_read if self.event is None else self.event
        first = max(journal.first, journal.num_sent if self.event is None else wanted)
        lost_bytes = None if self.num_bytes is None else max(0, self.num_bytes - talk.num_bytes)
        event = resumed(
            talk.num_bytes, talk.num_messages, first, max(0, first - wanted), lost_bytes
        )
        journal.confirm(first)
        return first, msgspec.json.encode({"event_id": event_id, **event})


def _number(query: Mapping[str, Sequence[str]], name: str) -> int | None:
    if name not in query:
        return None
    text = query[name][0]
    if not (text.isascii() and text.isdecimal() and len(text) <= 15):
        raise CannotResume(f"{name} is no number; leave it out where it is not known")
    return int(text)
