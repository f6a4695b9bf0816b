"""Counts what happens in a service, and writes it for Prometheus, in seconds and bytes."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    generate_latest,
)

from streamer.core.decoding.verdict import Verdict, VerifyRequest
from streamer.core.description import Description, TextDelta
from streamer.core.rules.stop import STOP_REASONS
from streamer.net.service.notices import Notices
from streamer.stages.events import Event, TurnFailed

QUEUES = ("pieces", "turns", "events", "unread")
SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
STATUSES = ("400", "401", "403", "404", "405", "503")
AUDIO_LAG = "Audio taken and not yet heard, of the slowest session"
REFUSALS = ("epoch", "number", "prefix", "stale")  # reasons, see core/decoding/verdict.py


class Watched(Protocol):
    """A session, as far as it is measured."""

    @property
    def backlog(self) -> Mapping[str, int]: ...


class Sessions(Protocol):
    """All sessions of a server."""

    @property
    def sessions(self) -> Sequence[Watched]: ...

    @property
    def num_held(self) -> int: ...


class Linked(Protocol):
    """The link to a verifier elsewhere (net/link/client.py), as far as it is measured."""

    @property
    def num_cuts(self) -> int: ...

    @property
    def is_linked(self) -> bool: ...

    @property
    def rtt_s(self) -> float | None: ...

    @property
    def is_up(self) -> bool: ...

    @property
    def num_in_flight(self) -> int: ...


class ServiceMetrics:
    """The metrics of every service. `watch` reads a gauge by a function; counters are public."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self.loop_lag = self._seconds("streamer_loop_lag_seconds", "Event loop's delay")
        self.refusals = self._counter(
            "streamer_refusals", "Connections refused", "status", STATUSES
        )
        self.resumed = self._counter("streamer_resumed", "Sessions that their client came back to")
        self.failed = self._counter(
            "streamer_sessions_failed", "Sessions that an internal error ended"
        )

    def _seconds(self, name: str, what: str) -> Histogram:
        return Histogram(name, what, buckets=SECONDS, registry=self._registry)

    def _counter(
        self, name: str, what: str, label: str = "", values: Iterable[str] = ()
    ) -> Counter:
        """values: of the label. Their series begin as 0, so that a first event is a rise."""
        found = Counter(name, what, [label] if label else [], registry=self._registry)
        for value in values:
            found.labels(value)
        return found

    def build(self, version: str) -> None:
        """Tell which version runs."""
        info = Info("streamer_build", "What runs", registry=self._registry)
        info.info({"version": version, "python": platform.python_version()})

    def watch(self, name: str, what: str, read: Callable[[], float]) -> None:
        """A gauge whose value is `read()` when it is asked for."""
        Gauge(name, what, registry=self._registry).set_function(read)

    def text(self) -> bytes:
        return generate_latest(self._registry)


class VerifierMetrics(ServiceMetrics):
    """The metrics of `streamer verifier`."""

    def __init__(self) -> None:
        super().__init__()
        self.refused = self._counter(
            "streamer_requests_refused", "Requests not applied", "reason", REFUSALS
        )
        self.verdicts = self._counter("streamer_verdicts", "Requests answered")
        self.judging = self._counter(
            "streamer_judging_seconds", "From a request's turn to its reply, summed"
        )
        self.uploaded = self._counter("streamer_uploaded_ids", "Draft ids judged")
        self.accepted = self._counter("streamer_accepted_ids", "Of them, accepted")

    def verdict(self, request: VerifyRequest, verdict: Verdict) -> None:
        self.verdicts.inc()
        self.uploaded.inc(len(request.draft))
        self.accepted.inc(verdict.n_accepted)


