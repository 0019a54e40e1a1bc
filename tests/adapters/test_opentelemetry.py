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
NUMBER = b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[%d]}]}'


def on_purpose() -> int:
    raise ValueError("on purpose")


class Traced:
    """A server whose models open spans of their own, and where those go."""

    def __init__(self, **options: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(**options)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.server = InferenceServer()
        self.leave = threading.Event()
        tracer = self.provider.get_tracer("models")

        def begin(*, waits: bool = False) -> int:
            with tracer.start_as_current_span("inner"):
                return self.leave.wait(20) if waits else 1

        async def begin_async() -> int:
            await asyncio.sleep(0)
            return begin()

        def begin_batch(x: Any) -> Any:
            if x[0] < 0:
                on_purpose()
            begin()
            return x

        def speak() -> int:
            raise InferenceError("not you", status=422)

        async def fail() -> int:
            return on_purpose()

        self.server.register("def", lambda: begin(waits=True), version="7", max_concurrency=1)
        self.server.register("async", begin_async)
        self.server.register("inline", begin, run="inline")
        self.server.register("batched", begin_batch, version="2", max_batch_size=2, max_batch_delay=60.0)
        self.server.register("speaks", speak)
        self.server.register("def fails", on_purpose)
        self.server.register("inline fails", on_purpose, run="inline")
        self.server.register("async fails", fail)
        instrument(self.server, self.provider)

    def ask(self, *requests: Request, adapter: str = "asgi") -> list[int]:
        way: Way = over_asgi(ASGIMiddleware(OIPApp(self.server), tracer_provider=self.provider), "")
        if adapter == "wsgi":
            way = over_wsgi(WSGIMiddleware(OIPWSGIApp(self.server), tracer_provider=self.provider), "")
        with ThreadPoolExecutor(len(requests)) as threads:
            return [answer.status for answer in threads.map(way, requests)]

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def only(self, name: str) -> ReadableSpan:
        [span] = self.named(name)
        return span


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


def infer(model: str, body: bytes = b'{"id":"r-1","inputs":[]}', parent: str = PARENT) -> Request:
    return Request("POST", f"/models/{model.replace(' ', '%20')}/infer", (("traceparent", parent),), body)


def infer_in(number: int, model: str, body: bytes) -> Request:
    return infer(model, body, f"00-{number:032x}-{number:016x}-01")


def ids(span: ReadableSpan) -> tuple[int, int]:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


def is_child(span: ReadableSpan, parent: ReadableSpan) -> bool:
    return span.parent is not None and span.parent.span_id == ids(parent)[1]


@pytest.mark.parametrize("adapter", ["asgi", "wsgi"])
@pytest.mark.parametrize("model", ["def", "async", "inline"])
def test_the_span_is_between_the_servers_and_the_models(traced: Traced, adapter: str, model: str) -> None:
    assert traced.ask(infer(model), adapter=adapter) == [200]
    ours, inner = traced.only(f"infer {model}"), traced.only("inner")
    [outer] = [span for span in traced.exporter.get_finished_spans() if span.kind is trace.SpanKind.SERVER]
    assert is_child(ours, outer)
    assert is_child(inner, ours)
    assert ours.kind is trace.SpanKind.INTERNAL
    assert {ids(span)[0] for span in (outer, ours, inner)} == {TRACE}
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
@pytest.mark.parametrize("model", ["def fails", "async fails", "inline fails"])
def test_a_failure_is_an_error_whose_exception_is_logged_inside_the_span(traced: Traced, model: str, adapter: str, logged: Logged) -> None:
    assert traced.ask(infer(model), adapter=adapter) == [500]
    span = traced.only(f"infer {model}")
    assert span.status.status_code is trace.StatusCode.ERROR
    assert span.status.description == f"model '{model}' failed: see the server's log"
    attributes = span.attributes or {}
    assert (attributes["error.type"], attributes["oip.outcome"]) == ("ValueError", "failed")
    assert span.events == ()
    [(record, within)] = logged
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "on purpose"
    assert within == ids(span)[1]


def test_the_type_of_an_error_has_its_module(traced: Traced) -> None:
    def raises() -> int:
        raise json.JSONDecodeError("on purpose", "", 0)

    traced.server.register("raises", raises)
    assert traced.ask(infer("raises")) == [500]
    assert (traced.only("infer raises").attributes or {})["error.type"] == "json.decoder.JSONDecodeError"


def test_what_is_late_or_breaks_a_stream_off_is_logged_inside_the_span(traced: Traced, logged: Logged) -> None:
    traced.leave.clear()
    traced.server.register("late", lambda: traced.leave.wait(20), timeout=0.05)

    @traced.server.model("stream")
    def stream() -> Iterator[int]:
        yield 1
        on_purpose()

    assert traced.ask(infer("late")) == [504]
    traced.leave.set()
    assert traced.ask(Request("POST", "/models/stream/generate_stream", (("traceparent", PARENT),), b"{}")) == [200]
    spans = [traced.only("infer late"), traced.only("infer stream")]
    assert [within for _, within in logged] == [ids(span)[1] for span in spans]
    assert [span.events for span in spans] == [(), ()]
    assert [(span.attributes or {})["oip.outcome"] for span in spans] == ["timeout", "failed"]


@pytest.mark.parametrize(("request_", "status"), [(infer("speaks"), 422), (infer("def", b"["), 400)])
def test_what_is_refused_is_no_error_of_the_server(traced: Traced, request_: Request, status: int, logged: Logged) -> None:
    assert traced.ask(request_) == [status]
    [span] = [span for span in traced.exporter.get_finished_spans() if span.name.startswith("infer")]
    assert span.status.status_code is trace.StatusCode.UNSET
    attributes = span.attributes or {}
    assert ("error.type" in attributes, attributes["oip.outcome"]) == (False, "invalid")
    assert [within for _, within in logged] == [ids(span)[1]]


def test_nothing_is_begun_where_nobody_traces_and_for_what_is_not_sampled(traced: Traced) -> None:
    assert over_asgi(OIPApp(traced.server), "")(infer("speaks")).status == 422
    assert traced.exporter.get_finished_spans() == ()
    other = Traced(sampler=ALWAYS_OFF)
    assert other.ask(infer("async")) == [200]
    assert other.exporter.get_finished_spans() == ()


def test_a_batch_is_a_trace_of_its_own_with_a_link_to_each_request(traced: Traced) -> None:
    assert traced.ask(*(infer_in(number, "batched", NUMBER % 1) for number in (1, 2))) == [200, 200]
    batch, members = traced.only("infer batched batch"), traced.named("infer batched")
    assert batch.parent is None
    assert is_child(traced.only("inner"), batch)
    assert dict(batch.attributes or {}) == {"oip.model.name": "batched", "oip.model.version": "2", "oip.batch.rows": 2}
    assert {(link.context.trace_id, link.context.span_id) for link in batch.links} == {ids(span) for span in members}
    assert {ids(span)[0] for span in members} == {1, 2}
    told = [(event.name, dict(event.attributes or {})["oip.batch.span_id"]) for span in members for event in span.events]
    assert told == [("oip.batch", trace.format_span_id(ids(batch)[1]))] * 2


def test_a_batch_that_fails_is_logged_inside_its_own_span_and_each_request_in_its_own(traced: Traced, logged: Logged) -> None:
    assert traced.ask(*(infer("batched", NUMBER % -1) for _ in range(2))) == [500, 500]
    first, *others = [within for record, within in logged if record.levelno == logging.ERROR]
    assert first == ids(traced.only("infer batched batch"))[1]
    assert sorted(others) == sorted(ids(span)[1] for span in traced.named("infer batched"))
    assert [event.name for span in traced.exporter.get_finished_spans() for event in span.events] == ["oip.batch"] * 2
    assert {(span.attributes or {})["error.type"] for span in traced.named("infer batched")} == {"ValueError"}


def test_a_request_that_runs_alone_is_the_parent_of_what_the_model_begins(traced: Traced) -> None:
    two_rows = b'{"inputs":[{"name":"x","shape":[2],"datatype":"FP32","data":[1,1]}]}'
    assert traced.ask(infer("batched", two_rows)) == [200]
    assert is_child(traced.only("inner"), traced.only("infer batched"))
