"""The adapter for Django: URL patterns, so that the project's middleware, its users and sessions apply.

Knows Django's requests and responses, under WSGI and under ASGI; the answers come from the core, through
`wsgi`.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from threading import Lock
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar
from urllib.parse import quote, unquote

from ._hosts.frameworks import check_server, make_import_error

try:
    from asgiref.sync import AsyncToSync, SyncToAsync, sync_to_async
    from django.conf import settings
    from django.core.checks import CheckMessage
    from django.core.checks import Warning as CheckWarning
    from django.core.handlers.asgi import ASGIRequest
    from django.db import close_old_connections, connections, transaction
    from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
    from django.http.response import HttpResponseBase
    from django.urls import ResolverMatch, URLPattern, URLResolver, get_resolver
    from django.urls.resolvers import RegexPattern
    from django.views.decorators.csrf import csrf_exempt
except ImportError as error:
    raise make_import_error(error, "django", "django", beside="asgiref") from error

from . import wsgi
from ._http.events import Events
from ._http.exchange import FIRST_SEGMENTS, exchange, list_templates
from ._http.messages import Head, Response, encode_path
from ._http.routes import match_public
from ._io import Fed, Late, Signal, Work
from ._protocol.errors import Reader
from ._runtime.async_io import AsyncIO, Patrol
from ._runtime.runtime import Runtime, iterate_stream_async
from ._runtime.waiting import Loan, is_on_loop, wait_until_set
from .server import InferenceServer

P = ParamSpec("P")
T = TypeVar("T")

_View: TypeAlias = Callable[..., HttpResponseBase | Awaitable[HttpResponseBase]]

_ANY_PATH: Final = "{path}"
"""The path of what no template takes."""

_KEPT: Final = wsgi.CHUNK
"""The most bytes of a body that are kept beside its tensors."""

_BELOW: Final = r"\A/(?P<path>[\s\S]*)\Z"
"""Everything after "v2"."""

_BELOW_SLASH: Final = rf"\A(?P<path>(?:{'|'.join(FIRST_SEGMENTS)})(?:/[\s\S]*)?)\Z"
"""What after "v2/" begins like the protocol's own paths: "v2" must not take "/v2x" from the project."""


def urls(server: InferenceServer, *, public: Sequence[str] = ()) -> list[URLPattern]:
    """URL patterns that serve the protocol: `path("v2", include(urls(server)))`, without a slash after `v2`.

    With a slash, `path("v2/", ...)`, all of the protocol's paths below it work too; only `/v2` itself is
    redirected by Django, which some clients do not follow, and `manage.py check` says so. The patterns need a
    prefix: at the root of a project, `OIPMiddleware` or `OIPWSGIMiddleware` serves the protocol.

    The view is a plain one, which Django runs in a thread of the request's, also under ASGI. But if an `async
    def`, a generator, or what `load=` returns is among the models, the view is an async one under ASGI: such
    models run on Django's event loop, and streams are sent as they come. Django has `ATOMIC_REQUESTS` for
    plain views only; there, an answer of 400 and above undoes what the request wrote.

    A model reaches Django's request, its user and session, through `InferenceContext.transport`.

    The views need no CSRF token, which clients of the protocol do not have. What a browser sends for a page
    of another site is refused by rules that hold in every host.

    Args:
        server: The server whose models it serves.
        public: What is open to everyone. "health" is live, ready, and each model's ready. "docs" is the page
            at `/docs` with its files, and `/openapi.json`. Their views are marked as `login_not_required`
            does it, which Django's `LoginRequiredMiddleware` looks for. Middleware of your own finds them by
            `resolve(request.path_info).func.login_required`, which is False.

    Raises:
        TypeError: `server` is no `InferenceServer`.
        ValueError: `public` has an unknown word.

    Example:
        >>> urlpatterns = [path("v2", include(urls(InferenceServer(), public=["health"])))]
    """
    check_server(server, "urls", 'path("v2", include(urls(server)))')

    engine, runtime = server._inside
    runtime.background.lend_thread = _LentThread
    runtime.call_after_jobs(_close_connections)
    is_public = re.compile(f"/{match_public(public)}").fullmatch
    paths = [(path, _write_regex(path), name, bool(is_public(path))) for path, name in list_templates(engine)]
    if public:
        paths.append((_ANY_PATH, rf"\A(?P<path>/?{match_public(public)})\Z", "other", True))
    paths += [(f"/{_ANY_PATH}", _BELOW, "other", False), (_ANY_PATH, _BELOW_SLASH, "other", False)]
    return [_Pattern(server, path, regex, name, is_open) for path, regex, name, is_open in paths]


def _write_regex(path: str) -> str:
    """Write the regular expression of a template."""
    parts = re.split(r"\{(\w+)\}", path.removeprefix("/"))
    body = "".join(f"(?P<{part}>[^/]+)" if index % 2 else re.escape(part) for index, part in enumerate(parts))
    return rf"\A{'/?' if path else ''}{body}\Z"