class Metrics(ServiceMetrics):
    """The metrics of `streamer serve`. Unverified turns also become notices."""

    def __init__(self) -> None:
        super().__init__()
        self._notices = Notices()
        self.ttft = self._seconds("streamer_ttft_seconds", "First text after a turn's last sample")
        self.itl = self._seconds("streamer_itl_seconds", "Between two deltas of one answer")
        self.turns = self._counter(
            "streamer_turns", "Turns by how they ended", "stop_reason", STOP_REASONS
        )
        self.uploaded = self._counter("streamer_uploaded_ids", "Draft ids given to the cloud")
        self.accepted = self._counter("streamer_accepted_ids", "Of them, accepted")
        self.unverified = self._counter(
            "streamer_turns_unverified", "Turns with blocks that were to be verified and were not"
        )
        self.cloud_calls = self._counter("streamer_cloud_calls", "Requests to the cloud")
        self.failures = self._counter(
            "streamer_turns_failed", "Turns that ended without a description"
        )
        self.slow_readers = self._counter(
            "streamer_slow_readers", "Connections cut off: nothing was read"
        )
        self.drops = self._counter("streamer_drops", "Connections that ended without a goodbye")
        self._sessions: Sessions | None = None
        self._last_ms: dict[int, float] = {}  # per session, of its latest delta

    @property
    def lag_s(self) -> float:
        """Seconds of audio taken and not yet heard, of the slowest session."""
        found = self._sessions.sessions if self._sessions is not None else ()
        return max((one.backlog.get("audio_ms", 0) for one in found), default=0) / 1000

    def watch_sessions(self, sessions: Sessions) -> None:
        """Gauges of the open sessions, and of everything that waits in them."""

        def depth(queue: str) -> Callable[[], float]:
            return lambda: sum(one.backlog.get(queue, 0) for one in sessions.sessions)

        self._sessions = sessions
        for name, what, read in (
            (
                "sessions",
                "Sessions with a client",
                lambda: len(sessions.sessions) - sessions.num_held,
            ),
            ("sessions_held", "Sessions that wait for their client", lambda: sessions.num_held),
            ("audio_lag_seconds", AUDIO_LAG, lambda: self.lag_s),
        ):
            self.watch(f"streamer_{name}", what, read)
        waiting = "What waits, over all sessions"
        depths = Gauge("streamer_queue_depth", waiting, ["queue"], registry=self._registry)
        for queue in QUEUES:
            depths.labels(queue).set_function(depth(queue))

    def watch_link(self, link: Linked) -> None:
        """Gauges of the link to a verifier. A round trip that is not measured yet is NaN."""
        for name, what, read in (
            ("up", "1: connected to the verifier", lambda: link.is_linked),
            ("breaker_open", "1: the verifier is not asked now", lambda: not link.is_up),
            ("rtt_seconds", "Round trip of the latest ping", lambda: link.rtt_s or math.nan),
            ("blocks_in_flight", "Blocks asked about, not answered", lambda: link.num_in_flight),
            ("reconnects", "Connections that were lost", lambda: link.num_cuts),
        ):
            self.watch(f"streamer_link_{name}", what, read)

    def heard(self, session: int, event: Event) -> None:
        """Count one event of `session`."""
        match event:
            case TextDelta():
                last_ms = self._last_ms.get(session)
                histogram = self.ttft if last_ms is None else self.itl
                histogram.observe((event.at_ms - (last_ms or 0.0)) / 1000)
                self._last_ms[session] = event.at_ms
            case Description():
                self._last_ms.pop(session, None)
                self.turns.labels(event.stop_reason).inc()
                self.uploaded.inc(event.n_uploaded)
                self.accepted.inc(event.n_accepted)
                self.cloud_calls.inc(event.cloud_calls)
                if event.blocks_unverified:
                    self.unverified.inc()
                    self._notices.event(event.warning or "blocks went unverified")
            case TurnFailed():
                self._last_ms.pop(session, None)
                self.failures.inc()

    def forget(self, session: int) -> None:
        """The session has ended."""
        self._last_ms.pop(session, None)
