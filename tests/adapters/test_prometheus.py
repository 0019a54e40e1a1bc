"""A server's numbers on a page of Prometheus, read by the client's own parsers."""

from __future__ import annotations

import contextlib
import gc
import math
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("prometheus_client", reason="needs the extra [prometheus]")
from prometheus_client import CollectorRegistry, Counter, generate_latest, values
from prometheus_client.mmap_dict import MmapedDict
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from oip_asgi import InferenceError, InferenceServer, Observation, OIPApp, ResponseCache, TensorSpec
from oip_asgi.prometheus import instrument
from tests.support.inside import count_response, is_idle, set_clock, statistics_of, write_no_longer
from tests.support.inside.numbers import write_numbers
from tests.support.talk import block_until
from tests.support.ways import Request, over_asgi

EMPTY = Request("POST", "/models/m/infer", (), b'{"inputs":[]}')
BUCKETS = ["0.0005", "0.001", "0.0025", "0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1.0", "2.5", "5.0", "10.0", "30.0", "+Inf"]
KINDS = {
    "oip_requests": "counter",
    "oip_inferences": "counter",
    "oip_executions": "counter",
    "oip_cache_hits": "counter",
    "oip_cache_misses": "counter",
    "oip_out_of_range": "counter",
    "oip_request_duration_seconds": "histogram",
    "oip_queue_duration_seconds": "histogram",
    "oip_execution_duration_seconds": "histogram",
    "oip_first_response_duration_seconds": "histogram",
    "oip_batch_rows": "histogram",
    "oip_observations_dropped": "counter",
    "oip_requests_in_progress": "gauge",
    "oip_model_ready": "gauge",
    "oip_model_load_duration_seconds": "gauge",
}


MORE_LABELS = {
    "oip_requests": {"outcome"},
    "oip_request_duration_seconds": {"outcome"},
    "oip_requests_in_progress": {"state"},
    "oip_out_of_range": {"input"},
}


def make_server(name: str = "shop", **options: Any) -> InferenceServer:
    server = InferenceServer(name)
    server.register("m", lambda: 1, **options)
    return server


def send(server: InferenceServer, request: Request = EMPTY) -> int:
    return over_asgi(OIPApp(server), "")(request).status


class Page:
    def __init__(self, registry: CollectorRegistry) -> None:
        write_numbers()  # which a thread does every second
        self.families = list(parse_text(generate_latest(registry).decode()))
        self.samples = {
            (sample.name, frozenset(sample.labels.items())): sample.value for family in self.families for sample in family.samples
        }

    def value(self, name: str, /, server: str = "shop", model: str = "m", version: str = "", **labels: str) -> float | None:
        wanted = {"server": server, "model": model, "version": version, **labels}
        return self.samples.get((name, frozenset(wanted.items())))

    def models(self) -> set[str]:
        return {dict(labels)["model"] for _, labels in self.samples}


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def several_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", "unused")


def test_every_metric_has_its_kind_and_labels_in_both_formats(registry: CollectorRegistry) -> None:
    server = make_server()
    instrument(server, registry)
    assert send(server) == 200
    count_response(statistics_of(server, "m"), 0, "success", 0.1, 0.1, since=0.3)
    text = generate_latest(registry).decode()
    assert {family.name: family.type for family in parse_text(text)} == KINDS
    page = openmetrics.generate_latest(registry).decode()  # type: ignore[no-untyped-call]
    assert page.endswith("# EOF\n")
    families = list(parse_openmetrics(page))  # type: ignore[no-untyped-call]
    assert {family.name: family.type for family in families} == KINDS
    assert {family.name: family.unit for family in families} == {name: "seconds" if name.endswith("_seconds") else "" for name in KINDS}
    for family in families:
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == {"server", "model", "version"} | MORE_LABELS.get(family.name, set())


