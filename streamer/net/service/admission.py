"""Who may connect, before the upgrade. In: path, query, headers. Out: whose session, or a refusal.

Shared by every service of ours: keys, Origin, capacity, drain. Keys are compared in constant time.
A browser cannot send headers with a websocket: its key comes as a subprotocol, which, unlike a URL,
no server logs. Who comes from a director has a ticket in place of the key (tickets.py).

A tenant is who has a key. Several keys stand in one text, with commas between. Where
`max_per_key` is set, none of them takes more places than that.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
import secrets
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from streamer.net.service.status import INCARNATION_BYTES
from streamer.net.service.tickets import Tickets

KEY_PROTOCOL = "openai-insecure-api-key."
# RFC 9110's token: what a subprotocol may hold
KEY_CHARACTERS = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
RETRY_AFTER_S = 5
HANDSHAKE_S = 10.0  # websockets' own limit
NOBODY = ""  # the tenant where there are no keys


@dataclass(frozen=True, slots=True)
class HttpRefusal:
    """An HTTP answer in place of the upgrade: status, one line, further headers."""

    status: int
    message: str
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Admission:
    """The rules of one service, and how many sessions there are. `is_draining`: nobody new. `name`:
    of this process, for ids of sessions; empty where it has none.

    Who was let in counts until it arrives, `expect` to `arrived`: between the two lies a handshake,
    and many may come at the same moment.
    """

    paths: tuple[str, ...]
    max_sessions: int
    api_key: str | None = None
    allowed_origins: tuple[str, ...] = ()
    max_per_key: int | None = None
    name: str = ""
    is_draining: bool = False
    num_sessions: int = 0
    num_admitted: int = 0  # since the start
    num_refused: int = 0  # who had a key, and got no place
    _by_tenant: Counter[str] = field(default_factory=Counter)
    # who, until when, and whose it is
    _expected: dict[object, tuple[float, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.keys = keys_in(self.api_key)
        # What a director knows it by. Without a name of its own it needs one all the same: else a
        # ticket for one process would be good at every other, and after a restart once more.
        self.replica = self.name or f".{secrets.token_hex(INCARNATION_BYTES)}"
        self._tickets = Tickets(self.replica)

    @property
    def is_full(self) -> bool:
        return self.num_taken >= self.max_sessions

    @property
    def num_taken(self) -> int:
        """Places of sessions, and of those who are on their way."""
        return self.num_sessions + len(self._on_their_way())

    def _on_their_way(self) -> list[str]:
        """Whose they are. Who has not arrived when the handshake must be over never will."""
        now = time.monotonic()
        self._expected = {who: due for who, due in self._expected.items() if due[0] > now}
        return [whose for _, whose in self._expected.values()]

    def expect(self, who: object, tenant: str = NOBODY) -> None:
        """This client is let in; its handshake may take HANDSHAKE_S."""
        self._expected[who] = (time.monotonic() + HANDSHAKE_S, tenant)

    def arrived(self, who: object) -> None:
        """It is here, and counts as a session from now on if it becomes one."""
        self._expected.pop(who, None)

    def enter(self, tenant: str = NOBODY) -> None:
        """A session begins."""
        self.num_sessions += 1
        self.num_admitted += 1
        self._by_tenant[tenant] += 1

    def leave(self, tenant: str = NOBODY) -> None:
        """A session has ended."""
        self.num_sessions -= 1
        self._by_tenant[tenant] -= 1
        if not self._by_tenant[tenant]:
            del self._by_tenant[tenant]

    def check(
        self,
        path: str,
        headers: Mapping[str, str],
        query: Mapping[str, Sequence[str]] | None = None,
    ) -> HttpRefusal | str:
        """Why nobody like this may connect, or whose session it is. Headers are in lower case."""
        if path not in self.paths:
            return HttpRefusal(404, f"no such path; connect to {' or '.join(self.paths)}")
        tenant = self._tenant_of(headers, query or {})
        if tenant is None:
            return HttpRefusal(401, "wrong or missing API key; send Authorization: Bearer KEY")
        origin = headers.get("origin")
        if origin is not None and not self._origin_allowed(origin, headers.get("host", "")):
            told = "this Origin is not allowed; start the server with --allow-origin"
            return HttpRefusal(403, told)
        if self.is_draining:
            return busy("the server is going down; try again in a moment")
        return tenant

    def check_room(self, tenant: str = NOBODY) -> HttpRefusal | None:
        """Why there is no place for a new session, or None."""
        told = self.why_full(tenant)
        return None if told is None else busy(f"{told}; try again later")

    def why_full(self, tenant: str = NOBODY) -> str | None:
        """Why this tenant can have no further session, or None."""
        if self.has_its_share(tenant):
            return f"all {self.max_per_key} sessions of this key are taken"
        return f"all {self.max_sessions} sessions are taken" if self.is_full else None

    def has_its_share(self, tenant: str) -> bool:
        """Whether it has as many places as one key may have."""
        if self.max_per_key is None:
            return False
        return self._by_tenant[tenant] + self._on_their_way().count(tenant) >= self.max_per_key

    def _tenant_of(
        self, headers: Mapping[str, str], query: Mapping[str, Sequence[str]]
    ) -> str | None:
        """The key that was shown, by itself or by a ticket; None where none was."""
        if not self.keys:
            return NOBODY
        shown = [key for key in self.keys if key_matches(key, headers)]
        if shown or "ticket" not in query:
            return shown[0] if shown else None
        return self._tickets.redeem(query["ticket"][0], self.keys)

    def _origin_allowed(self, origin: str, host: str) -> bool:
        """Our own page, or one that was named. A name that is not ours may point here (DNS
        rebinding): where there is no key to stop it, our own page is one at a loopback address."""
        if origin in self.allowed_origins:
            return True
        is_own = bool(host) and origin.partition("://")[2] == host
        return is_own and (self.api_key is not None or is_loopback(host.rpartition(":")[0] or host))


def busy(message: str, retry_after_s: int = RETRY_AFTER_S) -> HttpRefusal:
    """Come again."""
    return HttpRefusal(503, message, {"Retry-After": str(retry_after_s)})


def keys_in(text: str | None) -> tuple[str, ...]:
    """The keys that stand in an option's text."""
    return tuple(text.split(",")) if text else ()


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
    protocols = [p.strip() for p in headers.get("sec-websocket-protocol", "").split(",")]
    offered += [p.removeprefix(KEY_PROTOCOL) for p in protocols if p.startswith(KEY_PROTOCOL)]
    wanted = key.encode()
    shown = [found.encode("utf-8", "surrogateescape") for found in offered]
    return any(hmac.compare_digest(wanted, found) for found in shown)
