"""Answers each client with the address of a replica, and has no further part in its session.

A websocket's request gets 307 and the replica's address; websockets follows it. A browser's
websocket and the official OpenAI client do not: programs ask `GET /v1/replica` first. With API
keys, the address carries a ticket in place of the key. A director keeps no state of clients, so
several may run, and no session notices when one is lost.

Each replica is polled at /statusz every POLL_S. A replica that refuses the connection counts as
gone at once; a silent one gets no new clients and is gone after GONE_S. Bounds: one request per
replica at a time, NUM_ASKED in all, MAX_BYTES of an answer.
"""

from __future__ import annotations

import hashlib
import http.client
import time
import urllib.request
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import msgspec
from anyio.abc import TaskGroup
from websockets.http11 import Response

from streamer.core.link.wire import PATH as VERIFY
from streamer.extras.fleet.tickets import sign
from streamer.net.realtime.server import PATH as REALTIME
from streamer.net.service.admission import Admission, HttpRefusal, busy
from streamer.net.service.metrics import ServiceMetrics, notices
from streamer.net.service.service import ClientSocket, Service, answer, answer_json

SERVER = "server"
VERIFIER = "verifier"
PATHS = {REALTIME: SERVER, VERIFY: VERIFIER}
ASK = "/v1/replica"
LIST = "/v1/replicas"
TARGETS = "/v1/targets"
RETRY_AFTER_S = 1  # places come and go within seconds
POLL_S = 0.25
SILENCE_S = 1.0
GONE_S = 3.0
NUM_ASKED = 32
MAX_BYTES = 1 << 20
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # not the environment's


class ReplicaStatus(msgspec.Struct, frozen=True):
    """One process at one moment, as its /statusz says. pid: on its own machine. taken: of `limit`
    places. lag_s: seconds of audio taken and not yet heard, of the slowest session."""

    name: str
    kind: str
    pid: int
    is_draining: bool
    taken: int
    limit: int
    lag_s: float


@dataclass
class Known:
    """A replica at an address.

    status: the last one; sent: clients sent there since. silent_since: None while it answers.
    is_gone: it refuses connections, or is silent for too long. is_leaving: about to be drained.
    """

    address: str  # ws://HOST:PORT; empty while it starts
    status: ReplicaStatus | None = None
    silent_since: float | None = None
    is_gone: bool = False
    is_leaving: bool = False
    is_asked: bool = False
    sent: int = 0

    @property
    def answers(self) -> bool:
        return self.status is not None and self.silent_since is None

    @property
    def staying(self) -> ReplicaStatus | None:
        """The last status, if it may get new clients."""
        status = self.status if self.answers and not self.is_leaving else None
        return None if status is None or status.is_draining else status

    def num_free(self, kind: str) -> int:
        """Free places for clients of `kind` by the last status; 0 if it gets no new ones."""
        status = self.staying
        return max(0, status.limit - status.taken) if status and status.kind == kind else 0


def choose(replicas: Iterable[Known], kind: str, edge: str = "") -> Known | None:
    """The replica for a new client of `kind`; None if all are full.

    A client of a server goes where most places are free. An edge returns to the verifier that it
    had: the highest hash of both names wins (rendezvous hashing), so all directors agree.
    """
    there = [replica for replica in replicas if replica.num_free(kind)]

    def weight(replica: Known) -> Any:
        if edge and replica.status:
            return hashlib.blake2b(f"{edge} {replica.status.name}".encode()).digest()
        return replica.num_free(kind) - replica.sent, replica.address

    return max(there, key=weight, default=None)


async def _ask(known: Known, limiter: anyio.CapacityLimiter) -> None:
    to_thread = partial(anyio.to_thread.run_sync, limiter=limiter, abandon_on_cancel=True)
    try:
        known.status = await to_thread(_fetch, known.address)
        known.silent_since, known.sent, known.is_gone = None, 0, False
    except (OSError, http.client.HTTPException, ValueError, msgspec.MsgspecError) as error:
        cause = getattr(error, "reason", error)  # urllib wraps it
        now, was_gone = time.monotonic(), known.is_gone
        known.silent_since = known.silent_since or now
        is_refused = isinstance(cause, ConnectionRefusedError)  # nothing listens there
        known.is_gone = is_refused or now - known.silent_since > GONE_S
        if known.is_gone and not was_gone:
            told = "%s does not answer as a replica (%.120s)"
            notices.warning(told, known.address, cause)
    finally:
        known.is_asked = False


def _fetch(address: str) -> ReplicaStatus:
    with _opener.open(f"{address.replace('ws', 'http', 1)}/statusz", timeout=SILENCE_S) as answer:
        return msgspec.json.decode(answer.read(MAX_BYTES), type=ReplicaStatus)


