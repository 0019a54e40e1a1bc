"""A server's numbers for Prometheus. Knows prometheus_client, the extra `[prometheus]`, and the numbers of models; serves no page itself.

In one process, numbers are read when Prometheus scrapes, so requests pay nothing. In prometheus_client's multiprocess mode such reading is
not collected, so each request changes instruments of the client's, which costs some 40 us.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import accumulate
from typing import Final, NamedTuple, Protocol

from ._hosts import check_server, needs

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
    from prometheus_client.registry import Collector
except ImportError as error:
    raise needs(error, "prometheus_client", "prometheus") from error

from ._models.lifecycle import Lifecycle
from ._models.model import Model
from ._models.record import OUTCOMES, Record
from ._models.statistics import BUCKETS, ROWS, Statistics
from ._models.statistics import Histogram as Counts
from ._serving.engine import Engine
from .server import InferenceServer

_LABELS: Final = ("server", "model", "version")


class _Described(NamedTuple):
    """A metric as every page has it.

    Args:
        name: Its name; the client adds `_total` to a counter's.
        text: What it counts.
        labels: Its labels beside `_LABELS`.
        unit: The last word of its name, where that is a unit.
        buckets: Of a histogram.
    """

    name: str
    text: str
    labels: tuple[str, ...] = ()
    unit: str = ""
    buckets: Sequence[float] = BUCKETS


_REQUESTS: Final = _Described("oip_requests", "Inference requests by how they ended.", ("outcome",))
_DURATION: Final = _Described(
    "oip_request_duration_seconds", "From a request's body to its response, of those that had a slot or waited for one.", unit="seconds"
)
_QUEUE: Final = _Described("oip_queue_duration_seconds", "How long requests that were executed had waited for a slot.", unit="seconds")
_EXECUTION: Final = _Described("oip_execution_duration_seconds", "How long the model's function took, once for a batch.", unit="seconds")
_FIRST: Final = _Described("oip_first_response_duration_seconds", "From a request's body to a stream's first response.", unit="seconds")
_INFERENCES: Final = _Described("oip_inferences", "Rows inferred; 1 for each request of a model that does not batch.")
_EXECUTIONS: Final = _Described("oip_executions", "Calls of the model's function.")
_ROWS: Final = _Described("oip_batch_rows", "Rows of each call of the model's function.", buckets=ROWS)
_IN_PROGRESS: Final = _Described("oip_requests_in_progress", "Requests that wait for a slot, and that run.", ("state",))
_READY: Final = _Described("oip_model_ready", "1 if the model serves and the server does not stop; ready= is not asked.")
_HITS: Final = _Described("oip_cache_hits", "Requests answered from the model's response cache.")
_MISSES: Final = _Described("oip_cache_misses", "Requests that the model's response cache had no response for.")
_LOAD: Final = _Described("oip_model_load_duration_seconds", "How long the model's last load= took.", unit="seconds")


def instrument(server: InferenceServer, registry: CollectorRegistry = REGISTRY) -> None:
    """Show a server's numbers on the page of a registry: `oip_requests_total` and others, by `server`, `model` and `version`.

    The page is the host's: `prometheus_client.make_asgi_app()`, `generate_latest`, or what the host has already. A model that is registered
    later is shown too. Requests for models that nobody knows count under `model=""`: names that clients make up are no labels.

    Where PROMETHEUS_MULTIPROC_DIR is set, as for gunicorn with several workers, the numbers of all processes are added up by
    prometheus_client's multiprocess mode: call this in each process, or before a fork, with any registry but that of the page.

    Args:
        server: The server. Its name is the label `server`.
        registry: The registry; prometheus_client's own where it is left out.

    Raises:
        ValueError: A server of the same name is in this registry already, or other metrics with the same names.
    """
    check_server(server, "instrument", "instrument(server, registry)")
    with _LOCK:
        page = _PAGES.get(registry)
        if page is None:
            page = _PAGES[registry] = _Page(_Instruments(registry) if _is_multiprocess() else _Collector(registry))
        page.add(server)


def _is_multiprocess() -> bool:
    return "PROMETHEUS_MULTIPROC_DIR" in os.environ or "prometheus_multiproc_dir" in os.environ


class _Source(Protocol):
    """What makes metrics of servers."""

    def add(self, name: str, engine: Engine) -> None:
        """Take a server in, under the name of its label."""


class _Page:
    """The servers of one registry."""

    def __init__(self, source: _Source) -> None:
        self._source = source
        self._servers: weakref.WeakValueDictionary[str, InferenceServer] = weakref.WeakValueDictionary()

    def add(self, server: InferenceServer) -> None:
        engine = server._inside.engine
        if engine.name in self._servers:
            raise ValueError(
                f"a server named {engine.name!r} is in this registry already: give each a name, InferenceServer(name=...), "
                "or pass another registry"
            )
        self._servers[engine.name] = server
        self._source.add(engine.name, engine)


_LOCK: Final = threading.Lock()
_PAGES: Final[weakref.WeakKeyDictionary[CollectorRegistry, _Page]] = weakref.WeakKeyDictionary()
"""One set of metrics for each registry, which refuses the same names twice."""


class _Collector(Collector):
    """Reads the numbers of servers at each scrape."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._engines: weakref.WeakValueDictionary[str, Engine] = weakref.WeakValueDictionary()
        registry.register(self)

    def add(self, name: str, engine: Engine) -> None:
        self._engines[name] = engine

    def describe(self) -> Iterable[Metric]:
        """The metrics without samples, so that the registry refuses others of the same names."""
        return _Families().all()

    def collect(self) -> Iterable[Metric]:
        """The metrics as they are now."""
        families = _Families()
        for name, engine in sorted(self._engines.items()):
            families.add_unknown((name, "", ""), engine.unknown)
            for model in engine.models:
                families.add_model((name, model.name, model.version or ""), model, is_stopping=engine.stopping)
        return families.all()


