"""Each run is a span, and what its handler calls makes spans below it: on the loop, and in a child
process.
"""

import asyncio
import math
import subprocess
import sys
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from blackboard.assembly import new_worker
from blackboard.board_worker import worker_settings
from blackboard.cli import called
from blackboard.clock import SystemClock
from blackboard.emitter import EventEmitter
from blackboard.errors import BadInput
from blackboard.handlers.handler import handler, handlers_of
from blackboard.handlers.registry import by_type
from blackboard.model import replace
from blackboard.phrases import LONGEST_ERROR
from blackboard.runners.inline import InlineRunner
from blackboard.runners.process import ProcessRunner
from blackboard.runners.secrets import Mask
from blackboard.runners.tracing import TracingRunner, _masked_values, check
from blackboard.settings import Settings
from tests.support.boards import Scene, story
from tests.support.processes import own_environ
from tests.support.receivers import Listener, listening
from tests.support.runs import PATIENCE, Told, call_of, run, with_processes

SPANS = InMemorySpanExporter()
PROVIDER = TracerProvider(shutdown_on_exit=False)
PROVIDER.add_span_processor(SimpleSpanProcessor(SPANS))
TRACER = PROVIDER.get_tracer("tests")


@handler("traced")
async def traced(item: Any, ctx: Any) -> None:
    with TRACER.start_as_current_span("read"):
        await asyncio.sleep(0)
        await asyncio.create_task(write())
    if item.params.get("fails"):
        raise ValueError("as the test has it\nat length")


async def write() -> None:
    with TRACER.start_as_current_span("write"):
        await asyncio.sleep(0)


TRACED = by_type(handlers_of(traced))


def traced_runs(*fails: bool) -> tuple[dict[str, ReadableSpan], list[Any]]:
    """The spans of runs, by name, and the points of their metrics."""
    SPANS.clear()
    reader = InMemoryMetricReader()
    meters = MeterProvider(metric_readers=[reader], shutdown_on_exit=False)

    async def story() -> None:
        runner = TracingRunner(
            InlineRunner(), clock=SystemClock(), tracer=TRACER, meter=meters.get_meter("tests")
        )
        with TRACER.start_as_current_span("of the program"):
            for one in fails:
                await run(runner, "traced", jobs=TRACED, fails=one)
        await runner.close()
        assert trace.get_current_span() is trace.INVALID_SPAN

    asyncio.run(story())
    data = reader.get_metrics_data()
    assert data is not None
    points = [
        point
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
        for point in metric.data.data_points
    ]
    return {one.name: one for one in SPANS.get_finished_spans()}, points


def test_spans_of_a_coroutine_are_below_its_run() -> None:
    spans, _ = traced_runs(False)
    whole, read, written = (spans[name] for name in ("run traced", "read", "write"))
    assert (whole.parent, whole.kind) == (None, SpanKind.CONSUMER)
    assert read.parent == whole.context
    assert written.parent == read.context
    assert whole.attributes == {
        "blackboard.item": "x",
        "blackboard.type": "traced",
        "blackboard.fence": 7,
        "blackboard.attempt": 2,
        "blackboard.due": "2026-03-01T04:05:06.789000+00:00",
        "blackboard.worker": "host:1:nonce",
        "blackboard.outcome": "ok",
    }
    assert whole.status.status_code is StatusCode.UNSET


def test_a_run_that_fails_has_the_first_line_of_its_error() -> None:
    spans, _ = traced_runs(True)
    status = spans["run traced"].status
    assert status.status_code is StatusCode.ERROR
    assert status.description == "ValueError: as the test has it"
    assert (spans["run traced"].attributes or {})["blackboard.outcome"] == "failed"


def test_runs_are_counted_by_type_and_outcome() -> None:
    _, points = traced_runs(True, False, False)
    counts = {
        (dict(one.attributes)["blackboard.outcome"], hasattr(one, "count")): getattr(
            one, "count", None
        )
        or one.value
        for one in points
    }
    assert counts == {("ok", False): 2, ("ok", True): 2, ("failed", False): 1, ("failed", True): 1}
    assert all(dict(one.attributes)["blackboard.type"] == "traced" for one in points)


@story
async def test_where_nothing_is_traced_nothing_is_wrapped(scene: Scene) -> None:
    declared = Settings()
    worker = new_worker(
        scene.board,
        handlers=TRACED,
        settings=worker_settings(declared),
        declared=declared,
        events=EventEmitter("me"),
        store="memory:",
    )
    calls = worker._worker.runs
    assert (type(calls.inline), type(calls.process)) == (InlineRunner, ProcessRunner)