def test_the_files_of_several_processes_count_as_the_collector_does(
    registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """prometheus_client decides at its import whether it writes files: in the tests beside this one, instruments keep numbers in memory."""
    server = make_server()
    server.register("raises", lambda: 1 // 0, version="3", load=lambda: None)
    server.register("kept", lambda: 1, cache=ResponseCache())
    instrument(server, registry)
    several, files = CollectorRegistry(), CollectorRegistry()
    opened: list[Any] = []

    def open_file(path: str) -> Any:
        opened.append(MmapedDict(path))  # type: ignore[no-untyped-call]
        return opened[-1]

    monkeypatch.setattr(values, "MmapedDict", open_file)
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    monkeypatch.setattr(values, "ValueClass", values.MultiProcessValue())  # type: ignore[no-untyped-call]
    instrument(server, several)
    MultiProcessCollector(files)  # type: ignore[no-untyped-call]

    @server.model("stream")
    def stream() -> Iterator[int]:
        yield from range(3)

    for _ in range(3):
        assert send(server) == 200
        assert send(server, Request("POST", "/models/kept/infer", (), b'{"inputs":[]}')) == 200
    assert send(server, Request("POST", "/models/m/infer", (), b"[]")) == 400
    assert send(server, Request("POST", "/models/raises/infer", (), b'{"inputs":[]}')) == 500
    assert send(server, Request("POST", "/models/nobody/infer", (), b'{"inputs":[]}')) == 404
    assert send(server, Request("POST", "/models/stream/generate_stream", (), b"{}")) == 200
    one, other = Page(registry).samples, Page(files).samples
    write_no_longer(several)
    for file in opened:  # prometheus_client leaves that to the end of the process
        file.close()

    def counts(samples: dict[Any, float]) -> dict[Any, float]:
        """What is no time, and not when something was made; zeros apart, which an instrument has for all outcomes at once."""
        timed = ("_created", "_seconds_sum", "_seconds_bucket", "_duration_seconds")
        return {key: value for key, value in samples.items() if value and not key[0].endswith(timed)}

    assert counts(one) == counts(other)
    assert counts(one)["oip_batch_rows_count", frozenset({"server": "shop", "model": "m", "version": ""}.items())] == 3


def test_outcomes_and_durations_are_counted(registry: CollectorRegistry) -> None:
    server = make_server()

    @server.model("raises", version="3")
    def raises() -> int:
        time.sleep(0.011)
        raise ValueError("on purpose")

    instrument(server, registry)
    assert [send(server) for _ in range(3)] == [200] * 3
    assert send(server, Request("POST", "/models/m/infer", (), b"[]")) == 400
    assert send(server, Request("POST", "/models/raises/infer", (), b'{"inputs":[]}')) == 500
    page = Page(registry)
    for outcome, count in {"ok": 3, "invalid": 1, "busy": 0, "timeout": 0, "cancelled": 0, "failed": 0}.items():
        assert page.value("oip_requests_total", outcome=outcome) == count
    assert page.value("oip_requests_total", model="raises", version="3", outcome="failed") == 1
    assert (page.value("oip_inferences_total"), page.value("oip_executions_total")) == (3, 3)
    assert (page.value("oip_executions_total", model="raises", version="3"), page.value("oip_batch_rows_sum")) == (1, 3)
    for name, labels in (("request", {"outcome": "ok"}), ("queue", {}), ("execution", {})):
        bounds = [page.value(f"oip_{name}_duration_seconds_bucket", le=bound, **labels) for bound in BUCKETS]
        assert None not in bounds
        assert bounds == sorted(bounds, key=float)  # type: ignore[arg-type]
        assert bounds[-1] == page.value(f"oip_{name}_duration_seconds_count", **labels) == 3
        total = page.value(f"oip_{name}_duration_seconds_sum", **labels)
        assert total is not None
        assert 0 <= total < math.inf
    for outcome, ended in {"ok": 0, "failed": 1, "timeout": None}.items():
        assert page.value("oip_request_duration_seconds_count", model="raises", version="3", outcome=outcome) == ended
    assert page.value("oip_request_duration_seconds_bucket", model="raises", version="3", outcome="failed", le="0.01") == 0


@pytest.mark.parametrize("bound", [0.0005, 0.01, 0.25, 1.0, 30.0])
def test_a_duration_on_a_bound_is_in_its_bucket(registry: CollectorRegistry, bound: float) -> None:
    server, now = InferenceServer("shop"), [0.0]

    @server.model("m", run="inline")
    def model() -> int:
        now[0] += bound
        return 1

    set_clock(server, lambda: now[0])
    instrument(server, registry)
    assert send(server) == 200
    page = Page(registry)
    counts = {name: page.value("oip_request_duration_seconds_bucket", outcome="ok", le=name) for name in BUCKETS}
    assert counts == {name: float(float(name) >= bound) for name in BUCKETS}


def test_metrics_of_the_host_with_the_same_name_are_refused(registry: CollectorRegistry) -> None:
    Counter("oip_requests", "The host's own.", registry=registry)
    with pytest.raises(ValueError, match="oip_requests"):
        instrument(make_server(), registry)


def test_what_only_some_models_have(registry: CollectorRegistry) -> None:
    """The hits and misses of a cache, values out of range by input, and observations that are dropped."""
    server, leave, entered = make_server(cache=ResponseCache()), threading.Event(), threading.Event()
    specs = [TensorSpec("age", "INT64", [-1], minimum=0), TensorSpec("fee", "FP64", [-1], maximum=1.0), TensorSpec("days", "INT64", [-1])]
    server.register("flag", lambda **inputs: 1, inputs=specs, out_of_range="flag")
    server.register("refuse", lambda **inputs: 1, inputs=specs)
    instrument(server, registry)
    assert [send(server) for _ in range(3)] == [200] * 3
    for age in (-1, 1, -1):
        server.infer_sync("flag", {"age": [age], "fee": [0.5], "days": [-1]})
    page = Page(registry)
    assert (page.value("oip_cache_hits_total"), page.value("oip_cache_misses_total")) == (2, 1)
    assert page.value("oip_requests_total", outcome="ok") == page.value("oip_request_duration_seconds_count", outcome="ok") == 3
    assert (page.value("oip_inferences_total"), page.value("oip_executions_total")) == (1, 1)
    assert page.value("oip_cache_hits_total", model="flag") is None
    assert [page.value("oip_out_of_range_total", model="flag", input=name) for name in ("age", "fee", "days")] == [2, 0, None]
    assert page.value("oip_out_of_range_total", model="refuse", input="age") is None

    def slow(_: Observation) -> None:
        entered.set()
        assert leave.wait(10)

    server.observe(slow, max_queue=1)
    assert Page(registry).value("oip_observations_dropped_total") is None
    assert send(server) == 200
    assert entered.wait(10)
    assert [send(server) for _ in range(4)] == [200] * 4
    assert Page(registry).value("oip_observations_dropped_total") == 3
    leave.set()
    server.stop()


def test_gauges_show_what_waits_and_runs_and_what_is_ready(registry: CollectorRegistry) -> None:
    server = InferenceServer("shop")
    seen: list[Page] = []

    @server.model("m", max_concurrency=1, run="inline")
    def model() -> int:
        seen.append(Page(registry))
        return 1

    server.register("loads", lambda: 1, load=lambda: time.sleep(0.002))
    instrument(server, registry)
    before = Page(registry)
    assert (before.value("oip_model_ready"), before.value("oip_model_ready", model="loads")) == (1, 0)
    assert before.value("oip_model_load_duration_seconds", model="loads") is None
    assert send(server) == 200
    server.start()
    after = Page(registry)
    assert [page.value("oip_requests_in_progress", state="running") for page in (before, *seen, after)] == [0, 1, 0]
    assert after.value("oip_requests_in_progress", state="waiting") == 0
    assert after.value("oip_model_ready", model="loads") == 1
    assert (after.value("oip_model_load_duration_seconds", model="loads") or 0) >= 0.002
    server.stop()
    assert Page(registry).value("oip_model_ready", model="loads") == 0


@pytest.mark.usefixtures("several_processes")
@pytest.mark.parametrize("options", [{"timeout": 60}, {"run": "inline"}], ids=["def", "inline"])
def test_gauges_of_several_processes_follow_whatever_ends(registry: CollectorRegistry, options: dict[str, Any]) -> None:
    server = InferenceServer("shop")
    seen: list[Page] = []

    @server.model("m", max_concurrency=1, unload=lambda: None, allow_timeout_override=True, **options)
    def model(x: Any) -> Any:
        seen.append(Page(registry))
        if x[0] == 1:
            raise ValueError("on purpose")
        if x[0] == 2:
            time.sleep(0.1)
        return x

    instrument(server, registry)

    def values(page: Page) -> list[float | None]:
        in_progress = [page.value("oip_requests_in_progress", state=state) for state in ("waiting", "running")]
        return [*in_progress, page.value("oip_model_ready")]

    server.infer_sync("m", {"x": [0]})
    assert [values(page) for page in (seen[-1], Page(registry))] == [[0, 1, 1], [0, 0, 1]]
    with pytest.raises(InferenceError, match="failed"):
        server.infer_sync("m", {"x": [1]})
    assert values(Page(registry)) == [0, 0, 1]
    with contextlib.suppress(InferenceError):  # an inline model is not interrupted
        server.infer_sync("m", {"x": [2]}, parameters={"timeout": 50_000})
    block_until(lambda: is_idle(server))
    assert values(Page(registry)) == [0, 0, 1]
    server.unload_sync("m")
    assert values(Page(registry)) == [0, 0, 0]
    server.load_sync("m")
    assert values(Page(registry)) == [0, 0, 1]
    server.stop()
    server.start()
    assert values(Page(registry)) == [0, 0, 1]
    server.stop()


@pytest.mark.usefixtures("several_processes")
def test_numbers_of_several_processes_are_written_by_themselves_and_none_is_lost(registry: CollectorRegistry) -> None:
    server, names = InferenceServer("shop"), [f"m{number}" for number in range(60)]
    server.register("m", lambda: 1, max_concurrency=2, max_queue=100)
    instrument(server, registry)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda name: server.register(name, lambda: 1), names))
            list(threads.map(lambda name: server.infer_sync(name, {}), [*names, *["m"] * 100]))
    finally:
        sys.setswitchinterval(before)
    labels = {"server": "shop", "model": "m", "version": ""}
    block_until(lambda: registry.get_sample_value("oip_executions_total", labels) == 100)
    block_until(lambda: is_idle(server))
    page = Page(registry)
    assert [page.value("oip_requests_in_progress", state=state) for state in ("waiting", "running")] == [0, 0]
    assert page.value("oip_requests_total", outcome="ok") == 100
    assert {name: page.value("oip_requests_total", model=name, outcome="ok") for name in names} == dict.fromkeys(names, 1)