def _make_view(server: InferenceServer, path: str, is_open: bool) -> _View:
    def view(request: HttpRequest, **variables: str) -> HttpResponseBase:  # a prefix may have some of its own
        below = _find_path_below(request, path.format_map(variables))
        head = _make_head(request, below)
        if is_open:
            head.path = quote(below)  # the path that was found open, and no other spelling of it
        answer, body = wsgi.answer(server, head, _Stream(request), _feed)
        if type(answer) is Events and not isinstance(request, ASGIRequest):
            return StreamingHttpResponse(
                body, status=answer.status, headers=dict(wsgi.convert_headers(answer))
            )
        if answer.status >= 400:  # undo what was written, as `ATOMIC_REQUESTS` after a view that raises
            for connection in connections.all(initialized_only=True):
                if connection.settings_dict["ATOMIC_REQUESTS"] and connection.in_atomic_block:
                    connection.set_rollback(True)
        # under ASGI, Django would take all of an iterator before it sends anything, and warn of that
        return _make_response(answer, body)

    view = csrf_exempt(view)
    if is_open:
        view.login_required = False  # type: ignore[attr-defined]
    return view


def _make_async_view(server: InferenceServer, path: str) -> _View:
    engine, runtime = server._inside

    async def view(request: HttpRequest, **variables: str) -> HttpResponseBase:
        head = _make_head(request, _find_path_below(request, path.format_map(variables)))

        async def read(body: Fed) -> Any:
            return await sync_to_async(_feed)(stream, body)

        stream = _Stream(request)
        io = AsyncIO(_RequestThread(runtime), read)
        answer: Response | Events | None = None
        try:
            answer = await exchange(engine, head, io)
        finally:
            if type(answer) is not Events:
                await io.end()
        if isinstance(answer, Events):
            items = answer.items
            pieces = iterate_stream_async(lambda: items, io, answer.first)
            await anext(pieces, None)  # the head
            return StreamingHttpResponse(
                pieces, status=answer.status, headers=dict(wsgi.convert_headers(answer))
            )
        return _make_response(answer, (message for message, _ in answer.messages()))

    # Django 4.2's csrf_exempt makes a plain view of an async one
    view.csrf_exempt = True  # type: ignore[attr-defined]
    for alias in connections:
        # under ATOMIC_REQUESTS Django refuses async views that do not say so
        transaction.non_atomic_requests(alias)(view)
    return view


def _close_connections() -> None:
    """Close what this worker thread need not keep, as Django does in its own threads after each request."""
    with suppress(Exception):
        close_old_connections()


class _LentThread(Loan, Executor):
    """Lets a thread that waits for the background event loop run, meanwhile, what the coroutine passes to
    asgiref's `sync_to_async`.

    asgiref runs that in the thread that called the coroutine, as it may use that thread's database
    connections. If the thread only waited, the two would wait for each other. After `end`, jobs are passed to
    asgiref's own thread.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._serves = True
        self._before: Any = None

    def take(self) -> None:
        self._before = getattr(AsyncToSync.executors, "current", None)
        AsyncToSync.executors.current = self

    def give_back(self) -> None:
        # before asgiref 3.9, the caller's own context has the same value
        AsyncToSync.executors.current = self._before

    def submit(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        with self._lock:
            if self._serves:
                self._jobs.put(partial(_run_job, future, partial(function, *args, **kwargs)))
                return future
        return SyncToAsync.single_thread_executor.submit(function, *args, **kwargs)

    def wait(self, awaited: Future[Any]) -> None:
        """Run what is submitted until a future is done."""
        awaited.add_done_callback(lambda _: self._jobs.put(None))
        work = vars(SyncToAsync.threadlocal)  # asgiref writes here which event loop this thread works for
        before = dict(work)
        try:
            while (job := self._jobs.get()) is not None:
                job()
        finally:
            work.clear()
            work.update(before)

    def end(self) -> None:
        """Take no more jobs, as the coroutine has ended. Those that wait still run."""
        with self._lock:
            self._serves = False


def _run_job(future: Future[T], function: Callable[[], T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = function()
    except BaseException as error:
        future.set_exception(error)
        del future  # the traceback refers to this frame: without this it would be a cycle
    else:
        future.set_result(result)


class _Pattern(URLPattern):
    """Matches what comes after a prefix with or without a slash at its end. Says which template that is."""

    def __init__(self, server: InferenceServer, path: str, regex: str, name: str, is_open: bool) -> None:
        view = _make_view(server, path, is_open)
        self._server, self._path, self._is_last = server, path, regex == _BELOW_SLASH
        self._views = (view, view if is_open else _make_async_view(server, path))
        for each in self._views:
            each.__module__, each.__name__, each.__qualname__ = "oip_asgi", name, name
        super().__init__(RegexPattern(regex, is_endpoint=True), view)

    def resolve(self, path: str) -> ResolverMatch | None:
        match: ResolverMatch | None = super().resolve(path)
        if match is not None:
            route = (
                "/<path:path>"
                if self._path.endswith(_ANY_PATH)
                else self._path.replace("{", "<").replace("}", ">")
            )
            match.route = route if path.startswith("/") else route.removeprefix("/")
        return match

    @property
    def callback(self) -> _View:
        if not is_on_loop():  # Django looks for a view on its event loop, and under WSGI it has none
            return self._views[0]
        return self._views[any(model.is_async for model in self._server._inside.engine.models)]

    @callback.setter
    def callback(self, _: _View) -> None:
        """Ignore it: Django's own class sets it once."""

    def check(self) -> list[CheckMessage]:
        """Check the prefix, for `manage.py check`."""
        prefixes = _find_prefixes(self, get_resolver(), "") if self._is_last else ()  # once
        return [*super().check(), *(message for before in prefixes for message in _list_warnings(before))]


