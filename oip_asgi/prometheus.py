"""A server's numbers for Prometheus. Knows prometheus_client, the extra `[prometheus]`, and the numbers of models; serves no page itself.

In one process, numbers are read when Prometheus scrapes, so requests pay nothing. prometheus_client's multiprocess mode does not support
that, so each request changes its instruments, which costs some 40 us.
"""

from __future__ import annotations

import os
import threading
import weakref
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from itertools import accumulate, chain
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from ._hosts import check_server, make_import_error

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
    from prometheus_client.registry import Collector
except ImportError as error:
    raise make_import_error(error, "prometheus_client", "prometheus") from error

from ._models.model import Model
from ._models.statistics import BUCKETS, ROWS, Numbers
from ._models.statistics import Histogram as Counts
from ._protocol.log import logger
from ._serving.engine import Engine
from .server import InferenceServer

_LABELS: Final = ("server", "model", "version")

_FAMILIES: Final[Mapping[Any, Any]] = {Counter: CounterMetricFamily, Gauge: GaugeMetricFamily, Histogram: HistogramMetricFamily}


class _Metric(msgspec.Struct, frozen=True, eq=False):
    """A metric of each page."""

    kind: type[Counter | Gauge | Histogram]
    name: str  # the client adds `_total` to a counter's
    text: str
    labels: tuple[str, ...] = ()  # in addition to `_LABELS`
    buckets: Sequence[float] = BUCKETS
    mode: str = ""  # how the gauges of several processes are combined

    def make_family(self) -> Any:
        unit = "seconds" if self.name.endswith("_seconds") else ""
        return _FAMILIES[self.kind](self.name, self.text, labels=(*_LABELS, *self.labels), unit=unit)

    def make_instrument(self, registry: CollectorRegistry) -> Any:
        options: dict[Any, dict[str, Any]] = {Histogram: {"buckets": self.buckets}, Gauge: {"multiprocess_mode": self.mode}}
        return self.kind(self.name, self.text, (*_LABELS, *self.labels), registry=registry, **options.get(self.kind, {}))


_REQUESTS: Final = _Metric(Counter, "oip_requests", "Inference requests by how they ended.", ("outcome",))
_INFERENCES: Final = _Metric(Counter, "oip_inferences", "Rows inferred; 1 for each request of a model that does not batch.")
_EXECUTIONS: Final = _Metric(Counter, "oip_executions", "Calls of the model's function.")
_HITS: Final = _Metric(Counter, "oip_cache_hits", "Requests answered from the model's response cache.")
_MISSES: Final = _Metric(Counter, "oip_cache_misses", "Requests that the model's response cache had no response for.")
_DURATION: Final = _Metric(
    Histogram,
    "oip_request_duration_seconds",
    "From a request's body to its end, of those that had a slot or waited for one, by how they ended.",
    ("outcome",),
)
_QUEUE: Final = _Metric(Histogram, "oip_queue_duration_seconds", "How long requests that were executed had waited for a slot.")
_EXECUTION: Final = _Metric(Histogram, "oip_execution_duration_seconds", "How long the model's function took, once for a batch.")
_FIRST: Final = _Metric(Histogram, "oip_first_response_duration_seconds", "From a request's body to a stream's first response.")
_ROWS: Final = _Metric(Histogram, "oip_batch_rows", "Rows of each call of the model's function.", buckets=ROWS)
_IN_PROGRESS: Final = _Metric(Gauge, "oip_requests_in_progress", "Requests that wait for a slot, and that run.", ("state",), mode="livesum")
_READY: Final = _Metric(
    Gauge, "oip_model_ready", "1 if the model serves and the server does not stop; ready= is not asked.", mode="livemin"
)
_LOAD: Final = _Metric(Gauge, "oip_model_load_duration_seconds", "How long the model's last load= took.", mode="livemax")

_METRICS: Final = (
    *(_REQUESTS, _INFERENCES, _EXECUTIONS, _HITS, _MISSES, _DURATION, _QUEUE, _EXECUTION, _FIRST, _ROWS),
    *(_IN_PROGRESS, _READY, _LOAD),
)

_Samples: TypeAlias = Iterable[tuple[_Metric, tuple[str, ...], Any]]
"""Metrics with their additional labels, and values."""


def _read_numbers(model: Model, numbers: Numbers) -> _Samples:
    for outcome, count in numbers.outcomes.items():
        yield _REQUESTS, (outcome,), count
    yield _INFERENCES, (), numbers.inference_count
    yield _EXECUTIONS, (), numbers.execution_count
    if model.cache is not None:
        yield _HITS, (), numbers.cache_hit.count
        yield _MISSES, (), numbers.cache_miss.count
    for outcome, durations in numbers.durations.items():
        yield _DURATION, (outcome,), durations
    yield _QUEUE, (), numbers.queues
    yield _EXECUTION, (), numbers.executions
    yield _ROWS, (), numbers.rows
    if numbers.first_responses.filled:  # only streams have these
        yield _FIRST, (), numbers.first_responses


def _read_unknown(numbers: Numbers) -> _Samples:
    for outcome, count in numbers.outcomes.items():
        if count:
            yield _REQUESTS, (outcome,), count


def _read_gauges(engine: Engine, model: Model) -> _Samples:
    yield _IN_PROGRESS, ("waiting",), model.limiter.waiting
    yield _IN_PROGRESS, ("running",), model.limiter.running
    yield _READY, (), int(model.lifecycle.is_serving and not engine.stopping)
    if model.lifecycle.load_seconds is not None:
        yield _LOAD, (), model.lifecycle.load_seconds


