"""Spans of requests, with the SDK's exporter in memory and the instrumentation that users install."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import pytest

pytest.importorskip("opentelemetry.sdk.trace", reason="needs the SDK of OpenTelemetry: tox -e otel")
pytest.importorskip("opentelemetry.instrumentation.asgi", reason="needs opentelemetry-instrumentation-asgi")
pytest.importorskip("opentelemetry.instrumentation.wsgi", reason="needs opentelemetry-instrumentation-wsgi")
from opentelemetry import trace
from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware as ASGIMiddleware
from opentelemetry.instrumentation.wsgi import OpenTelemetryMiddleware as WSGIMiddleware
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

import oip_asgi
from oip_asgi import InferenceError, InferenceServer, OIPApp, OIPWSGIApp
from oip_asgi.opentelemetry import instrument
from tests.support.ways import Request, Way, over_asgi, over_wsgi

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE = 0x0AF7651916CD43DD8448EB211C80319C


class Traced:
    """A server whose models open spans of their own, and where those go."""

    def __init__(self, **options: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(**options)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.server = InferenceServer()
        self.leave = threading.Event()
        tracer = self.provider.get_tracer("models")

        @self.server.model("def", version="7", max_concurrency=1)
        def in_thread() -> int:
            with tracer.start_as_current_span("inner"):
                self.leave.wait(20)
                return 1

        @self.server.model("async")
        async def awaited() -> int:
            with tracer.start_as_current_span("inner"):
                await asyncio.sleep(0)
                return 1

        @self.server.model("inline", run="inline")
        def inline() -> int:
            with tracer.start_as_current_span("inner"):
                return 1

        @self.server.model("speaks")
        def speaks() -> int:
            raise InferenceError("not you", status=422)

        instrument(self.server, self.provider)

    def ways(self) -> dict[str, Way]:
        asgi = ASGIMiddleware(OIPApp(self.server), tracer_provider=self.provider)
        wsgi = WSGIMiddleware(OIPWSGIApp(self.server), tracer_provider=self.provider)
        return {"asgi": over_asgi(asgi, ""), "wsgi": over_wsgi(wsgi, "")}

    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self.exporter.get_finished_spans()}


Logged: TypeAlias = list[tuple[logging.LogRecord, int]]
"""Records of the log, each with the span that was current, as the SDK's own handler takes it."""