def _find_prefixes(pattern: URLPattern, resolver: URLResolver, before: str) -> Iterator[str]:
    """Find the prefix of a pattern in each place of the URL configuration that includes it."""
    for each in resolver.url_patterns:
        if each is pattern:
            yield before
        elif isinstance(each, URLResolver):
            for prefix in _find_prefixes(pattern, each, f"{before}{each.pattern}"):
                yield prefix


def _list_warnings(before: str) -> Iterator[CheckMessage]:
    if not before:
        yield CheckWarning(
            "The URL patterns of oip_asgi are included at the root, where they answer the project's home "
            "page.",
            hint=(
                'Write path("v2", include(urls(server))), or put OIPMiddleware or OIPWSGIMiddleware around '
                "the application."
            ),
            obj=f'path("{before}", include(urls(server)))',
            id="oip_asgi.W002",
        )
    elif before.endswith("/"):
        bare = before.removesuffix("/")
        yield CheckWarning(
            f'The prefix "{before}" of the URL patterns of oip_asgi ends in a slash, so Django itself '
            f'answers "/{bare}", by a redirect to '
            f'"/{before}" or with 404. Clients such as tritonclient ask it for the server\'s metadata, and '
            "follow no redirects.",
            hint=f'Write path("{bare}", include(urls(server))), without the slash.',
            obj=f'path("{before}", include(urls(server)))',
            id="oip_asgi.W001",
        )


def _find_path_below(request: HttpRequest, path: str) -> str:
    """Find the path below the mount, also if the prefix has taken its slash."""
    below = path if not path or path.startswith("/") else f"/{path}"
    if not request.path_info.endswith(below):
        raise Http404
    return below


class _RequestThread:
    """Runs functions in the thread that Django keeps for a request's blocking code under ASGI, as it manages
    its database connections."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.patrol = Patrol()

    def here(self) -> _RequestThread:
        return self

    def begin(
        self,
        function: Callable[[], T],
        work: Work,
        after: Signal | None = None,
        deadline: float = math.inf,
        late: Late | None = None,
    ) -> asyncio.Future[T]:
        if deadline != math.inf:  # one of our threads, which need not be waited for: Django waits for its own
            return self._runtime.here().begin(function, work, after, deadline, late)
        return asyncio.ensure_future(self._run(function, after))

    async def _run(self, function: Callable[[], T], after: Signal | None) -> T:
        if after is not None:
            await wait_until_set(after)
        return await sync_to_async(function)()


def _make_head(request: HttpRequest, path: str) -> Head:
    head = wsgi.make_head(request.META, path, request)
    head.mount = _find_mount
    if isinstance(request, ASGIRequest):
        raw_path: bytes | None = request.scope.get("raw_path")
        target = None if raw_path is None else raw_path.decode("latin-1")
        head.path, head.body_is_bounded = encode_path(path, target), True
    return head


def _find_mount(head: Head) -> str:
    """Find the path of the mount as clients see it: everything in front of the request's own path."""
    return str(head.transport.path).removesuffix(unquote(head.path))


class _Stream:
    """Reads a request's body. Up to `_KEPT` bytes, `request.body` keeps it for middleware, as it does for a
    view that looks at it."""

    def __init__(self, request: HttpRequest) -> None:
        meta = request.META
        # Django takes a body without a length for empty, even if the server marks its end
        has_end_only = not meta.get("CONTENT_LENGTH") and meta.get("wsgi.input_terminated")
        self._stream: wsgi.Stream = meta["wsgi.input"] if has_end_only else request
        self._request = request
        self.is_taken = getattr(request, "_read_started", False) and not hasattr(request, "_body")

    def read(self, size: int, /) -> bytes:
        request, limit = self._request, settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        most = _KEPT if limit is None else min(limit, _KEPT)
        if (
            not self.is_taken
            and self._stream is request
            and int(request.META.get("CONTENT_LENGTH") or most + 1) <= most
        ):
            _ = request.body  # from now on, `request` reads that
        return self._stream.read(size)


def _feed(stream: wsgi.Stream, body: Fed, begun: bytes = b"") -> Any:
    assert isinstance(stream, _Stream)
    reader = partial(Reader, "middleware of the application", "request.body") if stream.is_taken else None
    return wsgi.feed(stream, body, begun, reader, is_taken=stream.is_taken)


def _make_response(response: Response | Events, body: Iterator[bytes]) -> HttpResponse:
    answer = HttpResponse(body, status=response.status, headers=dict(wsgi.convert_headers(response)))
    if b"content-type" not in dict(response.headers):  # an empty one has none, and Django would add HTML
        del answer["Content-Type"]
    return answer
