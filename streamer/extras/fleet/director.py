"""Answers each client with the address of a replica, and has no further part in its session.

A websocket's request gets 307 and the replica's address; websockets follows it. A browser's
websocket and the official OpenAI client do not: programs ask `GET /v1/replica` first. With API
keys, the address carries a ticket in place of the key. A director keeps no state but the clients on
their way, so several may run, and no session notices when one is lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from urllib.parse import parse_qs, urlencode, urlsplit

import anyio
import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from websockets.asyncio.server import ServerConnection, serve
from websockets.datastructures import Headers, MultipleValuesError
from websockets.http11 import Request, Response

from streamer.core.link.wire import PATH as VERIFY
from streamer.extras.fleet.replicas import LIST, SERVER, VERIFIER, Known, Roster, choose, find
from streamer.net.realtime.server import PATH as REALTIME
from streamer.net.service.admission import (
    HANDSHAKE_S,
    Admission,
    HttpRefusal,
    busy,
    incarnation_in,
    sign,
)
from streamer.net.service.http import answer, is_websocket, refused, url_of
from streamer.net.service.metrics import STATUSES
from streamer.net.service.service import Address, Query

PATHS = {REALTIME: SERVER, VERIFY: VERIFIER}
ASK = "/v1/replica"
TARGETS = "/v1/targets"
JSON = "application/json"
RETRY_AFTER_S = 1  # places come and go within seconds
GONE = "the replica of this session is gone; connect anew"


class Director:
    """`run` it over a roster that runs elsewhere."""

    def __init__(self, roster: Roster, api_key: str | None = None) -> None:
        self._roster = roster
        self._admission = Admission((*PATHS, ASK), 1, api_key)
        self._registry = r = CollectorRegistry()
        self._sent = Counter("streamer_fleet_sent", "Clients sent on", ["kind"], registry=r)
        self._refused = Counter("streamer_fleet_refused", "Clients refused", ["status"], registry=r)
        for status in STATUSES:
            self._refused.labels(status)
        replicas = Gauge("streamer_fleet_replicas", "Replicas that answer", ["kind"], registry=r)
        free = Gauge("streamer_fleet_places_free", "Places of these", ["kind"], registry=r)
        for kind in (SERVER, VERIFIER):
            self._sent.labels(kind)
            replicas.labels(kind).set_function(partial(self._num_of, kind))
            free.labels(kind).set_function(partial(self._num_free, kind))

    async def run(self, address: Address, ready: Callable[[int], None]) -> None:
        """Until cancelled. Raises OSError if the port is taken."""
        async with serve(
            _never,
            address.host,
            address.port,
            ssl=address.tls,
            process_request=self._request,
            open_timeout=HANDSHAKE_S,
            ping_interval=None,
            server_header="streamer",
        ) as server:
            ready(server.sockets[0].getsockname()[1])
            await anyio.sleep_forever()

    def metrics(self) -> bytes:
        """For Prometheus."""
        return generate_latest(self._registry)

    def _num_of(self, kind: str) -> int:
        return len(self._of(kind))

    def _num_free(self, kind: str) -> int:
        return sum(max(0, replica.num_free) for replica in self._of(kind))

    def _of(self, kind: str) -> list[Known]:
        return [r for r in self._roster.answering if r.status and r.status.kind == kind]

    def _request(self, socket: ServerConnection, request: Request) -> Response:
        try:
            url = url_of(request)
            # other upgrades, such as h2c, are offers that a server may ignore
            if not is_websocket(request) and (plain := self._plain(url.path)):
                return plain
            query = parse_qs(url.query)
            found = self._sent_on(url.path, url.query, query, request.headers)
        except ValueError:
            found = HttpRefusal(400, "the address cannot be read")
        except MultipleValuesError as error:
            found = HttpRefusal(400, f"{error.args[0]} is there twice; send it once")
        if isinstance(found, HttpRefusal):
            self._refused.labels(str(found.status)).inc()
            return refused(found)
        return found

    def _sent_on(
        self, path: str, text: str, query: Query, headers: Headers
    ) -> Response | HttpRefusal:
        """A redirect, or the address for ASK, or a refusal."""
        tenant = self._admission.check(path, headers)
        if isinstance(tenant, HttpRefusal):
            return tenant
        kind = PATHS.get(path) or query.get("kind", [SERVER])[0]
        if kind not in PATHS.values():
            return HttpRefusal(400, f"kind is one of {' and '.join(PATHS.values())}")
        replica = self._replica_for(kind, query, tenant)
        if isinstance(replica, HttpRefusal):
            return replica
        self._sent.labels(kind).inc()
        where = REALTIME if kind == SERVER else VERIFY
        url = _address(f"{replica.address}{where}", text, replica, tenant)
        if path == ASK:
            return answer(200, msgspec.json.encode({"url": url}), JSON)
        return answer(307, f"{url}\n", more={"Location": url})

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
        """Answers that need no key, as at the replicas."""
        match path:
            case "/healthz":
                return answer(200, "ok\n")
            case "/readyz":
                is_ready = bool(self._roster.answering)
                return answer(200, "ready\n") if is_ready else answer(503, "no replica answers\n")
            case "/metrics":
                return answer(200, self.metrics())
            case _ if path == LIST:
                return answer(200, msgspec.json.encode(self._list()), JSON)
            case _ if path == TARGETS:
                return answer(200, msgspec.json.encode(self._targets()), JSON)
            case "/":
                page = choose(self._roster.answering, SERVER)
                if page is not None:
                    where = f"{page.address.replace('ws', 'http', 1)}/"
                    return answer(307, f"{where}\n", more={"Location": where})
        return None

    def _list(self) -> list[dict[str, object]]:
        """Every address with its last status, for other directors and for people."""
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


async def _never(socket: ServerConnection) -> None:
    """Every request has an HTTP answer; no websocket is opened."""
    raise AssertionError("a director opens no websocket")
