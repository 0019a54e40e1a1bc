"""The table of gRPC's paths through every way in over HTTP: a service and a method behind the mount run one, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pytest
from fastapi import Depends, FastAPI
from litestar import Litestar, asgi
from litestar.types import Receive, Scope, Send
from starlette.applications import Starlette
from starlette.routing import Mount

from oip_asgi import InferenceServer, OIPApp, OIPMiddleware
from oip_asgi.grpc import OIPGRPCApp
from tests.support.grpc_asgi import GRPC, WEB, Got, call, frame
from tests.support.grpc_demo import TWO_FLOATS, fp32
from tests.support.grpc_ways import SERVICE, wire_request
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


@dataclass(frozen=True)
class Host:
    """An application, the path at which the one who made it has put it, and the `root_path` that the server in front names."""

    make: Callable[[InferenceServer], Any]
    prefix: str = ""
    root_path: str = ""


def installed(host: Any, server: InferenceServer, **options: Any) -> Any:
    OIPApp(server).install(host, grpc=True, **options)
    return host


def in_litestar(server: InferenceServer) -> Litestar:
    grpc_app = OIPGRPCApp(server)

    @asgi(grpc_app.paths, is_mount=True, copy_scope=False)
    async def services(scope: Scope, receive: Receive, send: Send) -> None:
        await grpc_app(scope, receive, send)  # type: ignore[arg-type]  # Litestar has ASGI types of its own

    return Litestar([services], logging_config=None)


def under(prefix: str, app: Any) -> Starlette:
    return Starlette(routes=[Mount(prefix, app)])


HOSTS: Final = {
    "alone": Host(OIPGRPCApp),
    "alone, root path": Host(OIPGRPCApp, "/api", "/api"),
    "alone, root path that a proxy cuts off": Host(OIPGRPCApp, "", "/api"),
    "mounted": Host(lambda server: under("/api", OIPGRPCApp(server)), "/api"),
    "mounted twice": Host(lambda server: under("/a", under("/b%20ü", OIPGRPCApp(server))), "/a/b%2520%C3%BC"),
    "Starlette": Host(lambda server: installed(Starlette(), server)),
    "Starlette, mounted": Host(lambda server: under("/api", installed(Starlette(), server)), "/api"),
    "Starlette, root path": Host(lambda server: installed(Starlette(), server), "/api", "/api"),
    "FastAPI": Host(lambda server: installed(FastAPI(), server)),
    "FastAPI, dependencies": Host(lambda server: installed(FastAPI(), server, dependencies=[Depends(lambda: None)])),
    "FastAPI, dependencies, mounted": Host(
        lambda server: under("/api", installed(FastAPI(), server, dependencies=[Depends(lambda: None)])), "/api"
    ),
    "FastAPI, root path that a proxy cuts off": Host(
        lambda server: installed(FastAPI(), server, dependencies=[Depends(lambda: None)]), "", "/api"
    ),
    "middleware": Host(lambda server: OIPMiddleware(other_asgi_app, server, grpc=True)),
    "middleware, mounted": Host(lambda server: under("/api", OIPMiddleware(other_asgi_app, server, grpc=True)), "/api"),
    "middleware, root path": Host(lambda server: OIPMiddleware(other_asgi_app, server, grpc=True), "/api", "/api"),
    "Litestar": Host(in_litestar),
    "Litestar, mounted": Host(lambda server: under("/api", in_litestar(server)), "/api"),
}
MOUNTED_BY_HAND: Final = {
    "health": Host(lambda server: under(f"/{HEALTH}", OIPGRPCApp(server)), f"/{HEALTH}"),
    "health, by a middleware": Host(lambda server: under(f"/{HEALTH}", OIPMiddleware(other_asgi_app, server, grpc=True)), f"/{HEALTH}"),
    "health, nested": Host(lambda server: under("/api", under(f"/{HEALTH}", OIPGRPCApp(server))), f"/api/{HEALTH}"),
}
"""Where only health is served: no path behind it is that of another service."""


class Served:
    """A host with a server, and the calls of its model."""

    def __init__(self, host: Host) -> None:
        self._host, self.calls, server = host, list[str](), InferenceServer()

        @server.model("echo")
        def echo(x: Any) -> Any:
            self.calls.append("echo")
            return x

        self._app = host.make(server)
        self._loops = Loops()

    def ask(self, path: str, content_type: str = GRPC, body: bytes = ECHO) -> Got:
        self.calls.clear()
        return self._loops.run(call(self._app, self._host.prefix + path, body, content_type, root_path=self._host.root_path))


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
        assert got.refusal == ("OK", ""), name
        assert TWO_FLOATS in got.body, name
        assert served[name].calls == ["echo"], name


@pytest.mark.parametrize("content_type", [GRPC, WEB])
@pytest.mark.parametrize("path", BAD)
def test_any_other_path_runs_nothing(served: dict[str, Served], path: str, content_type: str) -> None:
    for name in HOSTS:
        got = served[name].ask(path, content_type)
        assert served[name].calls == [], name
        assert TWO_FLOATS not in got.body, name
        if is_grpc(got):  # else the host has answered
            assert got.refusal[0] == "UNIMPLEMENTED", name


@pytest.mark.parametrize("path", BAD)
def test_what_the_client_is_told(served: dict[str, Served], path: str) -> None:
    assert served["alone"].ask(path).refusal == ("UNIMPLEMENTED", f"unknown method {path!r}")


@pytest.mark.parametrize("path", [*GOOD, *BAD, "/ModelInfer"])
def test_a_mount_at_one_service_serves_no_other(served: dict[str, Served], path: str) -> None:
    for name in MOUNTED_BY_HAND:
        got = served[name].ask(path)
        assert served[name].calls == [], name
        assert not is_grpc(got) or got.refusal[0] == "UNIMPLEMENTED", name


@pytest.mark.parametrize("name", [name for name in MOUNTED_BY_HAND if "middleware" not in name])
def test_a_mount_at_one_service_serves_that_one(served: dict[str, Served], name: str) -> None:
    assert served[name].ask("/Check", body=frame(b"")).refusal == ("OK", "")