class _Families:
    """The metrics of one scrape."""

    def __init__(self) -> None:
        self._requests = _counter(_REQUESTS)
        self._histograms = {described: _histogram(described) for described in (_DURATION, _QUEUE, _EXECUTION, _FIRST, _ROWS)}
        self._inferences, self._executions = _counter(_INFERENCES), _counter(_EXECUTIONS)
        self._hits, self._misses = _counter(_HITS), _counter(_MISSES)
        self._in_progress, self._ready, self._load = _gauge(_IN_PROGRESS), _gauge(_READY), _gauge(_LOAD)

    def all(self) -> list[Metric]:
        counters = [self._requests, self._inferences, self._executions, self._hits, self._misses]
        return [*counters, *self._histograms.values(), self._in_progress, self._ready, self._load]

    def add_unknown(self, labels: tuple[str, ...], statistics: Statistics) -> None:
        """Requests for models that nobody knows."""
        for outcome, count in statistics.snapshot().outcomes.items():
            if count:
                self._requests.add_metric((*labels, outcome), count)

    def add_model(self, labels: tuple[str, ...], model: Model, *, is_stopping: bool) -> None:
        """All of one model."""
        taken = model.statistics.snapshot()
        for outcome, count in taken.outcomes.items():
            self._requests.add_metric((*labels, outcome), count)
        self._inferences.add_metric(labels, taken.inference_count)
        self._executions.add_metric(labels, taken.execution_count)
        for described, counts in (
            (_DURATION, taken.durations),
            (_QUEUE, taken.queues),
            (_EXECUTION, taken.executions),
            (_ROWS, taken.rows),
            (_FIRST, taken.first_responses),
        ):
            if described is not _FIRST or counts.sum:  # only streams have these
                self._histograms[described].add_metric(labels, _cumulated(described, counts), counts.sum)
        if model.cache is not None:
            self._hits.add_metric(labels, taken.cache_hit.count)
            self._misses.add_metric(labels, taken.cache_miss.count)
        self._in_progress.add_metric((*labels, "waiting"), model.limiter.waiting)
        self._in_progress.add_metric((*labels, "running"), model.limiter.running)
        self._ready.add_metric(labels, _readiness(model.lifecycle, is_stopping=is_stopping))
        if model.lifecycle.load_seconds is not None:
            self._load.add_metric(labels, model.lifecycle.load_seconds)


def _counter(described: _Described) -> CounterMetricFamily:
    return CounterMetricFamily(described.name, described.text, labels=(*_LABELS, *described.labels))


def _gauge(described: _Described) -> GaugeMetricFamily:
    return GaugeMetricFamily(described.name, described.text, labels=(*_LABELS, *described.labels), unit=described.unit)


def _histogram(described: _Described) -> HistogramMetricFamily:
    return HistogramMetricFamily(described.name, described.text, labels=_LABELS, unit=described.unit)


def _cumulated(described: _Described, counts: Counts) -> list[tuple[str, float]]:
    bounds = [*(str(float(bound)) for bound in described.buckets), "+Inf"]
    return list(zip(bounds, accumulate(counts.counts), strict=True))