@pytest.fixture
def logged() -> Iterator[Logged]:
    records: Logged = []

    class Keeping(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append((record, trace.get_current_span().get_span_context().span_id))

    handler, logger = Keeping(), logging.getLogger("oip_asgi")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield records
    logger.setLevel(level)
    logger.removeHandler(handler)


@pytest.fixture
def traced() -> Iterator[Traced]:
    made = Traced()
    made.leave.set()
    yield made
    made.server.stop()


def infer(model: str, body: bytes = b'{"id":"r-1","inputs":[]}') -> Request:
    return Request("POST", f"/models/{model}/infer", (("traceparent", PARENT),), body)


def is_child(span: ReadableSpan, parent: ReadableSpan) -> bool:
    return span.parent is not None and parent.context is not None and span.parent.span_id == parent.context.span_id


@pytest.mark.parametrize("adapter", ["asgi", "wsgi"])
@pytest.mark.parametrize("model", ["def", "async", "inline"])
def test_the_span_is_between_the_servers_and_the_models(traced: Traced, adapter: str, model: str) -> None:
    assert traced.ways()[adapter](infer(model)).status == 200
    spans = traced.spans()
    ours, inner = spans[f"infer {model}"], spans["inner"]
    [outer] = [span for span in spans.values() if span.kind is trace.SpanKind.SERVER]
    assert is_child(ours, outer)
    assert is_child(inner, ours)
    assert ours.kind is trace.SpanKind.INTERNAL
    assert {span.context.trace_id for span in (outer, ours, inner) if span.context is not None} == {TRACE}
    attributes = dict(ours.attributes or {})
    queue = attributes.pop("oip.queue.duration")
    assert isinstance(queue, float)
    assert queue >= 0
    scope = ours.instrumentation_scope
    assert scope is not None
    assert (scope.name, scope.version) == ("oip_asgi", oip_asgi.__version__)
    expected = {"oip.model.name": model, "oip.request.id": "r-1", "oip.outcome": "ok"}
    assert attributes == (expected | {"oip.model.version": "7"} if model == "def" else expected)
    assert ours.status.status_code is trace.StatusCode.UNSET


@pytest.mark.parametrize("adapter", ["asgi", "wsgi"])
@pytest.mark.parametrize("run", ["def", "async", "inline"])
def test_a_failure_is_an_error_whose_exception_is_logged_inside_the_span(traced: Traced, run: str, adapter: str, logged: Logged) -> None:
    def raises() -> int:
        raise ValueError("on purpose")

    async def raises_later() -> int:
        raise ValueError("on purpose")

    options: Any = {"run": "inline"} if run == "inline" else {}
    traced.server.register("raises", raises_later if run == "async" else raises, **options)
    assert traced.ways()[adapter](infer("raises")).status == 500
    span = traced.spans()["infer raises"]
    assert span.status.status_code is trace.StatusCode.ERROR
    assert span.status.description == "model 'raises' failed: see the server's log"
    attributes = span.attributes or {}
    assert (attributes["error.type"], attributes["oip.outcome"]) == ("ValueError", "failed")
    assert span.events == ()
    [(record, within)] = logged
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "on purpose"
    assert within == (span.context and span.context.span_id)


def test_the_type_of_an_error_has_its_module(traced: Traced) -> None:
    def raises() -> int:
        raise json.JSONDecodeError("on purpose", "", 0)

    traced.server.register("raises", raises)
    assert traced.ways()["asgi"](infer("raises")).status == 500
    assert (traced.spans()["infer raises"].attributes or {})["error.type"] == "json.decoder.JSONDecodeError"


def test_what_is_late_or_breaks_a_stream_off_is_logged_inside_the_span(traced: Traced, logged: Logged) -> None:
    traced.leave.clear()
    traced.server.register("late", lambda: traced.leave.wait(20), timeout=0.05)

    @traced.server.model("stream")
    def stream() -> Iterator[int]:
        yield 1
        raise ValueError("on purpose")

    way = traced.ways()["asgi"]
    assert way(infer("late")).status == 504
    traced.leave.set()
    assert way(Request("POST", "/models/stream/generate_stream", (("traceparent", PARENT),), b"{}")).status == 200
    spans = [traced.spans()["infer late"], traced.spans()["infer stream"]]
    assert [within for _, within in logged] == [span.context and span.context.span_id for span in spans]
    assert [span.events for span in spans] == [(), ()]
    assert [(span.attributes or {})["oip.outcome"] for span in spans] == ["timeout", "failed"]


@pytest.mark.parametrize(("request_", "status"), [(infer("speaks"), 422), (infer("def", b"["), 400)])
def test_what_is_refused_is_no_error_of_the_server(traced: Traced, request_: Request, status: int, logged: Logged) -> None:
    assert traced.ways()["asgi"](request_).status == status
    [span] = [span for span in traced.exporter.get_finished_spans() if span.name.startswith("infer")]
    assert span.status.status_code is trace.StatusCode.UNSET
    attributes = span.attributes or {}
    assert "error.type" not in attributes
    assert attributes["oip.outcome"] == "invalid"
    assert [within for _, within in logged] == [span.context and span.context.span_id]


def test_a_batch_that_fails_is_logged_once_inside_its_own_span(traced: Traced, logged: Logged) -> None:
    @traced.server.model("batched", max_batch_size=2, max_batch_delay=60.0)
    def batched(x: Any) -> Any:
        raise ValueError("on purpose")

    logged.clear()  # of such a long delay
    body = b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1]}]}'
    with ThreadPoolExecutor(2) as threads:
        assert [answer.status for answer in threads.map(traced.ways()["asgi"], [infer("batched", body)] * 2)] == [500, 500]
    spans = traced.exporter.get_finished_spans()
    [batch] = [span for span in spans if span.name == "infer batched batch"]
    errors = [within for record, within in logged if record.levelno == logging.ERROR]
    assert errors == [batch.context and batch.context.span_id]
    events = [event.name for span in spans for event in span.events]
    assert events == ["oip.batch"] * 2
    assert {(span.attributes or {})["error.type"] for span in spans if span.name == "infer batched"} == {"ValueError"}


