"""Decides before the upgrade which clients may connect, and gives sessions their ids.

Every service shares it: keys, Origin, capacity, drain. Keys are compared in constant time. A
browser cannot send headers with a websocket: its key comes as a subprotocol, which no server logs,
unlike a URL. A client that a director sends on has a ticket in place of the key.

A key is a tenant. An option's text holds several keys, separated by commas. With `max_per_key`, no
tenant takes more places than that.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from websockets.datastructures import Headers

from streamer.extras import load

KEY_PROTOCOL = "openai-insecure-api-key."
# RFC 9110's token: the characters of a subprotocol
KEY_CHARACTERS = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
RETRY_AFTER_S = 5
NO_TENANT = ""  # the tenant if there are no keys


class HttpRefusal(Exception):
    """An HTTP answer in place of the upgrade: status, one line, further headers."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers or {}


@dataclass
class Admission:
    """The rules of one service, and its places. is_draining: no new sessions. name: of this process
    among its kind, for ids of sessions; empty if it has none. places: the sessions, or turns, by
    their ids; each has its `tenant`, its `lag_s` (seconds of audio that waits) and its
    `connection`, None while it waits for its client.

    A place is taken after the handshake. Clients that come at the same moment may all be admitted
    to the last place, so a server asks `why_full` again before a session begins.
    """

    paths: tuple[str, ...]
    max_sessions: int
    api_key: str | None = None
    allowed_origins: tuple[str, ...] = ()
    max_per_key: int | None = None
    name: str = ""
    is_draining: bool = False
    places: dict[Any, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.keys = self.api_key.split(",") if self.api_key else []
        # The name for one start of the process: a ticket for one process is not valid at another,
        # nor after a restart, and ids of sessions that were lost with a process name no later one.
        self.replica = f"{self.name}.{secrets.token_hex(3)}"
        self.tickets = load("fleet.tickets")(self.keys, self.replica)

    def new_session_id(self) -> str:
        """A secret that names the process of the session, if that has a name."""
        prefix = f"{self.replica}_" if self.name else ""
        return f"sess_{prefix}{secrets.token_hex(16)}"

    def check(
        self, path: str, headers: Headers, query: Mapping[str, Sequence[str]] | None = None
    ) -> str:
        """The tenant. Raises HttpRefusal, and MultipleValuesError for a repeated header."""
        origin, host = headers.get("Origin"), headers.get("Host", "")
        shown, query = keys_shown(headers), query or {}
        if path not in self.paths:
            raise HttpRefusal(404, f"no such path; connect to {' or '.join(self.paths)}")
        found = [key for key in self.keys if any(is_equal(key, each) for each in shown)]
        if not found and "ticket" in query:
            found = self.tickets.redeem(query["ticket"][0])
        if self.keys and not found:
            raise HttpRefusal(401, "wrong or missing API key; send Authorization: Bearer KEY")
        if origin is not None and not self._may_come(origin, host):
            told = "this Origin is not allowed; start the server with --allow-origin"
            raise HttpRefusal(403, told)
        if self.is_draining:
            raise busy("the server is going down; try again in a moment")
        return found[0] if found else NO_TENANT

    def _may_come(self, origin: str, host: str) -> bool:
        """Whether pages of this Origin may connect: our own page, or a named one. A foreign name
        may point here (DNS rebinding), so without a key ours must be at a loopback address."""
        if origin in self.allowed_origins:
            return True
        is_own = bool(host) and origin.partition("://")[2] == host
        return is_own and (bool(self.keys) or is_loopback(host.rpartition(":")[0] or host))

    def why_full(self, tenant: str = NO_TENANT) -> str | None:
        """Why this tenant can have no further session, or None."""
        if self.has_its_share(tenant):
            return f"all {self.max_per_key} sessions of this key are taken"
        is_full = len(self.places) >= self.max_sessions
        return f"all {self.max_sessions} sessions are taken" if is_full else None

    def has_its_share(self, tenant: str) -> bool:
        """Whether it has as many places as one key may have."""
        taken = sum(place.tenant == tenant for place in self.places.values())
        return self.max_per_key is not None and taken >= self.max_per_key


def busy(message: str, retry_after_s: int = RETRY_AFTER_S) -> HttpRefusal:
    """A refusal that asks the client to come again."""
    return HttpRefusal(503, message, {"Retry-After": str(retry_after_s)})


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def keys_shown(headers: Headers) -> list[str]:
    """Keys in a request: a bearer token, and a browser's subprotocols."""
    scheme, _, token = headers.get("Authorization", "").partition(" ")
    offered = ",".join(headers.get_all("Sec-WebSocket-Protocol")).split(",")
    found = (protocol.strip() for protocol in offered)
    shown = [each.removeprefix(KEY_PROTOCOL) for each in found if each.startswith(KEY_PROTOCOL)]
    return [token.strip(), *shown] if scheme.lower() == "bearer" else shown


def is_equal(secret: str, shown: str) -> bool:
    return hmac.compare_digest(secret.encode(), shown.encode())  # in constant time
