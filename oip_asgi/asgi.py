"""The adapters for ASGI: an application to mount, and a middleware. They translate messages, and decide only
what ASGI forces them to.

Knows scopes and messages; the answers come from the core.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import msgspec

from ._asgi_client import AnyASGIApp, Client, answer_other, find_path, run_own_lifespan
from ._docs.documents import list_basis, merge_documents, openapi
from ._hosts.frameworks import (
    check_asgi,
    check_dependencies,
    check_installs_in,
    check_server,
    describe_middleware,
    describe_security,
    find_dependencies,
    find_dependencies_around,
    is_framework,
    iterate_applications,
)
from ._hosts.routes import (
    ANY_PATH,
    HostRoute,
    add_routes,
    check_own_routes,
    check_reachable,
    make_prefix_cutter,
    move_to_end,
)
from ._http.events import Events
from ._http.exchange import exchange, list_templates
from ._http.messages import (
    CLIENT_GONE,
    Head,
    Response,
    encode_path,
    path_under,
    prefix_of,
    respond_unknown_path,
)
from ._http.routes import HEALTH_METHODS, match_public
from ._io import ClientGone
from ._protocol.errors import logger, show
from ._runtime.async_io import AsyncIO
from ._serving.engine import Security
from .server import InferenceServer

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.types import Message, Receive, Scope, Send

    from ._grpc.over_asgi import OIPGRPCApp


class OIPApp:
    """An ASGI application that speaks the Open Inference Protocol, to be mounted in another one.

    `app.mount("/v2", OIPApp(server))` serves everything but a bare `/v2`, which Starlette itself redirects;
    `install` serves that too.

    Args:
        server: The server whose models it serves.
        path: Where it answers, such as "/v2", if nothing mounts it: `uvicorn app:oip_app` is a server then.
            Leave it out for a mount.

    Raises:
        TypeError: `server` is no `InferenceServer`.
        ValueError: The path does not begin with a slash.

    Example:
        >>> app = Starlette()
        >>> OIPApp(InferenceServer()).install(app, "/v2")
    """

    def __init__(self, server: InferenceServer, *, path: str = "/") -> None:
        check_server(
            server, "OIPApp", 'OIPApp(server).install(app, "/v2"), or app.mount("/v2", OIPApp(server))'
        )
        self._server = server
        self._prefix = prefix_of(path)
        self._mount = partial(_find_mount, self._prefix)
        self._host: object = None

    def _check_host(self, host: object) -> None:
        """Check the application in which it is mounted."""
        self._host = host
        if find_dependencies_around(host, self):
            logger.warning(
                "FastAPI runs no dependencies before what is mounted, so those of the application or router "
                "do not protect OIPApp: "
                'write OIPApp(server).install(app, "/v2"), to which the application\'s apply, and which '
                "takes dependencies=[Depends(...)]"
            )

    async def _refuse_path(self, path: str, scope: Scope, send: Send) -> None:
        root = scope.get("root_path", "").rstrip("/")
        mount = root.removeprefix(scope.get("app_root_path", root).rstrip("/"))  # the rest is a proxy's
        response = respond_unknown_path(path, root, self._prefix, mount)
        await send({"type": "http.response.start", "status": response.status, "headers": response.headers})
        await send({"type": "http.response.body", "body": b"".join(response.parts), "more_body": False})

    async def __call__(self, scope: Scope, receive: Receive, send: Send, path: str | None = None) -> None:
        """Answer a request. Who knows its `path` below the mount already, such as "/health/live", says it; ""
        is the mount itself."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":  # nothing mounts it
                _log_page(self._server, self._prefix)
            await answer_other(self._server, scope, receive, send, "OIPApp answers HTTP only")
            return
        if path is None:
            path = find_path(scope) if scope.get("root_path") else scope["path"]
            rest = path_under(path, self._prefix) if self._prefix else path
            if rest is None:
                await self._refuse_path(path, scope, send)
                return
            path, host = rest, scope.get("app")
            if host is not self._host:
                self._check_host(host)
        raw_path: bytes | None = scope.get("raw_path")
        path = encode_path(path, None if raw_path is None else raw_path.decode("latin-1"))
        head = Head(scope["method"], path, list(scope["headers"]), True, scope, self._mount)
        engine, runtime = self._server._inside
        body = first = None
        if 0 < head.short_length <= engine.short_body:
            first = await receive()
            if (
                first["type"] == "http.request"
                and len(first.get("body", b"")) == head.short_length
                and not first.get("more_body", False)
            ):
                body = first["body"]
        may_have_body = body is None and (
            head.method == "POST" or b"content-length" in head.fields or b"transfer-encoding" in head.fields
        )
        client = Client(scope, receive, send, runtime, first, may_have_body)
        io = AsyncIO(runtime, client.read, client.is_gone, push=client.push)
        try:
            answer = await exchange(engine, head, io, body)
            if type(answer) is Events:
                await client.send_events(answer, io)
                return
        except ClientGone:
            if client.has_begun:
                return
            answer = CLIENT_GONE
        finally:
            if io.here is not None:  # else it has not waited, and has nothing to end
                await io.end()
        assert type(answer) is Response
        # a copy, as middleware may add to it, and some responses are made once
        await send({"type": "http.response.start", "status": answer.status, "headers": [*answer.headers]})
        for part, more in answer.messages():
            await send({"type": "http.response.body", "body": part, "more_body": more})

    # a server of WSGI passes two arguments, and what Python says of the third begins with this name
    __call__.__qualname__ = (
        "OIPApp is an ASGI application, and a WSGI server or application called it: write "
        "OIPWSGIApp(server). __call__"
    )

    def install(
        self,
        app: Starlette,
        path: str = "/v2",
        *,
        grpc: bool = False,
        dependencies: Sequence[Any] = (),
        public: Sequence[str] = (),
        openapi: bool = True,
    ) -> None:
        """Serve the protocol at `path` of a Starlette or FastAPI application, the bare path included.

        The models load when the application's own lifespan has started, and end before it does. The
        dependencies of a FastAPI application, `FastAPI(dependencies=[Depends(check_key)])`, run before the
        protocol's paths too. The `HTTPException` of a dependency is answered with its status, its headers,
        and its text as `{"error": text}`. The OpenAPI documents have the security of the dependencies, such
        as `Security(APIKeyHeader(name="x-api-key"))`.

        Args:
            app: The application. There is a new route for each endpoint, such as "/v2/models/{name}/infer",
                and one for all else under the path. They come after its own, and its lifespan starts and ends
                the server too. Its middleware stays as it is; with `grpc`, one more is put around it, which
                passes trailers on.
            path: Where to, such as "/v2".
            grpc: Whether gRPC and gRPC-Web are served too, at the paths of their services, such as
                "/inference.GRPCInferenceService/ModelInfer". It needs the extra `[grpc-asgi]`, and a server
                with HTTP/2 trailers for gRPC.
            dependencies: More of FastAPI's dependencies, for the protocol only: `[Depends(check_key)]`.
            public: What no dependency runs before, also none of the application. "health" is live, ready, and
                each model's ready, over gRPC too. "docs" is the page at `/docs` with its files, and
                `/openapi.json`. Middleware still runs before them.
            openapi: Whether FastAPI's own document, and so its `/docs`, has the paths of the models too. It
                has not if the server has `docs=False` or `authorize=`, or the application's OpenAPI has
                version 3.0.

        Raises:
            TypeError: `app` is no application of Starlette or FastAPI; the text says what to write for
                others.
            ValueError: The path does not begin with a slash, an earlier route answers everything under it or
                a service of gRPC, `public` has an unknown word, or this `OIPApp` has a `path` of its own.
            ImportError: `grpc` is asked for, and protobuf is not installed.

        Example:
            >>> def check_key(key=Security(APIKeyHeader(name="x-api-key"))): ...
            >>> app = FastAPI()
            >>> dependencies = [Depends(check_key)]
            >>> OIPApp(InferenceServer()).install(app, "/v2", dependencies=dependencies, public=["health"])
        """
        check_installs_in(app)
        if self._prefix:
            raise ValueError(
                "path= is for an OIPApp that nothing mounts: write OIPApp(server).install(app, "
                f'"{self._prefix}")'
            )
        check_dependencies(dependencies)
        if (dependencies or public) and not is_framework(app, "fastapi", "FastAPI"):
            option = "dependencies" if dependencies else "public"
            raise TypeError(f"{option}= is for FastAPI applications: for Starlette, use middleware")
        prefix, open_paths = prefix_of(path), match_public(public)
        grpc_app = _make_grpc_app(self._server) if grpc else None
        services = grpc_app.paths if grpc_app is not None else ()
        check_reachable(app, app.router.routes, prefix, services)
        routes = _list_routes(self, prefix, open_paths if public else None)
        if grpc_app is not None:
            routes += _list_grpc_routes(grpc_app, "health" in public)
            _carry_trailers(app)
        added = add_routes(app, routes, dependencies)
        engine = self._server._inside.engine
        if dependencies or find_dependencies(app):
            engine.security = Security(*describe_security(app, dependencies), open_paths)
        if openapi:
            _add_to_openapi(app, self._server, path)
        host_lifespan = app.router.lifespan_context

        @asynccontextmanager
        async def lifespan(host: Any) -> AsyncIterator[Any]:
            check_own_routes(app, added, prefix, services)
            move_to_end(app, added, prefix, services)
            _log_page(self._server, prefix)
            if openapi:  # again, as the application may have replaced its own after the install
                _add_to_openapi(app, self._server, path)
            async with host_lifespan(host) as state, self._server.lifespan():
                yield state

        app.router.lifespan_context = lifespan


