"""The operator's view of a service: metrics for Prometheus, in seconds and bytes, and log lines,
which are written once a handler is attached.
"""

from __future__ import annotations

import logging
import math
import platform
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TextIO

import prometheus_client as prometheus

from streamer.core.decoding.plan import Refusal, Verdict, VerifyRequest
from streamer.core.description import Description, TextDelta
from streamer.core.rules.settings import STOP_REASONS
from streamer.stages.events import Event, TurnFailed

SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
PREFIX = "streamer"  # of each name
EVERY_S = 10.0  # between two notices
notices = logging.getLogger("streamer.notice")  # for lines that come seldom
_logger = logging.getLogger("streamer")
_logger.addHandler(logging.NullHandler())


class ServiceMetrics:
    """The metrics of every service. `watch` adds a gauge; counters are public attributes."""

    def __init__(self) -> None:
        self._registry = registry = prometheus.CollectorRegistry()
        prometheus.ProcessCollector(registry=registry)
        self._gauge = partial(prometheus.Gauge, namespace=PREFIX, registry=registry)
        self._counter = count = partial(prometheus.Counter, namespace=PREFIX, registry=registry)
        self._seconds = partial(
            prometheus.Histogram, namespace=PREFIX, registry=registry, buckets=SECONDS
        )
        self.loop_lag = self._seconds("loop_lag_seconds", "Event loop's delay")
        self.refusals = count("refusals", "Connections refused", ["status"])
        # series begin at 0, so that a first event shows as a rise
        for status in ("400", "401", "403", "404", "405", "503"):
            self.refusals.labels(status)
        self.resumed = count("resumed", "Sessions that their client resumed")
        self.failed = count("sessions_failed", "Sessions that an internal error ended")

    def build(self, version: str) -> None:
        """Say which version runs."""
        info = prometheus.Info("build", "What runs", namespace=PREFIX, registry=self._registry)
        info.info({"version": version, "python": platform.python_version()})

    def watch(self, name: str, help: str, read: Callable[[], float]) -> None:
        """Add a gauge whose value is `read()` at each scrape."""
        self._gauge(name, help).set_function(read)

    def watch_each(
        self, name: str, help: str, label: str, reads: Mapping[str, Callable[[], float]]
    ) -> None:
        """Add a gauge with a series for each value of the label."""
        gauge = self._gauge(name, help, [label])
        for value, read in reads.items():
            gauge.labels(value).set_function(read)

    def text(self) -> bytes:
        return prometheus.generate_latest(self._registry)


class VerifierMetrics(ServiceMetrics):
    """The metrics of `streamer verifier`."""

    def __init__(self) -> None:
        super().__init__()
        count = self._counter
        self.verdicts = count("verdicts", "Requests answered")
        self.judging = count("judging_seconds", "From a request's turn to its reply, summed")
        self.uploaded = count("uploaded_ids", "Draft ids judged")
        self.accepted = count("accepted_ids", "Draft ids accepted")

    def replied(self, request: VerifyRequest, reply: Verdict | Refusal, seconds: float) -> None:
        """Count a reply. seconds: since the request's turn, or the reply before it."""
        self.judging.inc(seconds)
        if isinstance(reply, Verdict):
            self.verdicts.inc()
            self.uploaded.inc(len(request.draft))
            self.accepted.inc(reply.n_accepted)


class Metrics(ServiceMetrics):
    """The metrics of `streamer serve`."""

    def __init__(self) -> None:
        super().__init__()
        self.ttft = self._seconds("ttft_seconds", "First text after a turn's last sample")
        self.itl = self._seconds("itl_seconds", "Between two deltas of one answer")
        count = self._counter
        self.turns = count("turns", "Turns by how they ended", ["stop_reason"])
        for reason in STOP_REASONS:
            self.turns.labels(reason)
        self.uploaded = count("uploaded_ids", "Draft ids given to the cloud")
        self.accepted = count("accepted_ids", "Draft ids accepted")
        told = "Turns with blocks that were to be verified and were not"
        self.unverified = count("turns_unverified", told)
        self.cloud_calls = count("cloud_calls", "Requests to the cloud")
        self.failures = count("turns_failed", "Turns that ended without a description")
        self.slow_readers = count("slow_readers", "Connections cut off because nothing was read")
        self.drops = count("drops", "Connections that ended without a goodbye")

    def heard(self, event: Event, before: TextDelta | None) -> None:
        """Count one event of a session. before: its latest delta."""
        match event:
            case TextDelta() if before is not None and before.turn == event.turn:
                self.itl.observe((event.at_ms - before.at_ms) / 1000)
            case Description():
                self.turns.labels(event.stop_reason).inc()
                self.uploaded.inc(event.n_uploaded)
                self.accepted.inc(event.n_accepted)
                self.cloud_calls.inc(event.cloud_calls)
                if event.ttft_ms is not None:
                    self.ttft.observe(event.ttft_ms / 1000)
                if event.blocks_unverified:
                    self.unverified.inc()
            case TurnFailed():
                self.failures.inc()


class StateNotices:
    """Lines at WARNING about a state, at most one in EVERY_S. `state` is called again and again, so
    the last change is logged in the end."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._logged_at = -math.inf
        self._was_good = True  # as logged

    def state(self, is_good: bool, told: str) -> None:
        """The state may have changed. One that is good at the start is not logged."""
        now = self._clock()
        if is_good != self._was_good and now - self._logged_at >= EVERY_S:
            self._was_good, self._logged_at = is_good, now
            notices.warning(told)


def log_to(stream: TextIO) -> None:
    """Write notices and errors to `stream`, an error with its traceback."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("streamer: %(message)s"))
    _logger.addHandler(handler)
