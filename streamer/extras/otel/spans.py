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
from streamer import Description, TextDelta, TurnCommitted, TurnFailed
from streamer.core.attributes import readings_of
from streamer.net.service.metrics import StateNotices

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
    async def traced_session(options: Any) -> AsyncIterator[Any]:
        async with opened(options) as session:
            events = session.events
            session.events = lambda: traced(events(), provider)
            yield session

    return traced_session


async def traced(events: AsyncIterable[Any], provider: TracerProvider) -> AsyncIterator[Any]:
    """The events of a session, whose turns become spans of `provider` as they are read."""
    tracer = provider.get_tracer("streamer", streamer.__version__)
    spans: dict[int, Any] = {}  # of turns that wait for their description
    try:
        async for event in events:
            _see(event, spans, tracer)
            yield event
    finally:
        for span in spans.values():
            span.end()


def _see(event: Any, spans: dict[int, Any], tracer: Tracer) -> None:
    match event:
        case TurnCommitted(turn, audio_s):
            began = time.time_ns() - int(1e9 * audio_s)
            spans[turn] = tracer.start_span("streamer.turn", start_time=began)
            spans[turn].set_attribute("streamer.turn", turn)
            if len(spans) > MAX_OPEN:
                spans.pop(next(iter(spans))).end()
        case TextDelta(turn=turn) if turn in spans and not spans[turn].events:
            spans[turn].add_event("first text")
        case Description() | TurnFailed() if event.turn in spans:
            span = spans.pop(event.turn)
            if isinstance(event, Description):
                span.set_attributes(attributes_of(event))
            else:
                span.set_status(Status(StatusCode.ERROR, event.message))
            span.end()


def _sending() -> TracerProvider:
    """Sends spans by OTLP over HTTP; at most 2,048 wait, then new ones are dropped."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    for name in ("opentelemetry.exporter", "opentelemetry.sdk"):  # several lines for each try
        logging.getLogger(name).addHandler(logging.NullHandler())
        logging.getLogger(name).propagate = False
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(telling(OTLPSpanExporter(), StateNotices())))
    return provider


def telling(exporter: SpanExporter, notices: StateNotices) -> SpanExporter:
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


def attributes_of(found: Description) -> dict[str, Any]:
    """`streamer.NAME` of the numbers, `streamer.ATTRIBUTE.{level,name,confidence,value}` of the
    attributes; those that are unknown are left out."""
    told = {f"streamer.{name}": getattr(found, name) for name in TOLD}
    for row in readings_of(found):
        place = f"streamer.{row.attribute}"
        told |= {f"{place}.level": row.level, f"{place}.name": row.name}
        told |= {f"{place}.confidence": row.chance, f"{place}.value": row.value}
    return {name: value for name, value in told.items() if value is not None}
