"""What a conversation wants done with its session: conversation.py says when, session.py does."""

from __future__ import annotations

from dataclasses import dataclass

from streamer.stages.events import SessionOptions


@dataclass(frozen=True, slots=True)
class Feed:
    """Audio of the client, in the encoding that is in force."""

    pcm: bytes


@dataclass(frozen=True, slots=True)
class Reopen:
    """Listen by other options from here on; a turn that voice activity has begun ends here."""

    options: SessionOptions


@dataclass(frozen=True, slots=True)
class Do:
    """Call this method of the session. cause: the client event's id."""

    name: str
    cause: str | None


Action = Feed | Reopen | Do