def _readiness(lifecycle: Lifecycle, *, is_stopping: bool) -> int:
    return int(lifecycle.is_serving and not is_stopping)


class _Instruments:
    """prometheus_client's own instruments, which its multiprocess mode collects."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def named(described: _Described) -> tuple[str, str, tuple[str, ...]]:
            return described.name, described.text, (*_LABELS, *described.labels)

        def histogram(described: _Described) -> Histogram:
            return Histogram(*named(described), buckets=described.buckets, registry=registry)

        self.requests = Counter(*named(_REQUESTS), registry=registry)
        self.inferences = Counter(*named(_INFERENCES), registry=registry)
        self.executions = Counter(*named(_EXECUTIONS), registry=registry)
        self.durations, self.queues, self.functions = histogram(_DURATION), histogram(_QUEUE), histogram(_EXECUTION)
        self.firsts, self.rows = histogram(_FIRST), histogram(_ROWS)
        self.hits, self.misses = Counter(*named(_HITS), registry=registry), Counter(*named(_MISSES), registry=registry)
        self.in_progress = Gauge(*named(_IN_PROGRESS), registry=registry, multiprocess_mode="livesum")
        self.ready = Gauge(*named(_READY), registry=registry, multiprocess_mode="livemin")
        self.load = Gauge(*named(_LOAD), registry=registry, multiprocess_mode="livemax")

    def add(self, name: str, engine: Engine) -> None:
        watched: weakref.WeakSet[Model] = weakref.WeakSet()

        def watch() -> None:
            for model in engine.models:
                if model not in watched:
                    watched.add(model)
                    model.statistics.observers.append(_OfModel(self, (name, model.name, model.version or ""), model))

        engine.unknown.observers.append(_OfUnknown(self, name))
        engine.watchers.append(watch)
        watch()


class _OfUnknown:
    """Counts requests for models that nobody knows, which are all refused."""

    def __init__(self, instruments: _Instruments, name: str) -> None:
        self._invalid = instruments.requests.labels(name, "", "", "invalid")

    def request(self, _: Record) -> None:
        self._invalid.inc()

    def changed(self) -> None:
        """Never called, as the rest: such a request goes no further."""

    def execution(self, _: int, __: float | None) -> None: ...
    def first_response(self, _: float) -> None: ...


class _OfModel:
    """The instruments of one model. Their labels are looked up here, once."""

    def __init__(self, instruments: _Instruments, labels: tuple[str, str, str], model: Model) -> None:
        self._limiter, self._lifecycle = model.limiter, model.lifecycle
        self._requests = {outcome: instruments.requests.labels(*labels, outcome) for outcome in OUTCOMES}
        self._inferences, self._executions = instruments.inferences.labels(*labels), instruments.executions.labels(*labels)
        self._durations, self._queues = instruments.durations.labels(*labels), instruments.queues.labels(*labels)
        self._functions, self._rows = instruments.functions.labels(*labels), instruments.rows.labels(*labels)
        self._firsts = partial(instruments.firsts.labels, *labels)
        self._hits, self._misses = partial(instruments.hits.labels, *labels), partial(instruments.misses.labels, *labels)
        self._waiting, self._running = (instruments.in_progress.labels(*labels, state) for state in ("waiting", "running"))
        # made when they are set: gunicorn's first process, which serves nothing, would count as not ready else
        self._ready, self._load = partial(instruments.ready.labels, *labels), partial(instruments.load.labels, *labels)

    def changed(self) -> None:
        self._waiting.set(self._limiter.waiting)
        self._running.set(self._limiter.running)
        self._ready().set(_readiness(self._lifecycle, is_stopping=False))
        if self._lifecycle.load_seconds is not None:
            self._load().set(self._lifecycle.load_seconds)

    def request(self, record: Record) -> None:
        self._requests[record.outcome].inc()
        self._inferences.inc(record.inferred)
        if record.seconds is not None:
            self._durations.observe(record.seconds)
        if record.queue is not None:
            self._queues.observe(record.queue)
        if record.lookup is not None:
            (self._hits if record.is_hit else self._misses)().inc()
        self.changed()

    def execution(self, rows: int, seconds: float | None) -> None:
        self._executions.inc()
        self._rows.observe(rows)
        if seconds is not None:
            self._functions.observe(seconds)

    def first_response(self, seconds: float) -> None:
        self._firsts().observe(seconds)
