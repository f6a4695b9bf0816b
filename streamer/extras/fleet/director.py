"""Answers each client with the address of a replica, and has no further part in its session.

A websocket's request gets 307 and the replica's address; websockets follows it. A browser's
websocket and the official OpenAI client do not: programs ask `GET /v1/replica` first. With API
keys, the address carries a ticket in place of the key. A director keeps no state but the clients on
their way, so several may run, and no session notices when one is lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any
from urllib.parse import SplitResult, parse_qs, urlencode, urlsplit

import msgspec
from anyio.abc import TaskGroup
from websockets.http11 import Request, Response

from streamer.core.link.wire import PATH as VERIFY
from streamer.extras.fleet.replicas import SERVER, VERIFIER, Known, Roster, choose, find
from streamer.net.realtime.server import PATH as REALTIME
from streamer.net.service.admission import Admission, HttpRefusal, busy, incarnation_in, sign
from streamer.net.service.http import ClientSocket, answer
from streamer.net.service.metrics import ServiceMetrics
from streamer.net.service.service import Query, Service

PATHS = {REALTIME: SERVER, VERIFY: VERIFIER}
ASK = "/v1/replica"
LIST = "/v1/replicas"
TARGETS = "/v1/targets"
JSON = "application/json"
RETRY_AFTER_S = 1  # places come and go within seconds
GONE = "the replica of this session is gone; connect anew"


class DirectorMetrics(ServiceMetrics):
    """The metrics of a director."""

    refusals_name = "fleet_refused"

    def __init__(self) -> None:
        super().__init__()
        kinds = (SERVER, VERIFIER)
        self.sent = self._counter("fleet_sent", "Clients sent on", "kind", kinds)


class Director(Service):
    """`run` it. beside: runs with it and sets the roster's addresses."""

    metrics: DirectorMetrics

    max_message_bytes = 1  # it opens no websocket
    kind = "director"
    ping_interval_s = None
    lag_s = 0.0

    def __init__(
        self, roster: Roster, api_key: str | None, beside: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        super().__init__(Admission((*PATHS, ASK), 0, api_key), DirectorMetrics())
        self._roster = roster
        self._beside = beside
        for name, help, read in (
            ("replicas", "Replicas that answer", self._num_of),
            ("places_free", "Places of these", self._num_free),
        ):
            reads = {kind: partial(read, kind) for kind in (SERVER, VERIFIER)}
            self.metrics.watch_each(f"streamer_fleet_{name}", help, "kind", reads)

    def start(self, group: TaskGroup) -> None:
        group.start_soon(self._beside)
        group.start_soon(self._roster.run)

    def check(self, query: Query, tenant: str) -> HttpRefusal | None:
        raise AssertionError("a director gives no place")

    async def serve(self, socket: ClientSocket, query: Query) -> None:
        raise AssertionError("a director opens no websocket")

    async def drain(self, within_s: float) -> None:
        """It has no session."""

    def _num_of(self, kind: str) -> int:
        return len(self._of(kind))

    def _num_free(self, kind: str) -> int:
        return sum(max(0, replica.num_free) for replica in self._of(kind))

    def _of(self, kind: str) -> list[Known]:
        return [r for r in self._roster.answering if r.status and r.status.kind == kind]

    def _admit(self, socket: ClientSocket, request: Request, url: SplitResult) -> HttpRefusal:
        """A redirect, or the address for ASK, or a refusal."""
        tenant = self._admission.check(url.path, request.headers)
        if isinstance(tenant, HttpRefusal):
            return tenant
        query = parse_qs(url.query)
        kind = PATHS.get(url.path) or query.get("kind", [SERVER])[0]
        if kind not in PATHS.values():
            return HttpRefusal(400, f"kind is one of {' and '.join(PATHS.values())}")
        replica = self._replica_for(kind, query, tenant)
        if isinstance(replica, HttpRefusal):
            return replica
        self.metrics.sent.labels(kind).inc()
        where = REALTIME if kind == SERVER else VERIFY
        to = _address(f"{replica.address}{where}", url.query, replica, tenant)
        if url.path == ASK:
            found = msgspec.json.encode({"url": to}).decode()
            return HttpRefusal(200, found, {"Content-Type": JSON})
        return HttpRefusal(307, to, {"Location": to})

    def _replica_for(self, kind: str, query: Query, tenant: str) -> Known | HttpRefusal:
        replicas = self._roster.answering
        if "resume" in query:
            named = incarnation_in(query["resume"][0])
            if (found := find(replicas, named)) is not None:
                return found
            if self._roster.names(named):
                return busy("the replica of this session does not answer now", RETRY_AFTER_S)
            return HttpRefusal(404, GONE)
        chosen = choose(replicas, kind, query.get("edge", [""])[0], tenant)
        if chosen is None:
            return busy(f"every {kind} is full, or none is there; try again later", RETRY_AFTER_S)
        if kind == SERVER:  # a link of an edge takes no place until it brings a turn
            self._roster.send(chosen.address, tenant)
        return chosen

    def _plain(self, path: str) -> Response | None:
        if path == "/readyz" and not self._roster.answering:
            return answer(503, "no replica answers\n")
        if path in (LIST, TARGETS):
            found = self._list() if path == LIST else self._targets()
            return answer(200, msgspec.json.encode(found), JSON)
        page = choose(self._roster.answering, SERVER) if path == "/" else None
        if page is not None:
            where = f"{page.address.replace('ws', 'http', 1)}/"
            return answer(307, f"{where}\n", more={"Location": where})
        return super()._plain(path)

    def _list(self) -> list[dict[str, object]]:
        """Every address with its last status, for people."""
        return [
            {
                "address": k.address,
                "is_leaving": k.is_leaving,
                "answers": k.silent_since is None,
                "status": k.status,
            }
            for k in self._roster.known
        ]

    def _targets(self) -> list[dict[str, object]]:
        """Prometheus' HTTP service discovery, with replicas that are gone for now."""
        return [
            {
                "targets": [urlsplit(k.address).netloc],
                "labels": {"kind": k.last.kind, "replica": k.last.name.partition(".")[0]},
            }
            for k in self._roster.known
            if k.last is not None
        ]


def _address(url: str, text: str, replica: Known, tenant: str) -> str:
    """The replica's address with the client's own query and, if there are keys, a ticket."""
    name = replica.status.name if replica.status else ""
    ticket = urlencode({"ticket": sign(tenant, name, time.time())}) if tenant else ""
    ours = ("kind=", "ticket=")  # a client's old ticket would be read first
    own = [part for part in text.split("&") if part and not part.startswith(ours)]
    query = "&".join([*own, ticket] if ticket else own)
    return f"{url}?{query}" if query else url
