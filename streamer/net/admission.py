"""Who may connect, decided before the upgrade. In: an HTTP request's path and headers. Out: None, or a refusal.

Shared by every service of ours: key, Origin, capacity, drain. Keys are compared in constant time.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field

KEY_PROTOCOL = "openai-insecure-api-key."
RETRY_AFTER_S = 5


@dataclass(frozen=True, slots=True)
class Refusal:
    """An HTTP answer in place of the upgrade: status, one line, further headers."""

    status: int
    message: str
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Admission:
    """The rules of one service, and how many sessions are open. `is_draining`: nobody new."""

    paths: tuple[str, ...]
    max_sessions: int
    api_key: str | None = None
    allowed_origins: tuple[str, ...] = ()
    is_draining: bool = False
    num_sessions: int = 0
    num_refused: int = 0

    def check(self, path: str, headers: Mapping[str, str]) -> Refusal | None:
        """Why this request is refused, or None. Does not count it: `enter` does, once it is upgraded."""
        refusal = self._check(path, headers)
        self.num_refused += refusal is not None
        return refusal

    def enter(self) -> bool:
        """Take a place; False when the last one was taken between `check` and the upgrade."""
        if self.is_draining or self.num_sessions >= self.max_sessions:
            return False
        self.num_sessions += 1
        return True

    def leave(self) -> None:
        """Give the place back."""
        self.num_sessions -= 1

    def _check(self, path: str, headers: Mapping[str, str]) -> Refusal | None:
        if path not in self.paths:
            return Refusal(404, f"no such path; connect to {' or '.join(self.paths)}")
        if self.api_key is not None and not key_matches(self.api_key, headers):
            return Refusal(401, "wrong or missing API key; send Authorization: Bearer KEY")
        origin = headers.get("Origin")
        if origin is not None and not self._origin_allowed(origin, headers.get("Host", "")):
            return Refusal(403, "this Origin is not allowed; start the server with --allow-origin")
        retry = {"Retry-After": str(RETRY_AFTER_S)}
        if self.is_draining:
            return Refusal(503, "the server is going down; try again in a moment", retry)
        if self.num_sessions >= self.max_sessions:
            return Refusal(503, f"all {self.max_sessions} sessions are taken; try again later", retry)
        return None

    def _origin_allowed(self, origin: str, host: str) -> bool:
        own = origin.partition("://")[2] == host
        return own or origin in self.allowed_origins


def key_matches(key: str, headers: Mapping[str, str]) -> bool:
    """Whether the request carries `key`, as a bearer token or, from a browser, as a subprotocol."""
    offered = [headers.get("Authorization", "").removeprefix("Bearer ")]
    protocols = headers.get("Sec-WebSocket-Protocol", "")
    offered += [p.strip().removeprefix(KEY_PROTOCOL) for p in protocols.split(",") if KEY_PROTOCOL in p]
    wanted = key.encode()
    return any(hmac.compare_digest(wanted, found.encode("utf-8", "surrogateescape")) for found in offered)
