"""OpenTelemetry: a span for each run, and metrics of runs.

The span is named `run TYPE` and begins a trace. It is current while the handler runs, so spans that
are made by what the handler calls are its children. Coroutines inherit it with the context of their
task. A child process is sent it as W3C trace context, and there sends its spans by itself.

Where a program has set up OpenTelemetry, that is used. Else the SDK is set up from the standard
environment: OTEL_TRACES_EXPORTER and OTEL_METRICS_EXPORTER (`otlp`, which is OTLP over HTTP,
`console` or `none`), OTEL_EXPORTER_OTLP_*, OTEL_TRACES_SAMPLER, OTEL_RESOURCE_ATTRIBUTES, and
OTEL_SERVICE_NAME, which is `blackboard` unless it is given.

What `${NAME}` in params stands for is masked in all spans that this SDK sends, in those of handlers
too. Nothing waits for a collector but the end of a worker, and of a child process, for a short
while. Not promised: the last spans of a child process that is killed.
"""

import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from typing import Any, Final, TypeVar

from blackboard import __version__
from blackboard.clock import Clock
from blackboard.errors import BadInput
from blackboard.handlers.handler import Source
from blackboard.model import Ended, Outcome, replace
from blackboard.phrases import first_line
from blackboard.runners.runner import Execution, HandlerCall, Reporter, Runner
from blackboard.runners.secrets import MOST_MASKED, NOTHING, Mask

try:
    from opentelemetry import context, metrics, trace
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import (
        ConsoleMetricExporter,
        MetricExporter,
        PeriodicExportingMetricReader,
    )
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import Event, ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import (
        BatchSpanProcessor,
        ConsoleSpanExporter,
        SpanExporter,
        SpanExportResult,
    )
    from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
    from opentelemetry.util.types import Attributes
except ImportError as problem:
    raise BadInput(
        "otel", "OpenTelemetry is not installed", "pip install 'blackboard-scheduler[otel]'"
    ) from problem
except ValueError as problem:  # it reads the environment as it is imported
    raise BadInput("otel", str(problem)) from problem

Exporter = TypeVar("Exporter")

SERVICE: Final = "blackboard"
DURATIONS: Final = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600, 14400)
"""Buckets, in seconds."""
LAST_EXPORT: Final = 2.0
"""Seconds that the end of a process waits for the collector, at the most."""
LOOK: Final = 0.05
"""Seconds between two looks whether the collector has answered."""
PROTOCOLS: Final = ("", "http/protobuf")
_GOOD: Final = {Outcome.OK, Outcome.CANCELLED}
_PROPAGATOR: Final = TraceContextTextMapPropagator()
_mask = NOTHING
"""The mask of all runs so far."""
_EXPORTING: Final = threading.Lock()


# ---- the SDK

_SPAN_EXPORTERS: Mapping[str, Callable[[], SpanExporter]] = {
    "otlp": OTLPSpanExporter,
    "console": ConsoleSpanExporter,
}
_METRIC_EXPORTERS: Mapping[str, Callable[[], MetricExporter]] = {
    "otlp": OTLPMetricExporter,
    "console": ConsoleMetricExporter,
}


def set_up(*, measures: bool = True) -> None:
    """Sets the SDK up for traces and, if it `measures`, metrics, unless the program has set up
    traces. Raises BadInput for what the environment says and cannot be.
    """
    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return
    try:
        spans = _exporter(os.environ, "TRACES", _SPAN_EXPORTERS)
        figures = _exporter(os.environ, "METRICS", _METRIC_EXPORTERS) if measures else None
        resource = Resource.create()
        if str(resource.attributes[SERVICE_NAME]).startswith("unknown_service"):
            resource = resource.merge(Resource({SERVICE_NAME: SERVICE}))
        tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
        if spans is not None:
            tracers.add_span_processor(BatchSpanProcessor(_MaskingExporter(spans)))
        trace.set_tracer_provider(tracers)
        if figures is not None:
            readers = [PeriodicExportingMetricReader(figures)]
            metrics.set_meter_provider(
                MeterProvider(metric_readers=readers, resource=resource, shutdown_on_exit=False)
            )
    except ValueError as problem:
        raise BadInput("otel", str(problem)) from problem


def check(environ: Mapping[str, str] = os.environ) -> None:
    """Raises BadInput where the SDK could not be set up."""
    _exporter(environ, "TRACES", _SPAN_EXPORTERS)
    _exporter(environ, "METRICS", _METRIC_EXPORTERS)


