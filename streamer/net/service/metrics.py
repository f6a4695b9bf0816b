"""What a running service tells Prometheus, in seconds and bytes. In: events of its sessions. Out:
the text of /metrics."""

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
STATUSES = ("400", "401", "403", "404", "503")
REFUSALS = ("epoch", "number", "prefix", "stale")  # of a request (core/decoding/verdict.py)


class Watched(Protocol):
    """A session, as far as it is measured."""

    @property
    def backlog(self) -> Mapping[str, int]: ...


class Sessions(Protocol):
    """All sessions of a server."""

    @property
    def talks(self) -> Sequence[Watched]: ...

    @property
    def num_held(self) -> int: ...


class Linked(Protocol):
    """The link to a verifier elsewhere (net/link/edge.py), as far as it is measured."""

    @property
    def num_links(self) -> int: ...

    @property
    def is_linked(self) -> bool: ...

    @property
    def rtt_s(self) -> float | None: ...

    @property
    def is_up(self) -> bool: ...

    @property
    def num_in_flight(self) -> int: ...


class ServiceMetrics:
    """What every service counts. `watch` a gauge by a function; the rest is counted as it
    happens."""

    def __init__(self) -> None:
        self._registry = r = CollectorRegistry()
        ProcessCollector(registry=r)
        self.loop_lag = Histogram(
            "streamer_loop_lag_seconds", "Event loop's delay", buckets=SECONDS, registry=r
        )
        self.refusals = Counter("streamer_refusals", "Connections refused", ["status"], registry=r)
        _begin(self.refusals, STATUSES)
        self.resumed = Counter(
            "streamer_resumed", "Sessions that their client came back to", registry=r
        )
        self.failed = Counter(
            "streamer_sessions_failed", "Sessions that an internal error ended", registry=r
        )

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
    """Of `streamer verifier`."""

    def __init__(self) -> None:
        super().__init__()
        r = self._registry
        self.refused = Counter(
            "streamer_requests_refused", "Requests not applied", ["reason"], registry=r
        )
        _begin(self.refused, REFUSALS)
        self.verdicts = Counter("streamer_verdicts", "Requests answered", registry=r)
        self.judging = Counter(
            "streamer_judging_seconds", "From a request's turn to its reply, summed", registry=r
        )
        self.uploaded = Counter("streamer_uploaded_ids", "Draft ids judged", registry=r)
        self.accepted = Counter("streamer_accepted_ids", "Of them, accepted", registry=r)

    def verdict(self, request: VerifyRequest, verdict: Verdict) -> None:
        self.verdicts.inc()
        self.uploaded.inc(len(request.draft))
        self.accepted.inc(verdict.n_accepted)


class Metrics(ServiceMetrics):
    """Of `streamer serve`. `notices` are told of turns that went unverified; all are counted."""

    def __init__(self, notices: Notices | None = None) -> None:
        super().__init__()
        r = self._registry
        self._notices = notices or Notices()
        self.ttft = Histogram(
            "streamer_ttft_seconds",
            "First text after a turn's last sample",
            buckets=SECONDS,
            registry=r,
        )
        self.itl = Histogram(
            "streamer_itl_seconds", "Between two deltas of one answer", buckets=SECONDS, registry=r
        )
        self.turns = Counter(
            "streamer_turns", "Turns by how they ended", ["stop_reason"], registry=r
        )
        _begin(self.turns, STOP_REASONS)
        self.uploaded = Counter("streamer_uploaded_ids", "Draft ids given to the cloud", registry=r)
        self.accepted = Counter("streamer_accepted_ids", "Of them, accepted", registry=r)
        self.unverified = Counter(
            "streamer_turns_unverified",
            "Turns with blocks that were to be verified and were not",
            registry=r,
        )
        self.cloud_calls = Counter("streamer_cloud_calls", "Requests to the cloud", registry=r)
        self.failures = Counter(
            "streamer_turns_failed", "Turns that ended without a description", registry=r
        )
        self.slow_readers = Counter(
            "streamer_slow_readers", "Connections cut off: nothing was read", registry=r
        )
        self.drops = Counter(
            "streamer_drops", "Connections that ended without a goodbye", registry=r
        )
        self._sessions: Sessions | None = None
        self._last_ms: dict[int, float] = {}  # per session, of its latest delta

    @property
    def lag_s(self) -> float:
        """Seconds of audio taken and not yet heard, of the slowest session."""
        talks = self._sessions.talks if self._sessions is not None else ()
        return max((talk.backlog.get("audio_ms", 0) for talk in talks), default=0) / 1000

    def watch_sessions(self, sessions: Sessions) -> None:
        """Gauges of what is open and of what waits in it."""

        def depth(queue: str) -> Callable[[], float]:
            return lambda: sum(talk.backlog.get(queue, 0) for talk in sessions.talks)

        self._sessions = sessions
        self.watch(
            "streamer_sessions",
            "Sessions with a client",
            lambda: len(sessions.talks) - sessions.num_held,
        )
        self.watch(
            "streamer_sessions_held",
            "Sessions that wait for their client",
            lambda: sessions.num_held,
        )
        self.watch(
            "streamer_audio_lag_seconds",
            "Audio taken and not yet heard, of the slowest session",
            lambda: self.lag_s,
        )
        depths = Gauge(
            "streamer_queue_depth",
            "What waits, over all sessions",
            ["queue"],
            registry=self._registry,
        )
        for queue in QUEUES:
            depths.labels(queue).set_function(depth(queue))

    def watch_link(self, link: Linked) -> None:
        """Gauges of the link, where the cloud is elsewhere. No round trip measured yet is NaN."""
        self.watch("streamer_link_up", "1: connected to the verifier", lambda: link.is_linked)
        self.watch(
            "streamer_link_breaker_open", "1: the verifier is not asked now", lambda: not link.is_up
        )
        self.watch(
            "streamer_link_rtt_seconds",
            "Round trip of the latest ping",
            lambda: link.rtt_s or math.nan,
        )
        self.watch(
            "streamer_link_blocks_in_flight",
            "Blocks asked about, not answered",
            lambda: link.num_in_flight,
        )
        self.watch(
            "streamer_link_reconnects", "Links after the first", lambda: max(0, link.num_links - 1)
        )

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


def _begin(counter: Counter, labels: Iterable[str]) -> None:
    """Series that are there, as 0, before anything has happened: so the first event is a rise."""
    for label in labels:
        counter.labels(label)