def test_statistics_that_are_cleared_begin_again_at_zero_and_several_processes_go_on(request: Any) -> None:
    for several in (False, True):
        if several:
            request.getfixturevalue("several_processes")
        server, registry = make_server(), CollectorRegistry()
        for _ in range(2):  # twice, which counts once
            instrument(server, registry)
        assert send(server) == 200
        assert Page(registry).value("oip_requests_total", outcome="ok") == 1
        statistics_of(server, "m").clear()
        assert Page(registry).value("oip_requests_total", outcome="ok") == several
        assert send(server) == 200
        page = Page(registry)
        assert page.value("oip_requests_total", outcome="ok") == page.value("oip_executions_total") == 1 + several


def test_names_that_clients_make_up_make_no_series_and_models_that_come_later_do(registry: CollectorRegistry) -> None:
    server = make_server()
    instrument(server, registry)
    for name in ("none", "m%0A", "another", "m/versions/9"):
        assert send(server, Request("POST", f"/models/{name}/infer", (), b'{"inputs":[]}')) == 404
    page = Page(registry)
    assert page.models() == {"m", ""}
    assert page.value("oip_requests_total", model="", outcome="invalid") == 4
    assert page.value("oip_requests_total", model="", outcome="ok") is None
    server.register("later", lambda: 1, version="2")
    assert Page(registry).value("oip_requests_total", model="later", version="2", outcome="ok") == 0


