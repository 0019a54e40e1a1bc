"""A server's requests as spans of OpenTelemetry. Knows its API, the extra `[otel]`; SDK, exporter and
sampling are the host's.

A span begins only if the current span is recorded: a request that nobody traces pays half a microsecond for
that check.

It is not made by `InferenceServer.observe`: an observer is called after the end of an inference, in another
thread. A span must be the current one in the thread or task of the model while that runs. Otherwise the trace
does not have what the model does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

try:
    from opentelemetry import trace
    from opentelemetry.context import Context
except ImportError as error:
    raise ImportError(
        "opentelemetry is not installed: pip install opentelemetry-api", name=error.name
    ) from error

from . import InferenceError, InferenceServer, Span, __version__


def instrument(server: InferenceServer, tracer_provider: trace.TracerProvider | None = None) -> None:
    """Begin a span `infer {model}` for each inference request whose surroundings are traced.

    The host's own instrumentation, such as opentelemetry-instrumentation-asgi, -wsgi or -grpc, reads
    `traceparent` and begins the server's span, of which this one is a child. Spans that the model begins are
    children of this one. Its attributes are `oip.model.name`, `oip.model.version`, `oip.request.id`,
    `oip.outcome` and `oip.queue.duration`, in seconds. A request that fails has the status ERROR and the
    attribute `error.type`, the module and the name of the exception's class; one that is refused with 4xx has
    neither. The exception itself is in the log: its line is written inside the span, so that a handler of
    OpenTelemetry's knows both.

    With `max_batch_size=`, each call of the function has a span `infer {model} batch` with `oip.batch.rows`,
    in a trace of its own. It has a link to the span of each request, and each of those has an event for it.
    Spans that the model begins are its children then.

    Args:
        server: The server.
        tracer_provider: Where its spans come from; the global one if it is left out.
    """
    if not isinstance(server, InferenceServer):
        raise TypeError(
            f"instrument takes an InferenceServer, not a {type(server).__name__}: write instrument(server)"
        )
    server.instrument(_Tracer(trace.get_tracer("oip_asgi", __version__, tracer_provider)))


class _Tracer:
    def __init__(self, tracer: trace.Tracer) -> None:
        self._tracer = tracer

    def begin(self, model: str, version: str | None) -> _Span | None:
        if not trace.get_current_span().is_recording():
            return None
        attributes = {"oip.model.name": model} | ({} if version is None else {"oip.model.version": version})
        return _Span(self._tracer.start_span(f"infer {model}", attributes=attributes))

    @contextmanager
    def together(self, model: str, version: str | None, rows: int, spans: Sequence[Span]) -> Iterator[None]:
        attributes = {"oip.model.name": model, "oip.batch.rows": rows} | (
            {} if version is None else {"oip.model.version": version}
        )
        members = [span.span for span in spans if isinstance(span, _Span)]
        links = [trace.Link(member.get_span_context()) for member in members]
        # a trace of its own, as its requests are in several traces
        span = self._tracer.start_span(f"infer {model} batch", Context(), attributes=attributes, links=links)
        context = span.get_span_context()
        for member in members:
            member.add_event(
                "oip.batch",
                {
                    "oip.batch.rows": rows,
                    "oip.batch.trace_id": trace.format_trace_id(context.trace_id),
                    "oip.batch.span_id": trace.format_span_id(context.span_id),
                },
            )
        with trace.use_span(span, end_on_exit=True, record_exception=False):
            yield


class _Span:
    def __init__(self, span: trace.Span) -> None:
        self.span = span

    def active(self) -> AbstractContextManager[object]:
        # `end` says that something was raised, and the log says what
        used: AbstractContextManager[object] = trace.use_span(
            self.span, record_exception=False, set_status_on_exception=False
        )
        return used

    def end(
        self, outcome: str, request_id: str | None, queued: float | None, error: BaseException | None
    ) -> None:
        attributes = {"oip.outcome": outcome, "oip.request.id": request_id, "oip.queue.duration": queued}
        self.span.set_attributes({name: value for name, value in attributes.items() if value is not None})
        if isinstance(error, Exception) and outcome != "invalid":
            kind = type(error.__cause__ or error)  # with its module, as the SDK writes it
            module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
            self.span.set_attribute("error.type", module + kind.__qualname__)
            self.span.set_status(
                trace.StatusCode.ERROR, str(error) if isinstance(error, InferenceError) else None
            )
        self.span.end()
