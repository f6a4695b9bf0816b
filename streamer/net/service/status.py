"""What a service says of itself to whoever hands out its address. In: its numbers. Out: one object.

Served at /statusz as JSON, without a key, as the metrics are. A replica's name holds its
incarnation, which is new with every start: so an id of a session that was lost with the process
names nobody.
"""

from __future__ import annotations

import secrets

import msgspec

INCARNATION_BYTES = 3
_PREFIX = "sess_"


class ReplicaStatus(msgspec.Struct, frozen=True):
    """One process at one moment. pid: its id on its own machine. taken: of `limit` places.
    admitted: all that ever got one. refused: all that came and got none. lag_s: seconds of audio
    that were taken and are not heard, of the session that is furthest behind."""

    name: str
    kind: str
    pid: int
    is_draining: bool
    taken: int
    limit: int
    admitted: int
    lag_s: float
    refused: int = 0  # nothing from a release before

    @property
    def num_came(self) -> int:
        return self.admitted + self.refused


def incarnation_of(name: str) -> str:
    """`name` for one start of its process; nothing for a process without a name."""
    return f"{name}.{secrets.token_hex(INCARNATION_BYTES)}" if name else ""


def new_session_id(incarnation: str) -> str:
    """A secret that says which process has the session, where that has a name."""
    whose = f"{incarnation}_" if incarnation else ""
    return f"{_PREFIX}{whose}{secrets.token_hex(16)}"


def incarnation_in(session_id: str) -> str:
    """The process that a session's id names; nothing where it names none."""
    return session_id.removeprefix(_PREFIX).rpartition("_")[0]