def test_nothing_is_begun_where_nobody_traces(traced: Traced) -> None:
    assert over_asgi(OIPApp(traced.server), "")(infer("speaks")).status == 422
    assert traced.exporter.get_finished_spans() == ()


def test_a_request_that_is_not_sampled_has_no_span() -> None:
    traced = Traced(sampler=ALWAYS_OFF)
    traced.leave.set()
    assert traced.ways()["asgi"](infer("def")).status == 200
    assert traced.exporter.get_finished_spans() == ()


def test_a_queued_call_runs_in_its_own_trace() -> None:
    traced = Traced()
    way = traced.ways()["asgi"]
    parents = [f"00-{number:032x}-{number:016x}-01" for number in (1, 2, 3)]
    with ThreadPoolExecutor(3) as threads:
        calls = [
            threads.submit(way, Request("POST", "/models/def/infer", (("traceparent", parent),), b'{"inputs":[]}')) for parent in parents
        ]
        traced.leave.set()
        assert [call.result(30).status for call in calls] == [200] * 3
    spans = traced.exporter.get_finished_spans()
    ours = {span.context.span_id: span.context.trace_id for span in spans if span.name == "infer def" and span.context is not None}
    inner = {span.parent.span_id: span.context.trace_id for span in spans if span.name == "inner" and span.parent and span.context}
    assert set(ours.values()) == {1, 2, 3}
    assert inner == ours


def test_a_batch_is_a_trace_of_its_own_with_a_link_to_each_request(traced: Traced) -> None:
    tracer = traced.provider.get_tracer("models")

    @traced.server.model("batched", version="2", max_batch_size=2, max_batch_delay=60.0)
    def batched(x: Any) -> Any:
        with tracer.start_as_current_span("inner"):
            return x

    body = b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1]}]}'
    requests = [
        Request("POST", "/models/batched/infer", (("traceparent", f"00-{number:032x}-{number:016x}-01"),), body) for number in (1, 2)
    ]
    with ThreadPoolExecutor(2) as threads:
        assert [answer.status for answer in threads.map(traced.ways()["asgi"], requests)] == [200, 200]
    spans = traced.exporter.get_finished_spans()
    [batch] = [span for span in spans if span.name == "infer batched batch"]
    [inner] = [span for span in spans if span.name == "inner"]
    members = [span for span in spans if span.name == "infer batched"]
    assert batch.parent is None
    assert is_child(inner, batch)
    assert dict(batch.attributes or {}) == {"oip.model.name": "batched", "oip.model.version": "2", "oip.batch.rows": 2}
    assert {link.context.span_id for link in batch.links} == {span.context.span_id for span in members if span.context is not None}
    assert {link.context.trace_id for link in batch.links} == {1, 2}
    assert batch.context is not None
    told = [(event.name, dict(event.attributes or {})["oip.batch.span_id"]) for span in members for event in span.events]
    assert told == [("oip.batch", trace.format_span_id(batch.context.span_id))] * 2


def test_a_request_that_runs_alone_is_the_parent_of_what_the_model_begins(traced: Traced) -> None:
    tracer = traced.provider.get_tracer("models")

    @traced.server.model("batched", max_batch_size=2)
    def batched() -> int:
        with tracer.start_as_current_span("inner"):
            return 1

    assert traced.ways()["asgi"](infer("batched")).status == 200
    spans = traced.spans()
    assert is_child(spans["inner"], spans["infer batched"])