class _Document:
    """FastAPI's `app.openapi`, which has the paths of a server too."""

    def __init__(self, host: Callable[[], dict[str, Any]], server: InferenceServer, path: str) -> None:
        self._host, self._server, self._path = host, server, path
        self._kept: tuple[list[object] | None, bytes] = None, b""
        """What it was made from, and its JSON: as dicts it would take seven times as much memory."""

    def __call__(self) -> dict[str, Any]:
        engine = self._server._inside.engine
        kept, registered = self._kept, list_basis(engine)
        if kept[0] != registered:  # FastAPI asks for each GET, on the event loop
            kept = self._kept = registered, msgspec.json.encode(openapi(engine, prefix_of(self._path)))
        return merge_documents(self._host(), msgspec.json.decode(kept[1]))

    def is_of(self, server: InferenceServer, path: str) -> bool:
        """True if it has the paths of this server."""
        mine = self._server is server and self._path == path
        return mine or (isinstance(self._host, _Document) and self._host.is_of(server, path))


def _add_to_openapi(app: Any, server: InferenceServer, path: str) -> None:
    """Add the paths of a server to what `app.openapi` returns, if they are not there."""
    engine = server._inside.engine
    # one document for all cannot leave out what `authorize=` refuses to one of them
    if not hasattr(app, "openapi") or not engine.options.docs or engine.guard is not None:
        return
    if not (isinstance(app.openapi, _Document) and app.openapi.is_of(server, path)):
        app.openapi = _Document(app.openapi, server, path)


