"""The table of gRPC's paths through every way in over HTTP: a service and a method behind the mount run one, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import pytest
from fastapi import Depends, FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount

from oip_asgi import InferenceServer, OIPApp, OIPMiddleware
from oip_asgi.grpc import OIPGRPCApp
from tests.support.grpc_asgi import GRPC, WEB, Got, call, frame
from tests.support.grpc_demo import TWO_FLOATS, fp32
from tests.support.grpc_ways import SERVICE, wire_request
from tests.support.host_ways import litestar_with_grpc
from tests.support.loops import Loops
from tests.support.ways import other_asgi_app

HEALTH: Final = "grpc.health.v1.Health"
REFLECTION: Final = "grpc.reflection.v1.ServerReflection"
INFER: Final = f"{SERVICE}/ModelInfer"
STREAM: Final = f"{SERVICE}/ModelStreamInfer"
ECHO: Final = frame(wire_request("echo", [fp32()], [TWO_FLOATS]).SerializeToString())

GOOD: Final = [f"/{INFER}", f"/{STREAM}"]
BAD: Final = [
    *(f"/{service}/{method}" for service in (HEALTH, REFLECTION, f"{SERVICE}/x", SERVICE) for method in (INFER, STREAM)),
    *(f"/{HEALTH}/x/{INFER}", f"/{HEALTH}/../{INFER}", f"/{HEALTH}/ModelInfer", f"/{HEALTH}/Check/{INFER}"),
    *(f"//{INFER}", f"/{SERVICE}//ModelInfer", f"///{INFER}", f"/{HEALTH}//{INFER}", f"/{INFER}/", f"/{STREAM}/", f"/{INFER}//"),
    *(f"/{SERVICE}%2FModelInfer", f"/{SERVICE}/%4DodelInfer", f"/%69{INFER[1:]}", f"/%69{STREAM[1:]}", f"/{INFER}%2F", f"/%2F{INFER}"),
    *(f"/{HEALTH}%2F{INFER}", f"/{HEALTH}/{SERVICE}%2FModelInfer", f"/{HEALTH}%2F..%2F{INFER}", f"/{SERVICE}/modelinfer"),
    *(f"/x/{INFER}", f"/{SERVICE}x/ModelInfer", f"/{SERVICE}/x/ModelInfer", f"/{SERVICE}/ModelInfer/x", f"/{SERVICE}", "/ModelInfer", "/"),
]
"""Paths as they are sent, behind the mount. Many end with the service and method that run a model."""


def installed(server: InferenceServer, kind: Any = FastAPI, **options: Any) -> Any:
    host = kind()
    OIPApp(server).install(host, grpc=True, **options)
    return host


def guarded(server: InferenceServer) -> Any:
    return installed(server, dependencies=[Depends(lambda: None)])


def in_middleware(server: InferenceServer) -> Any:
    return OIPMiddleware(other_asgi_app, server, grpc=True)


def under(prefix: str, make: Callable[[InferenceServer], Any]) -> Callable[[InferenceServer], Any]:
    return lambda server: Starlette(routes=[Mount(prefix, make(server))])


Host: TypeAlias = tuple[Callable[[InferenceServer], Any], str, str]
"""What makes an application, the path at which the one who made it has put it, and the `root_path` that the server in front names."""

HOSTS: Final[dict[str, Host]] = {
    "alone": (OIPGRPCApp, "", ""),
    "alone, root path": (OIPGRPCApp, "/api", "/api"),
    "alone, root path that a proxy cuts off": (OIPGRPCApp, "", "/api"),
    "mounted twice": (under("/a", under("/b%20ü", OIPGRPCApp)), "/a/b%2520%C3%BC", ""),
    "Starlette": (lambda server: installed(server, Starlette), "", ""),
    "FastAPI, mounted": (under("/api", installed), "/api", ""),
    "FastAPI, root path": (installed, "/api", "/api"),
    "FastAPI, dependencies, mounted": (under("/api", guarded), "/api", ""),
    "FastAPI, dependencies, root path that a proxy cuts off": (guarded, "", "/api"),
    "middleware": (in_middleware, "", ""),
    "middleware, mounted": (under("/api", in_middleware), "/api", ""),
    "middleware, root path": (in_middleware, "/api", "/api"),
    "Litestar, mounted": (under("/api", litestar_with_grpc), "/api", ""),
}
MOUNTED_BY_HAND: Final[dict[str, Host]] = {
    "health": (under(f"/{HEALTH}", OIPGRPCApp), f"/{HEALTH}", ""),
    "health, by a middleware": (under(f"/{HEALTH}", in_middleware), f"/{HEALTH}", ""),
    "health, nested": (under("/api", under(f"/{HEALTH}", OIPGRPCApp)), f"/api/{HEALTH}", ""),
}
"""Where only health is served: no path behind it is that of another service."""


class Served:
    def __init__(self, host: Host) -> None:
        make, self._prefix, self._root_path = host
        self.calls, server = list[str](), InferenceServer()

        @server.model("echo")
        def echo(x: Any) -> Any:
            self.calls.append("echo")
            return x

        self._app = make(server)
        self._loops = Loops()

    def ask(self, path: str, content_type: str = GRPC, body: bytes = ECHO) -> Got:
        self.calls.clear()
        return self._loops.run(call(self._app, self._prefix + path, body, content_type, root_path=self._root_path))


def is_grpc(got: Got) -> bool:
    return got.headers.get("content-type", "").startswith("application/grpc")


@pytest.fixture(scope="module")
def served() -> dict[str, Served]:
    return {name: Served(host) for name, host in {**HOSTS, **MOUNTED_BY_HAND}.items()}


@pytest.mark.parametrize("content_type", [GRPC, WEB])
@pytest.mark.parametrize("path", GOOD)
def test_a_service_and_a_method_run_a_model(served: dict[str, Served], path: str, content_type: str) -> None:
    for name in HOSTS:
        got = served[name].ask(path, content_type)
        assert (got.refusal, TWO_FLOATS in got.body, served[name].calls) == (("OK", ""), True, ["echo"]), name


@pytest.mark.parametrize("content_type", [GRPC, WEB])
@pytest.mark.parametrize("path", BAD)
def test_any_other_path_runs_nothing(served: dict[str, Served], path: str, content_type: str) -> None:
    for name in HOSTS:
        got = served[name].ask(path, content_type)
        assert (served[name].calls, TWO_FLOATS in got.body) == ([], False), name
        if is_grpc(got):  # else the host has answered
            assert got.refusal[0] == "UNIMPLEMENTED", name
        if name == "alone":
            assert got.refusal == ("UNIMPLEMENTED", f"unknown method {path!r}")


@pytest.mark.parametrize("name", MOUNTED_BY_HAND)
def test_a_mount_at_one_service_serves_that_one_and_no_other(served: dict[str, Served], name: str) -> None:
    for path in (*GOOD, *BAD, "/ModelInfer"):
        got = served[name].ask(path)
        assert served[name].calls == [], path
        assert not is_grpc(got) or got.refusal[0] == "UNIMPLEMENTED", path
    if "middleware" not in name:
        assert served[name].ask("/Check", body=frame(b"")).refusal == ("OK", "")
