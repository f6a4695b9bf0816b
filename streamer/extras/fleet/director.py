"""Answers each client with the address of a replica, and has no further part in its session.

A websocket's request gets 307 and the replica's address; websockets follows it. A browser's
websocket and the official OpenAI client do not: programs ask `GET /v1/replica` first. With API
keys, the address carries a ticket in place of the key. A director keeps no state of clients, so
several may run, and no session notices when one is lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any
from urllib.parse import SplitResult, parse_qs, urlencode, urlsplit

from anyio.abc import TaskGroup
from websockets.http11 import Request, Response

from streamer.core.link.wire import PATH as VERIFY
from streamer.extras.fleet.replicas import SERVER, VERIFIER, Known, Roster, choose
from streamer.net.realtime.server import PATH as REALTIME
from streamer.net.service.admission import Admission, HttpRefusal, busy, incarnation_in, sign
from streamer.net.service.http import ClientSocket, answer, answer_json
from streamer.net.service.metrics import ServiceMetrics
from streamer.net.service.service import Query, Service

PATHS = {REALTIME: SERVER, VERIFY: VERIFIER}
KINDS = (SERVER, VERIFIER)
ASK = "/v1/replica"
LIST = "/v1/replicas"
TARGETS = "/v1/targets"
RETRY_AFTER_S = 1  # places come and go within seconds
GONE = "the replica of this session is gone; connect anew"


class DirectorMetrics(ServiceMetrics):
    """The metrics of a director."""

    refusals_name = "fleet_refused"

    def __init__(self) -> None:
        super().__init__()
        self.sent = self._counter("fleet_sent", "Clients sent on", "kind", KINDS)


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
        num = {kind: partial(self._count, kind, lambda _: 1) for kind in KINDS}
        free = {kind: partial(self._count, kind, lambda k: k.num_free) for kind in KINDS}
        watch = self.metrics.watch_each
        watch("fleet_replicas", "Replicas that answer", "kind", num)
        watch("fleet_places_free", "Places of these", "kind", free)

    def _count(self, kind: str, of: Callable[[Known], int]) -> int:
        return sum(of(known) for known in self._roster.answering if known.kind == kind)

    def start(self, group: TaskGroup) -> None:
        group.start_soon(self._beside)
        group.start_soon(self._roster.run)

    def check(self, query: Query, tenant: str) -> None:
        raise AssertionError("a director gives no place")

    async def serve(self, socket: ClientSocket, query: Query) -> None:
        raise AssertionError("a director opens no websocket")

    async def drain(self, within_s: float) -> None:
        """It has no session."""

    def _admit(self, socket: ClientSocket, request: Request, url: SplitResult) -> Response:
        """A redirect; for ASK the address as JSON. Raises HttpRefusal."""
        tenant = self._admission.check(url.path, request.headers)
        query = parse_qs(url.query)
        kind = PATHS.get(url.path) or query.get("kind", [SERVER])[0]
        if kind not in KINDS:
            raise HttpRefusal(400, f"kind is one of {' and '.join(KINDS)}")
        replica = self._replica_for(kind, query)
        self.metrics.sent.labels(kind).inc()
        where = REALTIME if kind == SERVER else VERIFY
        to = _address(f"{replica.address}{where}", url.query, replica, tenant)
        if url.path == ASK:
            return answer_json({"url": to})
        return answer(307, f"{to}\n", more={"Location": to})

    def _replica_for(self, kind: str, query: Query) -> Known:
        if "resume" in query:
            found = self._roster.find(incarnation_in(query["resume"][0]))
            if found is None:
                raise HttpRefusal(404, GONE)
            if not found.answers:
                raise busy("the replica of this session does not answer now", RETRY_AFTER_S)
            return found
        chosen = choose(self._roster.answering, kind, query.get("edge", [""])[0])
        if chosen is None:
            raise busy(f"every {kind} is full, or none is there; try again later", RETRY_AFTER_S)
        chosen.sent += 1
        return chosen

    def _plain(self, path: str) -> Response | None:
        if path == "/readyz" and not self._roster.answering:
            return answer(503, "no replica answers\n")
        if path in (LIST, TARGETS):
            found = self._list() if path == LIST else self._targets()
            return answer_json(found)
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
                "answers": k.answers,
                "status": k.status,
            }
            for k in self._roster.known.values()
        ]

    def _targets(self) -> list[dict[str, object]]:
        """Prometheus' HTTP service discovery, with replicas that are gone for now."""
        return [
            {
                "targets": [urlsplit(k.address).netloc],
                "labels": {"kind": k.status.kind, "replica": k.status.name.partition(".")[0]},
            }
            for k in self._roster.known.values()
            if k.status is not None
        ]


def _address(url: str, text: str, replica: Known, tenant: str) -> str:
    """The replica's address with the client's own query and, if there are keys, a ticket."""
    name = replica.status.name if replica.status else ""
    ticket = urlencode({"ticket": sign(tenant, name, time.time())}) if tenant else ""
    ours = ("kind=", "ticket=")  # a client's old ticket would be read first
    own = [part for part in text.split("&") if part and not part.startswith(ours)]
    query = "&".join([*own, ticket] if ticket else own)
    return f"{url}?{query}" if query else url