def _exporter(
    environ: Mapping[str, str], signal: str, kinds: Mapping[str, Callable[[], Exporter]]
) -> Exporter | None:
    """The exporter of a signal, as the environment says; None for `none`. Raises BadInput."""
    name = f"OTEL_{signal}_EXPORTER"
    chosen = environ.get(name) or "otlp"
    if chosen == "none":
        return None
    if chosen not in kinds:
        raise BadInput(name, f"there is no {chosen!r}", f"one of {', '.join(kinds)}, none")
    names = (f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    variable = next(filter(environ.get, names), "")  # that of the signal counts
    if chosen == "otlp" and environ.get(variable, "") not in PROTOCOLS:
        raise BadInput(variable, f"{environ[variable]!r} is not spoken here", "http/protobuf")
    return kinds[chosen]()


def last_export() -> threading.Thread:
    """Starts a thread that sends what is unsent, unless another one is doing so. No caller has to
    wait for it: it does not keep the process from ending.
    """

    def export() -> None:
        if not _EXPORTING.acquire(blocking=False):
            return
        with suppress(Exception):  # the exporter has logged it
            for provider in (trace.get_tracer_provider(), metrics.get_meter_provider()):
                flush = getattr(provider, "force_flush", None)
                if flush is not None:
                    flush()
        _EXPORTING.release()

    thread = threading.Thread(target=export, name="last export", daemon=True)
    thread.start()
    return thread


class _MaskingExporter(SpanExporter):
    """Masks secrets in what `inner` sends."""

    def __init__(self, inner: SpanExporter) -> None:
        self._inner = inner

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        mask = _mask
        return self._inner.export(
            spans if mask is NOTHING else [_masked(span, mask) for span in spans]
        )

    def shutdown(self) -> None:
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._inner.force_flush(timeout_millis)


def _mask_too(mask: Mask) -> None:
    global _mask  # noqa: PLW0603 - the exporter is the process's
    _mask = _mask.joined(mask.values)


def _masked(span: ReadableSpan, mask: Mask) -> ReadableSpan:
    status = span.status
    if status.description:
        status = Status(status.status_code, mask.short(status.description))
    return ReadableSpan(
        name=mask.short(span.name),
        context=span.context,
        parent=span.parent,
        resource=span.resource,
        attributes=_masked_values(span.attributes, mask),
        events=[
            Event(mask.short(event.name), _masked_values(event.attributes, mask), event.timestamp)
            for event in span.events
        ],
        links=[Link(link.context, _masked_values(link.attributes, mask)) for link in span.links],
        kind=span.kind,
        status=status,
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )


def _masked_values(attributes: Attributes, mask: Mask) -> Attributes:
    """Attributes with their texts masked, those in sequences too."""

    def masked(value: Any) -> Any:
        if isinstance(value, str):
            return mask.short(value, MOST_MASKED)
        return [masked(inner) for inner in value] if isinstance(value, list | tuple) else value

    return {name: masked(value) for name, value in (attributes or {}).items()}


# ---- the runs of a worker


class TracingRunner:
    """Passes runs to `inner`, each with a span. `tracer` and `meter` are by default those of the
    program.
    """

    def __init__(
        self,
        inner: Runner,
        *,
        clock: Clock,
        tracer: trace.Tracer | None = None,
        meter: metrics.Meter | None = None,
    ) -> None:
        self._inner = inner
        self._clock = clock
        self._tracer = tracer or trace.get_tracer(SERVICE, __version__)
        meter = meter or metrics.get_meter(SERVICE, __version__)
        self._runs = meter.create_counter(
            "blackboard.runs", unit="{run}", description="Runs that have ended."
        )
        self._durations = meter.create_histogram(
            "blackboard.run.duration",
            unit="s",
            description="From the call of a handler to its end.",
            explicit_bucket_boundaries_advisory=DURATIONS,
        )

    def start(self, call: HandlerCall, report: Reporter, deadline: float) -> Execution:
        span = self._tracer.start_span(
            f"run {call.item.type}",
            context=context.Context(),  # whatever the worker runs in is not its parent
            kind=SpanKind.CONSUMER,
            attributes={
                "blackboard.item": call.item.id,
                "blackboard.type": call.item.type,
                "blackboard.fence": call.fence,
                "blackboard.attempt": call.attempt,
                "blackboard.due": call.due.isoformat(),
                "blackboard.worker": call.worker,
            },
        )
        _mask_too(call.mask)
        within = trace.set_span_in_context(span)
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier, within)
        begun = self._clock.monotonic()
        token = context.attach(within)
        try:
            execution = self._inner.start(replace(call, trace=carrier), report, deadline)
        finally:
            context.detach(token)
        execution.when_ended(partial(self._ended, span, call.item.type, begun))
        return execution

    def _ended(self, span: Span, item_type: str, begun: float, ended: Ended) -> None:
        outcome = ended.outcome
        span.set_attribute("blackboard.outcome", outcome.value)
        if outcome not in _GOOD:
            span.set_status(StatusCode.ERROR, first_line(ended.error))
        span.end()
        about = {"blackboard.type": item_type, "blackboard.outcome": outcome.value}
        self._runs.add(1, about)
        self._durations.record(self._clock.monotonic() - begun, about)

    async def can_start(self, source: Source) -> bool:
        return await self._inner.can_start(source)

    async def close(self) -> None:
        await self._inner.close()
        # Not in a thread of the loop: those of handlers may occupy them all.
        exporting, end = last_export(), self._clock.monotonic() + LAST_EXPORT
        while exporting.is_alive() and self._clock.monotonic() < end:
            await self._clock.sleep(LOOK)


# ---- in a child process


def within(carrier: Mapping[str, str], mask: Mask) -> AbstractContextManager[None]:
    """Makes a span of another process the current one inside. The SDK is set up for it at once, and
    reports nothing in the log of the run: the worker reports a collector that is away.
    """
    _mask_too(mask)
    logger = logging.getLogger("opentelemetry")
    if logger.propagate:
        logger.propagate = False
        logger.addHandler(logging.NullHandler())
    set_up(measures=False)
    return _attached(_PROPAGATOR.extract(carrier))


@contextmanager
def _attached(span: context.Context) -> Iterator[None]:
    token = context.attach(span)
    try:
        yield
    finally:
        context.detach(token)
