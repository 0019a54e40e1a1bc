"""A server's numbers for Prometheus. Knows prometheus_client, the extra `[prometheus]`, and the numbers of
models; serves no page itself.

Numbers are read when Prometheus scrapes, so requests pay nothing. prometheus_client's multiprocess mode does
not support that: there a thread of each process writes every second by how much the numbers have grown.

It is no observer of `InferenceServer.observe`: observations are dropped when their queue is full, where a
counter must count all; each takes a request some microseconds; and they do not say how long a slot was waited
for, how many rows a call had, or that a model is loading.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import accumulate, pairwise
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram, values
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
    from prometheus_client.registry import Collector
except ImportError as error:
    raise ImportError(
        "prometheus_client is not installed: pip install prometheus_client", name=error.name
    ) from error

from . import Histogram as Counts
from . import InferenceServer, ModelNumbers

_SECONDS: Final = 1.0
"""How old the numbers of other processes may be: less than the time between two scrapes."""

_LABELS: Final = ("server", "model", "version")

_FAMILIES: Final[Mapping[Any, Any]] = {
    Counter: CounterMetricFamily,
    Gauge: GaugeMetricFamily,
    Histogram: HistogramMetricFamily,
}


class _Metric(msgspec.Struct, frozen=True, eq=False):
    """A metric of each page."""

    kind: type[Counter | Gauge | Histogram]
    name: str  # the client adds `_total` to a counter's
    text: str
    labels: tuple[str, ...] = ()  # in addition to `_LABELS`
    buckets: Sequence[float] = Counts.SECONDS
    mode: str = ""  # how the gauges of several processes are combined

    def make_family(self) -> Any:
        return _FAMILIES[self.kind](
            self.name,
            self.text,
            labels=(*_LABELS, *self.labels),
            unit="seconds" if self.name.endswith("_seconds") else "",
        )

    def make_instrument(self, registry: CollectorRegistry) -> Any:
        options: dict[Any, dict[str, Any]] = {
            Histogram: {"buckets": self.buckets},
            Gauge: {"multiprocess_mode": self.mode},
        }
        return self.kind(
            self.name, self.text, (*_LABELS, *self.labels), registry=registry, **options.get(self.kind, {})
        )


_REQUESTS: Final = _Metric(Counter, "oip_requests", "Inference requests by how they ended.", ("outcome",))
_INFERENCES: Final = _Metric(
    Counter, "oip_inferences", "Rows inferred; 1 for each request of a model that does not batch."
)
_EXECUTIONS: Final = _Metric(Counter, "oip_executions", "Calls of the model's function.")
_HITS: Final = _Metric(Counter, "oip_cache_hits", "Requests answered from the model's response cache.")
_MISSES: Final = _Metric(
    Counter, "oip_cache_misses", "Requests that the model's response cache had no response for."
)
_OUTSIDE: Final = _Metric(
    Counter,
    "oip_out_of_range",
    'Requests with values out of the range of an input, of models with out_of_range="flag".',
    ("input",),
)
_DURATION: Final = _Metric(
    Histogram,
    "oip_request_duration_seconds",
    "From a request's body to its end, of those that had a slot or waited for one, by how they ended.",
    ("outcome",),
)
_QUEUE: Final = _Metric(
    Histogram, "oip_queue_duration_seconds", "How long requests that were executed had waited for a slot."
)
_EXECUTION: Final = _Metric(
    Histogram,
    "oip_execution_duration_seconds",
    "How long the model's function took, where it did not raise and its request was not given up meanwhile.",
)
_FIRST: Final = _Metric(
    Histogram, "oip_first_response_duration_seconds", "From a request's body to a stream's first response."
)
_ROWS_OF_CALLS: Final = _Metric(
    Histogram,
    "oip_batch_rows",
    "Rows of each call of the model's function; 1 for a model that does not batch.",
    buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256, 512),
)
_DROPPED: Final = _Metric(
    Counter, "oip_observations_dropped", "Observations for which the queue of an observer had no room."
)
_IN_PROGRESS: Final = _Metric(
    Gauge,
    "oip_requests_in_progress",
    "Requests that wait for a slot, and that run.",
    ("state",),
    mode="livesum",
)
_READY: Final = _Metric(
    Gauge,
    "oip_model_ready",
    "1 if the model serves and the server does not stop; ready= is not called.",
    mode="livemin",
)
_LOAD: Final = _Metric(
    Gauge, "oip_model_load_duration_seconds", "How long the model's last load= took.", mode="livemax"
)

_METRICS: Final = (
    *(_REQUESTS, _INFERENCES, _EXECUTIONS, _HITS, _MISSES, _OUTSIDE, _DURATION, _QUEUE, _EXECUTION, _FIRST),
    *(_ROWS_OF_CALLS, _DROPPED, _IN_PROGRESS, _READY, _LOAD),
)

_FIELDS: Final[Mapping[_Metric, str]] = {
    _INFERENCES: "inference_count",
    _EXECUTIONS: "execution_count",
    _HITS: "cache_hits",
    _MISSES: "cache_misses",
    _DROPPED: "observations_dropped",
    _LOAD: "load_seconds",
    _QUEUE: "queues",
    _EXECUTION: "executions",
    _FIRST: "first_responses",
    _ROWS_OF_CALLS: "rows",
}
"""The fields of `ModelNumbers` that are samples without more labels."""

_Samples: TypeAlias = Iterable[tuple[_Metric, tuple[str, ...], Any]]
"""Metrics with their labels, all of them or the additional ones, and values."""


def _read_numbers(numbers: ModelNumbers, *, is_shared: bool) -> _Samples:
    """The samples of one model; those whose value is None are not there."""
    for outcome, count in numbers.outcomes.items():
        if count or numbers.name:
            yield _REQUESTS, (outcome,), count
    if not numbers.name:
        return
    for outcome, durations in numbers.durations.items():
        yield _DURATION, (outcome,), durations
    for name, count in numbers.out_of_range.items():
        yield _OUTSIDE, (name,), count
    yield _IN_PROGRESS, ("waiting",), numbers.waiting
    yield _IN_PROGRESS, ("running",), numbers.running
    # gunicorn's first process loads nothing, and would count as not ready for all
    yield _READY, (), numbers.is_ready if is_shared else bool(numbers.is_ready)
    for metric, field in _FIELDS.items():
        yield metric, (), getattr(numbers, field)


def instrument(server: InferenceServer, registry: CollectorRegistry = REGISTRY) -> None:
    """Show a server's numbers on the page of a registry: `oip_requests_total` and others, by `server`,
    `model` and `version`.

    The page is the host's: `prometheus_client.make_asgi_app()`, `generate_latest`, or what the host has
    already. A model that is registered later is shown too. Requests for models that nobody knows, and
    inference that `authorize=` refuses, count under `model=""`: names that clients make up are no labels.

    Where PROMETHEUS_MULTIPROC_DIR is set, as for gunicorn with several workers, the numbers of all processes
    are added up by prometheus_client's multiprocess mode, and are up to a second old: call this in each
    process, or before a fork, with any registry except the page's own.

    Args:
        server: The server. Its name is the label `server`.
        registry: The registry; prometheus_client's own if it is left out.

    The same server twice is once. Another server of the same name, as when a test makes its application anew,
    takes the place of the one before, and the log has a warning: two that serve side by side need a name
    each, or a registry each.

    Raises:
        ValueError: Other metrics with the same names are in this registry already.
    """
    if not isinstance(server, InferenceServer):
        raise TypeError(
            f"instrument takes an InferenceServer, not a {type(server).__name__}: write instrument(server, "
            "registry)"
        )
    name = server.options.name
    with _LOCK:
        page = _PAGES.get(registry)
        if page is None:
            page = _PAGES[registry] = _Page(registry)
        if page.servers.get(name) not in (None, server):
            logging.getLogger("oip_asgi").warning(
                "another server named %r was instrumented in this registry, and this one takes its place: "
                "if both serve, give each a name, "
                "InferenceServer(name=...), or a registry of its own",
                name,
            )
        page.servers[name] = server


_LOCK: Final = threading.Lock()


class _Page(Collector):
    """The servers of one registry, whose numbers are read at each scrape; and its instruments, if several
    processes share the numbers."""

    def __init__(self, registry: CollectorRegistry) -> None:
        is_shared = "PROMETHEUS_MULTIPROC_DIR" in os.environ or "prometheus_multiproc_dir" in os.environ
        self.servers: weakref.WeakValueDictionary[str, InferenceServer] = weakref.WeakValueDictionary()
        self.instruments = (
            {metric: metric.make_instrument(registry) for metric in _METRICS} if is_shared else None
        )
        self._written: dict[tuple[_Metric, tuple[str, ...]], Any] = {}
        self._histograms: dict[tuple[_Metric, tuple[str, ...]], list[Any]] = {}
        """What each histogram consists of in the files of prometheus_client."""
        if is_shared:
            _begin_to_write()
        else:
            registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """The metrics without samples, so that the registry refuses others of the same names."""
        return [metric.make_family() for metric in _METRICS]

    def collect(self) -> Iterable[Metric]:
        """The metrics as they are now."""
        families = {metric: metric.make_family() for metric in _METRICS}
        with _LOCK:
            samples = list(_read_samples(self.servers, is_shared=False))
        for metric, labels, value in samples:
            families[metric].add_metric(
                labels, *(_sum_buckets(metric.buckets, value) if metric.kind is Histogram else (value,))
            )
        return list(families.values())

    def write(self) -> None:
        """Add to the instruments by how much the numbers have grown since the last time. The caller holds
        `_LOCK`."""
        if self.instruments is None:
            return
        for metric, labels, value in _read_samples(self.servers, is_shared=True):
            if metric.kind is Gauge:
                self.instruments[metric].labels(*labels).set(value)
                continue
            now = np.array(
                [*_count_buckets(metric.buckets, value), value.sum] if metric.kind is Histogram else [value],
                float,
            )
            growth = now - self._written.get((metric, labels), 0.0)
            self._written[metric, labels] = now
            if growth.min() < 0:  # they have begun again at zero
                growth = now
            if metric.kind is Counter:
                self.instruments[metric].labels(*labels).inc(growth[0])
            elif growth.any():
                if (metric, labels) not in self._histograms:
                    self._histograms[metric, labels] = _make_histogram(metric, labels)
                for part, amount in zip(self._histograms[metric, labels], growth.tolist(), strict=True):
                    part.inc(amount)


def _make_histogram(metric: _Metric, labels: tuple[str, ...]) -> list[Any]:
    """The buckets and the sum, as a `Histogram` makes them, which takes one value at a time; its instrument
    only keeps the name."""
    names, bounds = (*_LABELS, *metric.labels), [*(str(float(bound)) for bound in metric.buckets), "+Inf"]
    parts = [(f"{metric.name}_bucket", (*names, "le"), (*labels, bound)) for bound in bounds]
    return [
        values.ValueClass("histogram", metric.name, *part, metric.text)
        for part in [*parts, (f"{metric.name}_sum", names, labels)]
    ]


_PAGES: Final[weakref.WeakKeyDictionary[CollectorRegistry, _Page]] = weakref.WeakKeyDictionary()
"""One set of metrics for each registry, which refuses the same names twice."""


@cache
def _begin_to_write() -> None:
    """Write the numbers every second, in this process and in its forks, and once more at the end."""
    # nothing is being written at the moment of a fork, so no lock of the numbers is held
    if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
        os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)
        os.register_at_fork(after_in_child=_start_thread)
    atexit.register(_write_pages)
    _start_thread()


def _start_thread() -> None:
    threading.Thread(target=_write_often, daemon=True, name="oip_asgi prometheus").start()


def _write_often() -> None:
    while True:
        time.sleep(_SECONDS)
        _write_pages()


def _write_pages() -> None:
    with _LOCK:
        for page in list(_PAGES.values()):
            page.write()


def _read_samples(servers: Mapping[str, InferenceServer], *, is_shared: bool) -> _Samples:
    """The numbers of all servers, with all their labels."""
    for name, server in sorted(servers.items()):
        for numbers in server.statistics():
            for metric, more, value in _read_numbers(numbers, is_shared=is_shared):
                if value is not None:
                    yield metric, (name, numbers.name, numbers.version or "", *more), value


def _count_buckets(buckets: Sequence[float], histogram: Counts) -> list[int]:
    """How many values are in each bucket, and above all of them."""
    counts = [0, *accumulate(histogram.counts)]
    bounds = [0, *(bisect_left(histogram.bounds, bound) + 1 for bound in buckets), len(counts) - 1]
    return [counts[high] - counts[low] for low, high in pairwise(bounds)]


def _sum_buckets(buckets: Sequence[float], histogram: Counts) -> tuple[list[tuple[str, float]], float]:
    bounds = [*(str(float(bound)) for bound in buckets), "+Inf"]
    return list(zip(bounds, accumulate(_count_buckets(buckets, histogram)), strict=True)), histogram.sum