def test_a_worker_ends_while_threads_of_handlers_stand() -> None:
    """They may hold all threads that the loop has."""
    over = threading.Event()

    async def story() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        standing = loop.run_in_executor(None, over.wait)
        runner = TracingRunner(InlineRunner(), clock=SystemClock(), tracer=TRACER)
        try:
            await asyncio.wait_for(runner.close(), PATIENCE)
            assert not standing.done()
        finally:
            over.set()
        await standing

    asyncio.run(story())


TRACE = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}


def test_a_traced_child_in_which_a_handler_left_something_behind_is_not_used_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What sends the spans is no leftover of a run: a thread, and one socket."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")

    async def story(runner: ProcessRunner) -> None:
        async def pid(type_: str, **params: Any) -> int:
            call = replace(call_of(type_, **params), trace=TRACE)
            ended = await asyncio.wait_for(runner.start(call, Told(), math.inf).wait(), PATIENCE)
            found: int = ended.result[0]
            return found

        first = await pid("tidy")
        assert await pid("tidy") == first
        assert await pid("leave-behind", what="a file") == first
        second = await pid("leave-behind", what="a thread")
        assert second != first
        leaking = await pid("leave-behind", what="a socket")
        assert leaking != second
        assert await pid("leave-behind", what="a socket") == leaking
        assert await pid("tidy") != leaking

    with_processes(story)


# ---- a worker and its child processes, with a collector

JOBS = """
from opentelemetry import trace
from blackboard import handler

TRACER = trace.get_tracer("jobs")


@handler("loop", every="1h")
async def loop(item, ctx):
    with TRACER.start_as_current_span(f"of {item.id}"):
        return 1


@handler("child", every="1h")
def child(item, ctx):
    token = item.params.get("token", "")
    here = trace.get_current_span().get_span_context()
    about = {"attributes": {"attempt": ctx.attempt}, "links": [trace.Link(here, {"url": token})]}
    with TRACER.start_as_current_span(f"of {item.id}", **about):
        if item.id == "fails":
            raise ValueError(f"no {token}")
"""
ITEMS = {("loop", "a"), ("child", "works"), ("child", "again"), ("child", "fails")}
SETTINGS = """
[board]
jobs = ["jobs.py"]

[worker]
otel = true
"""


def blackboard(folder: Path, *args: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "blackboard", *args],
        cwd=folder,
        env={**own_environ(), "CANARY": "canary/of+a=param", **environ},
        capture_output=True,
        text=True,
        check=False,
    )


def called_in(folder: Path, *args: str) -> None:
    """A command of this process, which neither works nor traces."""
    with chdir(folder):
        assert called(list(args)) == 0


def texts_of(attributes: Iterable[Any]) -> dict[str, str]:
    return {pair.key: pair.value.string_value for pair in attributes}


def received(collector: Listener) -> dict[tuple[str, str], Any]:
    """The spans that were sent, by name and item, and by the name of their service."""
    found = {}
    sent = [one.body for one in collector.asked if one.path == "/v1/traces"]
    requests = map(ExportTraceServiceRequest.FromString, sent)
    for group in [group for request in requests for group in request.resource_spans]:
        service = texts_of(group.resource.attributes)["service.name"]
        for span in [span for scope in group.scope_spans for span in scope.spans]:
            item = texts_of(span.attributes).get("blackboard.item", "")
            found[f"{span.name} {item}".strip(), service] = span
    return found


@pytest.mark.parametrize("service", ["", "town"])
def test_spans_of_a_child_process_are_below_their_run(tmp_path: Path, service: str) -> None:
    (tmp_path / "jobs.py").write_text(JOBS)
    (tmp_path / "blackboard.toml").write_text(SETTINGS)
    called_in(tmp_path, "init")
    called_in(tmp_path, "add", "a", "--type", "loop")
    called_in(tmp_path, "add", "works", "again", "--type", "child")
    called_in(tmp_path, "add", "fails", "--type", "child", "--set", "token=${CANARY}")
    with listening() as collector:
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.address, "OTEL_SERVICE_NAME": service}
        done = blackboard(tmp_path, "worker", "--until-idle", "--slots", "1", **environ)
        spans = received(collector)
        sent = [one for one in collector.asked if one.path == "/v1/metrics"]
    assert done.returncode == 0, done.stderr
    name = service or "blackboard"
    assert {service_of for _, service_of in spans} == {name}
    found = {title: span for (title, _), span in spans.items()}
    of_items = {f"run {item_type} {item}" for item_type, item in ITEMS}
    assert found.keys() == of_items | {f"of {item}" for _, item in ITEMS}
    for item_type, item in ITEMS:
        assert found[f"of {item}"].parent_span_id == found[f"run {item_type} {item}"].span_id
        assert found[f"of {item}"].trace_id == found[f"run {item_type} {item}"].trace_id
    assert found["run child fails"].status.message == "ValueError: no ${CANARY}"
    assert "no ${CANARY}" in str(found["of fails"].events)
    assert "${CANARY}" in str(found["of fails"].links)
    assert "canary" not in str(spans)
    [metrics] = [ExportMetricsServiceRequest.FromString(one.body) for one in sent[-1:]]
    assert "blackboard.run.duration" in str(metrics)