def instrument(server: InferenceServer, registry: CollectorRegistry = REGISTRY) -> None:
    """Show a server's numbers on the page of a registry: `oip_requests_total` and others, by `server`, `model` and `version`.

    The page is the host's: `prometheus_client.make_asgi_app()`, `generate_latest`, or what the host has already. A model that is registered
    later is shown too. Requests for models that nobody knows, and inference that `authorize=` refuses, count under
    `model=""`: names that clients make up are no labels.

    Where PROMETHEUS_MULTIPROC_DIR is set, as for gunicorn with several workers, the numbers of all processes are added up by
    prometheus_client's multiprocess mode: call this in each process, or before a fork, with any registry except the page's own.

    Args:
        server: The server. Its name is the label `server`.
        registry: The registry; prometheus_client's own if it is left out.

    The same server twice is once. Another server of the same name, as when a test makes its application anew, takes the place of the one
    before, and the log has a warning: two that serve side by side need a name each, or a registry each.

    Raises:
        ValueError: Other metrics with the same names are in this registry already.
    """
    check_server(server, "instrument", "instrument(server, registry)")
    engine = server._inside.engine
    with _LOCK:
        page = _PAGES.get(registry)
        if page is None:
            page = _PAGES[registry] = _make_page(registry)
        before = page.engines.get(engine.options.name)
        if before is engine:
            return
        if before is not None:
            logger.warning(
                "another server named %r was instrumented in this registry, and this one takes its place: if both serve, give each a name, "
                "InferenceServer(name=...), or a registry of its own",
                engine.options.name,
            )
        page.engines[engine.options.name] = engine
        if page.instruments is not None:
            _watch(engine, page.instruments)


class _Page(NamedTuple):
    """The servers of one registry, and its instruments if several processes share the numbers."""

    engines: weakref.WeakValueDictionary[str, Engine]
    instruments: Mapping[_Metric, Any] | None


_LOCK: Final = threading.Lock()
_PAGES: Final[weakref.WeakKeyDictionary[CollectorRegistry, _Page]] = weakref.WeakKeyDictionary()
"""One set of metrics for each registry, which refuses the same names twice."""


def _make_page(registry: CollectorRegistry) -> _Page:
    page = _Page(weakref.WeakValueDictionary(), None)
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ or "prometheus_multiproc_dir" in os.environ:
        return page._replace(instruments={metric: metric.make_instrument(registry) for metric in _METRICS})
    registry.register(_Collector(page.engines))
    return page


class _Collector(Collector):
    """Reads the numbers of servers at each scrape."""

    def __init__(self, engines: Mapping[str, Engine]) -> None:
        self._engines = engines

    def describe(self) -> Iterable[Metric]:
        """The metrics without samples, so that the registry refuses others of the same names."""
        return [metric.make_family() for metric in _METRICS]

    def collect(self) -> Iterable[Metric]:
        """The metrics as they are now."""
        families = {metric: metric.make_family() for metric in _METRICS}
        with _LOCK:
            engines = sorted(self._engines.items())
        for name, engine in engines:
            read = [(("", ""), _read_unknown(engine.unknown.snapshot()))]
            for model in engine.models:
                numbers, gauges = _read_numbers(model, model.statistics.snapshot()), _read_gauges(engine, model)
                read.append(((model.name, model.version or ""), chain(numbers, gauges)))
            for labels, samples in read:
                for metric, more, value in samples:
                    values = _cumulate(metric.buckets, value) if metric.kind is Histogram else (value,)
                    families[metric].add_metric((name, *labels, *more), *values)
        return list(families.values())


def _cumulate(buckets: Sequence[float], histogram: Counts) -> tuple[list[tuple[str, float]], float]:
    counts = list(accumulate(histogram.counts))
    bounds = [(str(float(bound)), counts[bisect_left(histogram.bounds, bound)]) for bound in buckets]
    return [*bounds, ("+Inf", counts[-1])], histogram.sum


def _watch(engine: Engine, instruments: Mapping[_Metric, Any]) -> None:
    """Change the instruments with each event of a server, also for models that are registered later."""
    watched: weakref.WeakSet[Model] = weakref.WeakSet()
    lock = threading.Lock()

    def watch(model: Model) -> None:
        with lock:
            is_new = model not in watched
            watched.add(model)
        if is_new:
            labels = engine.options.name, model.name, model.version or ""
            observer = _Observer(instruments, labels, partial(_read_numbers, model), partial(_read_gauges, engine, model))
            # other gauges are made when they are set: else gunicorn's first process, which serves nothing, would count as not ready
            for state in ("waiting", "running"):
                instruments[_IN_PROGRESS].labels(*labels, state)
            model.statistics.observers.append(observer)

    engine.unknown.observers.append(_Observer(instruments, (engine.options.name, "", ""), _read_unknown, tuple))
    engine.watchers.append(watch)
    for model in engine.models:  # one that is registered just now may come twice
        watch(model)


class _Observer:
    """Changes the instruments of one model, or those of all unknown models together."""

    def __init__(
        self,
        instruments: Mapping[_Metric, Any],
        labels: tuple[str, str, str],
        read_numbers: Callable[[Numbers], _Samples],
        read_gauges: Callable[[], _Samples],
    ) -> None:
        self._read_numbers = read_numbers
        self._read_gauges = read_gauges
        self._lock = threading.Lock()
        self._instrument = cache(lambda metric, *more: instruments[metric].labels(*labels, *more))
        self.count(Numbers())

    def count(self, numbers: Numbers) -> None:
        for metric, labels, value in self._read_numbers(numbers):
            instrument = self._instrument(metric, *labels)
            if metric.kind is Histogram:
                if value.filled:  # one event has one value
                    instrument.observe(value.sum)
            elif value:
                instrument.inc(value)

    def note_change(self) -> None:
        with self._lock:  # else a thread could set what it read before another one did
            for metric, labels, value in self._read_gauges():
                self._instrument(metric, *labels).set(value)
