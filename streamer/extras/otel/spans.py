"""A span for each turn: from its first sample to its description, with levels and certainties.

The sentence is left out, as it is from logs.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Status, StatusCode, Tracer

import streamer
from streamer import Description, LiveSession, TextDelta, TurnCommitted, TurnFailed
from streamer.core.readings import readings_of
from streamer.net.service.logs import Notices

Opened = Callable[[Any], AbstractAsyncContextManager[Any]]
MAX_OPEN = 32  # turns that wait for their description; the oldest span ends without one
TOLD = (
    *("stop_reason", "mode", "language", "audio_s", "ttft_ms", "total_ms", "n_tokens"),
    *("cloud_calls", "verified_share"),
)


def tracing(opened: Opened, provider: TracerProvider | None = None) -> Opened:
    """The same sessions, whose turns become spans. opened: such as `Describer.stream`. provider:
    None sends them as OTEL_EXPORTER_OTLP_ENDPOINT and its kin say."""
    provider = provider or _sending()

    @asynccontextmanager
    async def traced_session(options: Any) -> AsyncIterator[Traced]:
        async with opened(options) as session:
            found = traced(session, provider)
            try:
                yield found
            finally:
                found.end_spans()

    return traced_session


def traced(session: LiveSession, provider: TracerProvider) -> Traced:
    """One session, whose turns become spans of `provider` as its events are read."""
    return Traced(session, provider.get_tracer("streamer", streamer.__version__))


def _sending() -> TracerProvider:
    """Sends spans by OTLP over HTTP; at most 2,048 wait, then new ones are dropped."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    for name in ("opentelemetry.exporter", "opentelemetry.sdk"):  # several lines for each try
        logging.getLogger(name).addHandler(logging.NullHandler())
        logging.getLogger(name).propagate = False
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(telling(OTLPSpanExporter(), Notices())))
    return provider


def telling(exporter: SpanExporter, notices: Notices) -> SpanExporter:
    """The exporter, which now tells the operator in one line that the collector went away, or is
    there again."""
    export = exporter.export

    def told(spans: Sequence[ReadableSpan]) -> SpanExportResult:
        found = export(spans)
        is_there = found is SpanExportResult.SUCCESS
        gone = "the collector takes no spans; they are lost until it does"
        notices.state(is_there, "the collector takes spans again" if is_there else gone)
        return found

    exporter.export = told
    return exporter


class Traced:
    """A session whose events are seen as they are read; all else is the session's own."""

    def __init__(self, session: LiveSession, tracer: Tracer) -> None:
        self._session = session
        self._tracer = tracer
        self._open: dict[int, Any] = {}  # spans of turns that wait for their description

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def events(self) -> AsyncIterator[Any]:
        return self._seen(self._session.events())

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._seen(self._session)

    async def _seen(self, events: AsyncIterable[Any]) -> AsyncIterator[Any]:
        async for event in events:
            self._see(event)
            yield event

    def _see(self, event: Any) -> None:
        match event:
            case TurnCommitted(turn, audio_s):
                began = time.time_ns() - int(1e9 * audio_s)
                self._open[turn] = self._tracer.start_span("streamer.turn", start_time=began)
                self._open[turn].set_attribute("streamer.turn", turn)
                if len(self._open) > MAX_OPEN:
                    self._end(next(iter(self._open)))
            case TextDelta(turn=turn) if turn in self._open and not self._open[turn].events:
                self._open[turn].add_event("first text")
            case Description() if event.turn in self._open:
                self._open[event.turn].set_attributes(attributes_of(event))
                self._end(event.turn)
            case TurnFailed() if event.turn in self._open:
                self._open[event.turn].set_status(Status(StatusCode.ERROR, event.message))
                self._end(event.turn)

    def end_spans(self) -> None:
        """End the spans of turns without a description."""
        for turn in list(self._open):
            self._end(turn)

    def _end(self, turn: int) -> None:
        self._open.pop(turn).end()


def attributes_of(found: Description) -> dict[str, Any]:
    """`streamer.NAME` of the numbers, `streamer.ATTRIBUTE.{level,name,confidence,value}` of the
    attributes; those that are unknown are left out."""
    told = {f"streamer.{name}": getattr(found, name) for name in TOLD}
    for row in readings_of(found):
        place = f"streamer.{row.attribute}"
        told |= {f"{place}.level": row.level, f"{place}.name": row.name}
        told |= {f"{place}.confidence": row.chance, f"{place}.value": row.value}
    return {name: value for name, value in told.items() if value is not None}