def test_a_collector_that_is_away_keeps_no_worker_from_its_work(tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text(JOBS)
    (tmp_path / "blackboard.toml").write_text(SETTINGS)
    called_in(tmp_path, "init")
    called_in(tmp_path, "add", "works", "--type", "child")
    away = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
    assert blackboard(tmp_path, "worker", "--until-idle", **away).returncode == 0
    shown = blackboard(tmp_path, "log", "works", "--output").stdout
    assert "ok" in shown
    assert "opentelemetry" not in shown


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        (
            {"OTEL_TRACES_EXPORTER": "zipkin"},
            "OTEL_TRACES_EXPORTER: there is no 'zipkin' (one of otlp, console, none)",
        ),
        (
            {"OTEL_METRICS_EXPORTER": "prometheus"},
            "OTEL_METRICS_EXPORTER: there is no 'prometheus'",
        ),
        (
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc' is not spoken here (http/protobuf)",
        ),
        (
            {"OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "http/json"},
            "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL: 'http/json' is not spoken",
        ),
    ],
)
def test_an_exporter_that_is_not_there_is_refused(environ: dict[str, str], words: str) -> None:
    with pytest.raises(BadInput) as refused:
        check(environ=environ)
    assert str(refused.value).startswith(words)


@pytest.mark.parametrize(
    ("name", "value"),
    [("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "-1"), ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "99999")],
)
def test_what_the_sdk_refuses_is_bad_input(tmp_path: Path, name: str, value: str) -> None:
    (tmp_path / "jobs.py").write_text(JOBS)
    (tmp_path / "blackboard.toml").write_text(SETTINGS)
    done = blackboard(tmp_path, "worker", "--once", "--init", **{name: value})
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("blackboard: otel: ")


def test_a_long_attribute_is_masked_and_stays_long() -> None:
    text = "x" * 2 * LONGEST_ERROR
    masked = _masked_values({"query": f"{text} secret-value"}, Mask({"TOKEN": "secret-value"}))
    assert masked == {"query": f"{text} ${{TOKEN}}"}


def test_none_is_an_exporter() -> None:
    check(environ={"OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "console"})


def test_a_protocol_counts_for_the_signals_that_have_no_other_and_are_sent() -> None:
    general = {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    own = {f"OTEL_EXPORTER_OTLP_{one}_PROTOCOL": "http/protobuf" for one in ("TRACES", "METRICS")}
    check(environ=general | own)
    check(environ=general | {"OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none"})


WITHOUT = """
import sys
sys.modules[{module!r}] = None
from blackboard.cli import called
sys.exit(called({args!r}))
"""


@pytest.mark.parametrize(
    ("module", "args", "words"),
    [
        ("opentelemetry", [], "otel: OpenTelemetry is not installed"),
        (
            "prometheus_client",
            ["--config", "none.toml", "--metrics", "0"],
            "metrics: the client of Prometheus is not installed",
        ),
    ],
)
def test_without_its_extra_a_worker_says_what_to_install(
    tmp_path: Path, module: str, args: list[str], words: str
) -> None:
    (tmp_path / "jobs.py").write_text(
        "from blackboard import handler\n\n\n@handler('x')\ndef x(item, ctx): ...\n"
    )
    (tmp_path / "blackboard.toml").write_text(SETTINGS)
    (tmp_path / "none.toml").write_text('[board]\njobs = ["jobs.py"]\n')
    called_in(tmp_path, "init")
    for more in ([], ["--processes", "2"]):
        code = WITHOUT.format(module=module, args=["worker", "--until-idle", *args, *more])
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            env=own_environ(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 2, done.stderr
        extra = "otel" if module == "opentelemetry" else "metrics"
        assert f"{words} (pip install 'blackboard-scheduler[{extra}]')" in done.stderr