def test_servers_are_told_apart_by_their_names(registry: CollectorRegistry, caplog: pytest.LogCaptureFixture) -> None:
    one, two = make_server("one"), make_server("two")
    for server in (one, two, one):  # one of them twice
        instrument(server, registry)
    assert [send(one), send(one), send(two)] == [200] * 3
    page = Page(registry)
    assert [page.value("oip_requests_total", server=name, outcome="ok") for name in ("one", "two")] == [2, 1]
    assert [family.name for family in page.families].count("oip_requests") == 1
    other = CollectorRegistry()
    instrument(one, other)
    assert Page(other).value("oip_requests_total", server="one", outcome="ok") == 2
    assert caplog.messages == []
    # as where a test makes its application anew, while something still holds the last one
    again = make_server("one")
    instrument(again, registry)
    assert send(again) == 200
    assert Page(registry).value("oip_requests_total", server="one", outcome="ok") == 1
    assert caplog.messages == [
        "another server named 'one' was instrumented in this registry, and this one takes its place: if both serve, give each a name, "
        "InferenceServer(name=...), or a registry of its own"
    ]


def test_a_server_that_nobody_has_any_more_leaves_the_page(registry: CollectorRegistry) -> None:
    server = make_server()
    instrument(server, registry)
    del server
    gc.collect()
    assert Page(registry).models() == set()
    again = make_server()
    instrument(again, registry)
    assert send(again) == 200
    assert Page(registry).value("oip_requests_total", outcome="ok") == 1