def _list_routes(app: OIPApp, prefix: str, open_paths: str | None) -> list[HostRoute]:
    """List the routes of REST below a prefix. What matches `open_paths` is open."""
    cut = make_prefix_cutter(prefix)

    def serve(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        path: str = find_path(scope) if scope.get("root_path") else scope["path"]
        rest, root = cut(path), scope.get("root_path", "")
        # the scope that a mount would give
        mounted = {
            **scope,
            "app_root_path": scope.get("app_root_path", root),
            "root_path": root + path.removesuffix(rest),
        }
        return app(mounted, receive, send, rest)

    def is_open(scope: Scope) -> object:
        raw_path: bytes | None = scope.get("raw_path")
        return matches(
            encode_path(cut(find_path(scope)), None if raw_path is None else raw_path.decode("latin-1"))
        )

    matches = re.compile(f"/{open_paths}").fullmatch
    templates = [
        (f"{prefix}{path}" or "/", name) for path, name in list_templates(app._server._inside.engine, prefix)
    ]
    return [
        HostRoute(path, name, serve, None if open_paths is None else is_open)
        for path, name in [*templates, (prefix + ANY_PATH, "other")]
    ]


def _list_grpc_routes(app: OIPGRPCApp, is_health_open: bool) -> list[HostRoute]:
    def is_open(scope: Scope) -> bool:
        return find_path(scope) in HEALTH_METHODS

    paths = [*app.methods, *(f"{path}{end}" for path in app.paths for end in ("", ANY_PATH))]
    return [
        HostRoute(
            path,
            path[path.rfind("/") + 1 :] if path in app.methods else "other",
            app,
            is_open if is_health_open else None,
        )
        for path in paths
    ]


def _carry_trailers(app: Starlette) -> None:
    from ._grpc.over_asgi import TrailersMiddleware

    build = app.build_middleware_stack
    # around all middleware, also what is added later
    app.build_middleware_stack = lambda: TrailersMiddleware(build())  # type: ignore[method-assign]
    if app.middleware_stack is not None:  # it has answered requests before
        app.middleware_stack = TrailersMiddleware(app.middleware_stack)


class OIPMiddleware:
    """Serves the protocol at a path of any ASGI application, and passes everything else to that application.

    The models load with the application's lifespan; for applications that have none, the middleware answers
    it.

    Args:
        app: The application around which it is put.
        server: The server whose models it serves.
        path: Where to, such as "/v2".
        grpc: As in `OIPApp.install`.

    Raises:
        TypeError: `app` is no ASGI application, or `server` no `InferenceServer`, such as if they are
            swapped.
        ValueError: The path does not begin with a slash, or it is put around a FastAPI application with
            dependencies.
        ImportError: `grpc` is asked for, and protobuf is not installed.

    Example:
        >>> async def application(scope, receive, send): ...
        >>> app = OIPMiddleware(application, InferenceServer(), "/v2")
    """

    def __init__(
        self, app: AnyASGIApp, server: InferenceServer, path: str = "/v2", *, grpc: bool = False
    ) -> None:
        self._server = server
        check_asgi(app, "OIPMiddleware(app, server), the application first")
        check_server(server, "OIPMiddleware", "OIPMiddleware(app, server), the application first")
        if any(map(find_dependencies, iterate_applications(app))):
            raise ValueError(
                "OIPMiddleware answers before the dependencies of the FastAPI application run, so they "
                "would not protect the protocol: "
                f'write OIPApp(server).install(app, "{path}"), to which they apply'
            )
        self._app = OIPApp(server, path=path)
        self._prefix = prefix_of(path)
        self._host = app
        self._grpc_app = _make_grpc_app(server) if grpc else None
        self._is_checked = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # at the first request, as middleware may be added inside after this one was made
        if not self._is_checked:
            self._is_checked = True
            inside = describe_middleware(self._host, self._prefix or "/")
            if inside:
                logger.warning(inside)
        if scope["type"] == "lifespan":
            _log_page(self._server, self._prefix)
            await _run_shared_lifespan(self._host, self._server, scope, receive, send)
            return
        if scope["type"] == "http":
            path = find_path(scope)
            rest, grpc_app = path_under(path, self._prefix), self._grpc_app
            if rest is not None:
                await self._app(scope, receive, send, rest)
                return
            if grpc_app is not None and any(
                path_under(path, service) is not None for service in grpc_app.paths
            ):
                await grpc_app(scope, receive, send)
                return
        await self._host(scope, receive, send)


def _log_page(server: InferenceServer, prefix: str) -> None:
    options = server._inside.engine.options
    if options.docs:
        logger.info("the page of server %s is at %s/docs", show(options.name), prefix)


def _make_grpc_app(server: InferenceServer) -> OIPGRPCApp:
    from ._grpc.over_asgi import OIPGRPCApp

    return OIPGRPCApp(server)


def _find_mount(prefix: str, head: Head) -> str:
    """Find the path of the mount as clients see it."""
    scope = head.transport
    named: str = scope.get("root_path", "").rstrip("/") + prefix
    path = unquote((scope.get("raw_path") or b"").decode("latin-1").partition("?")[0])
    in_front = path.removesuffix("/").removesuffix(unquote(head.path).removesuffix("/"))
    return in_front if in_front != path and in_front.startswith(named) else named


async def _run_shared_lifespan(
    host: AnyASGIApp, server: InferenceServer, scope: Scope, receive: Receive, send: Send
) -> None:
    """Run the host's lifespan with the server's inside: start the server after the host, and stop it before
    the host has ended."""
    answered = received = False
    async with AsyncExitStack() as stack:

        async def receive_through() -> Message:
            nonlocal received
            received = True
            return await receive()

        async def send_with_server(message: Message) -> None:
            nonlocal answered
            answered = True
            if message["type"] == "lifespan.startup.complete":
                await stack.enter_async_context(server.lifespan())
            elif message["type"].startswith("lifespan.shutdown"):
                await stack.aclose()
            await send(message)

        try:
            await host(scope, receive_through, send_with_server)
        except Exception:
            if answered:
                raise
    if not answered:
        # the host does not know the protocol, which it shows by raising: Django does, for one
        await run_own_lifespan(server, receive, send, received=received)
