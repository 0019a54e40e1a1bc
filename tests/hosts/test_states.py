"""Servers and models in a certain state, or observed, through every way in and every host: each answers alike, byte for byte."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from oip_asgi import InferenceServer, TensorSpec
from tests.support.hearing import Hearing
from tests.support.host_ways import host_ways
from tests.support.talk import block_until
from tests.support.ways import Request, Way, ways_into
from tests.table.row import answer, infer, inputs, tensor

pytestmark = pytest.mark.ci

X = TensorSpec("x", "FP64", [-1])
INFER = infer("m", inputs(tensor("FP64", [1], "[1.0]")))
ANSWER = answer("m", tensor("FP64", [1], "[1.0]", "output_0"))


@contextmanager
def every_way(server: InferenceServer) -> Iterator[dict[str, Way]]:
    with host_ways(server) as hosts:
        yield {**ways_into(server), **{name: way for name, way in hosts.items() if "dependencies" not in name}}


def test_a_server_that_drains() -> None:
    server = InferenceServer()
    server.register("m", lambda x: x, inputs=[X])
    server.drain()
    expected = {
        "/health/live": (200, b'{"live":true}'),
        "/health/ready": (503, b'{"ready":false,"live":true,"reason":"the server is draining"}'),
        "/models/m/ready": (503, b'{"name":"m","ready":false,"reason":"the server is draining"}'),
    }
    with every_way(server) as ways:
        for name, way in ways.items():
            for path, (status, body) in expected.items():
                found = way(Request("GET", path))
                assert (found.status, found.body) == (status, body), (name, path)
            found = way(INFER)
            assert (found.status, found.body) == (200, ANSWER), name
        server.undrain()
        for name, way in ways.items():
            assert [way(Request("GET", path)).status for path in expected] == [200] * 3, name


def test_a_model_that_is_idle() -> None:
    server = InferenceServer()
    server.register("m", load=lambda: lambda x: x, inputs=[X], idle_unload=0.05)
    with every_way(server) as ways:
        for name, way in ways.items():
            server.infer_sync("m", {"x": [1.0]})
            block_until(lambda: server.models()[0].state == "idle")
            for path, body in (("/health/ready", b'{"ready":true,"live":true}'), ("/models/m/ready", b'{"name":"m","ready":true}')):
                found = way(Request("GET", path))
                assert (found.status, found.body) == (200, body), (name, path)
            found = way(Request("POST", "/repository/index"))
            reason = b"unloaded: the next request loads it again"
            assert found.body == b'[{"name":"m","state":"READY","reason":"%b"}]' % reason, name
            found = way(INFER)
            assert (found.status, found.body) == (200, ANSWER), name


def test_a_model_that_is_warmed_up_and_one_that_cannot_be() -> None:
    def load() -> Any:
        seen: list[Any] = []

        def first(x: Any) -> Any:
            seen.append(x.copy())
            return seen[0]  # what the warm-up sent

        return first

    def refuse(x: Any) -> Any:
        raise ValueError

    text = "model 'cold' is not ready: its load failed, see the server's log"
    for place in range(len(ways_into(InferenceServer()))):
        server = InferenceServer()
        server.register("m", load=load, inputs=[X], warm_up=[{"x": [1.0]}])
        server.register("cold", refuse, inputs=[X], warm_up=True)
        way = list(ways_into(server).values())[place]
        found = way(infer("m", inputs(tensor("FP64", [1], "[5.0]"))))
        assert (found.status, found.body) == (200, ANSWER)
        found = way(infer("cold", INFER.body))
        assert (found.status, found.body) == (503, b'{"error":"%b"}' % text.encode())
        assert way(Request("GET", "/models/cold/ready")).status == 503
        server.stop()


def test_a_model_that_is_observed() -> None:
    server, hearing = InferenceServer(), Hearing()
    server.register("m", lambda x: x, inputs=[X])
    server.observe(hearing)
    with every_way(server) as ways:
        for name, way in ways.items():
            found = way(INFER)
            assert (found.status, found.body) == (200, ANSWER), name
            heard = hearing.wait_for_one()
            assert (heard.request and heard.request["x"].tolist()) == [1.0], name
            assert heard.transport is not None, name
