"""Who may connect, decided before the upgrade. In: an HTTP request's path and headers. Out: None,
or a refusal.

Shared by every service of ours: key, Origin, capacity, drain. Keys are compared in constant time. A
browser cannot send headers with a websocket: its key comes as a subprotocol, which, unlike a URL,
no server logs.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

KEY_PROTOCOL = "openai-insecure-api-key."
# RFC 9110's token: what a subprotocol may hold
KEY_CHARACTERS = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
RETRY_AFTER_S = 5
HANDSHAKE_S = 10.0  # websockets' own limit


@dataclass(frozen=True, slots=True)
class HttpRefusal:
    """An HTTP answer in place of the upgrade: status, one line, further headers."""

    status: int
    message: str
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Admission:
    """The rules of one service, and how many sessions there are. `is_draining`: nobody new.

    Who was let in counts until it arrives, `expect` to `arrived`: between the two lies a handshake,
    and many may come at the same moment.
    """

    paths: tuple[str, ...]
    max_sessions: int
    api_key: str | None = None
    allowed_origins: tuple[str, ...] = ()
    is_draining: bool = False
    num_sessions: int = 0
    _expected: dict[object, float] = field(default_factory=dict)  # who, and until when

    @property
    def is_full(self) -> bool:
        now = time.monotonic()
        self._expected = {who: until for who, until in self._expected.items() if until > now}
        return self.num_sessions + len(self._expected) >= self.max_sessions

    def expect(self, who: object) -> None:
        """This client is let in; its handshake may take HANDSHAKE_S."""
        self._expected[who] = time.monotonic() + HANDSHAKE_S

    def arrived(self, who: object) -> None:
        """It is here, and counts as a session from now on if it becomes one."""
        self._expected.pop(who, None)

    def check(self, path: str, headers: Mapping[str, str]) -> HttpRefusal | None:
        """Why nobody like this may connect, or None. Names of headers are in lower case."""
        if path not in self.paths:
            return HttpRefusal(404, f"no such path; connect to {' or '.join(self.paths)}")
        if self.api_key is not None and not key_matches(self.api_key, headers):
            return HttpRefusal(401, "wrong or missing API key; send Authorization: Bearer KEY")
        origin = headers.get("origin")
        if origin is not None and not self._origin_allowed(origin, headers.get("host", "")):
            return HttpRefusal(
                403, "this Origin is not allowed; start the server with --allow-origin"
            )
        if self.is_draining:
            return _busy("the server is going down; try again in a moment")
        return None

    def check_room(self) -> HttpRefusal | None:
        """Why there is no place for a new session, or None."""
        return (
            _busy(f"all {self.max_sessions} sessions are taken; try again later")
            if self.is_full
            else None
        )

    def _origin_allowed(self, origin: str, host: str) -> bool:
        """Our own page, or one that was named. A name that is not ours may point here (DNS
        rebinding): where there is no key to stop it, our own page is one at a loopback address."""
        if origin in self.allowed_origins:
            return True
        is_own = bool(host) and origin.partition("://")[2] == host
        return is_own and (self.api_key is not None or is_loopback(host.rpartition(":")[0] or host))


def _busy(message: str) -> HttpRefusal:
    return HttpRefusal(503, message, {"Retry-After": str(RETRY_AFTER_S)})


def is_loopback(host: str) -> bool:
    """Whether a host is this machine and nobody else can reach it."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def key_matches(key: str, headers: Mapping[str, str]) -> bool:
    """Whether the request carries `key`, as a bearer token or, from a browser, as a subprotocol."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    offered = [token.strip()] if scheme.lower() == "bearer" else []
    protocols = [
        protocol.strip() for protocol in headers.get("sec-websocket-protocol", "").split(",")
    ]
    offered += [p.removeprefix(KEY_PROTOCOL) for p in protocols if p.startswith(KEY_PROTOCOL)]
    wanted = key.encode()
    return any(
        hmac.compare_digest(wanted, found.encode("utf-8", "surrogateescape")) for found in offered
    )