class Director(Service):
    """`run` it. replicas: by any name. beside: a call that runs with it and changes them."""

    max_message_bytes = 1  # it opens no websocket
    kind = "director"
    ping_interval_s = None
    lag_s = 0.0

    def __init__(
        self,
        replicas: Mapping[str, Known],
        api_key: str | None,
        beside: Callable[[], Coroutine[Any, Any, None]] = anyio.sleep_forever,
    ) -> None:
        super().__init__(Admission((*PATHS, ASK), 0, api_key), ServiceMetrics())
        self._replicas = replicas
        self._beside = beside

        def free(kind: str) -> list[int]:
            mine = (k for k in self.answering if k.status and k.status.kind == kind)
            return [known.num_free(kind) for known in mine]

        num = {kind: lambda kind=kind: len(free(kind)) for kind in PATHS.values()}
        places = {kind: lambda kind=kind: sum(free(kind)) for kind in PATHS.values()}
        self.metrics.watch_each("fleet_replicas", "Replicas that answer", "kind", num)
        self.metrics.watch_each("fleet_places_free", "Places of these", "kind", places)

    @property
    def answering(self) -> list[Known]:
        """Replicas that answered the last poll."""
        return [known for known in self._replicas.values() if known.answers]

    def start(self, group: TaskGroup) -> None:
        group.start_soon(self._beside)
        group.start_soon(self._poll)

    async def _poll(self) -> None:
        """Ask all replicas, again and again. A slow one delays no other."""
        limiter = anyio.CapacityLimiter(NUM_ASKED)
        async with anyio.create_task_group() as group:
            while True:
                for known in self._replicas.values():
                    if known.address and not known.is_asked:
                        known.is_asked = True
                        group.start_soon(_ask, known, limiter)
                await anyio.sleep(POLL_S)

    async def serve(self, socket: ClientSocket) -> None:
        raise AssertionError("a director opens no websocket")

    async def drain(self, within_s: float) -> None:
        """It has no session."""

    def check(self, socket: ClientSocket) -> Response:
        """A redirect; for ASK the address as JSON. Raises HttpRefusal."""
        url, tenant = socket.url, socket.tenant
        kind = PATHS.get(url.path, SERVER)
        replica = self._replica_for(kind, socket.query)
        # the client's own query, without an old ticket, which would be read first
        query = [part for part in url.query.split("&") if part and not part.startswith("ticket=")]
        if tenant and replica.status:
            query.append(f"ticket={sign(tenant, replica.status.name, time.time())}")
        path = REALTIME if kind == SERVER else VERIFY
        to = f"{replica.address}{path}" + (f"?{'&'.join(query)}" if query else "")
        if url.path == ASK:
            return answer_json({"url": to})
        return answer(307, f"{to}\n", more={"Location": to})

    def _replica_for(self, kind: str, query: Mapping[str, Sequence[str]]) -> Known:
        if "resume" in query:  # where the session is, even if that is full or leaving
            name = query["resume"][0].removeprefix("sess_").rpartition("_")[0]
            known = self._replicas.values()
            found = next((k for k in known if k.status and k.status.name == name), None)
            if found is None or found.is_gone:
                raise HttpRefusal(404, "the replica of this session is gone; connect anew")
            if not found.answers:
                raise busy("the replica of this session does not answer now", RETRY_AFTER_S)
            return found
        chosen = choose(self.answering, kind, query.get("edge", [""])[0])
        if chosen is None:
            raise busy(f"every {kind} is full, or none is there; try again later", RETRY_AFTER_S)
        chosen.sent += 1
        return chosen

    def _plain(self, path: str) -> Response | None:
        known, answering = self._replicas.values(), self.answering
        if path == "/readyz" and not answering:
            return answer(503, "no replica answers\n")
        if path == LIST:  # for people
            names = ("address", "is_leaving", "answers", "status")
            there = [each for each in known if each.address]
            return answer_json([{name: getattr(k, name) for name in names} for k in there])
        if path == TARGETS:  # for Prometheus, with replicas that are gone for now
            return answer_json([_target(k.address, k.status) for k in known if k.status])
        if path == "/" and (page := choose(answering, SERVER)) is not None:
            where = f"{page.address.replace('ws', 'http', 1)}/"
            return answer(307, f"{where}\n", more={"Location": where})
        return super()._plain(path)


def _target(address: str, status: ReplicaStatus) -> dict[str, object]:
    labels = {"kind": status.kind, "replica": status.name.partition(".")[0]}
    return {"targets": [urlsplit(address).netloc], "labels": labels}
