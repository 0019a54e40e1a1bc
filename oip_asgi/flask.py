"""The adapter for Flask: a blueprint, so that the application's `before_request`, authentication and limits
apply.

Knows Flask's request and response; the answers come from the core, through `wsgi`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from typing import Any
from urllib.parse import quote

import msgspec

from ._hosts.frameworks import check_server, make_import_error, name_one

try:
    from flask import Blueprint, Response, current_app, request, stream_with_context
    from flask.sansio.blueprints import BlueprintSetupState
except ImportError as error:
    raise make_import_error(error, "flask", "flask") from error
from werkzeug.datastructures import Headers
from werkzeug.exceptions import ClientDisconnected, HTTPException, RequestEntityTooLarge, default_exceptions
from werkzeug.routing import BaseConverter, Map, Rule

from . import wsgi
from ._http.events import Events
from ._http.exchange import list_templates
from ._http.messages import encode_json, prefix_of
from ._http.routes import match_public
from ._io import Fed
from ._protocol.errors import Reader, TooLarge
from .server import InferenceServer


def blueprint(
    server: InferenceServer, name: str = "oip", url_prefix: str = "/v2", *, public: Sequence[str] = ()
) -> Blueprint:
    """A blueprint that serves the protocol: `app.register_blueprint(blueprint(server))`.

    A model reaches Flask's request through `InferenceContext.transport`, the WSGI environ; a `def` model runs
    inside Flask's context too, with `flask.g`, `current_app` and extensions such as Flask-SQLAlchemy.
    `abort(401, "text")` in a `before_request` is answered `{"error": "text"}` on the routes of the protocol,
    and as before on all others.

    Args:
        server: The server whose models it serves.
        name: The blueprint's name, for applications with several.
        url_prefix: Where to; `register_blueprint(..., url_prefix=)` overrides it, as with any blueprint.
        public: What no `before_request` of the blueprint runs before. "health" is live, ready, and each
            model's ready. "docs" is the page at `/docs` with its files, and `/openapi.json`. A
            `before_request` of the application runs before these too: it finds them by `request.blueprint ==
            "oip_public"`.

    Raises:
        TypeError: `server` is no `InferenceServer`.
        ValueError: `public` has an unknown word; or, when it is registered: the prefix does not begin with a
            slash.

    Example:
        >>> served = blueprint(InferenceServer(), public=["health"])
        >>> def check_key() -> None:
        ...     if request.headers.get("x-api-key") != "k":
        ...         abort(401, "send x-api-key")
        >>> _ = served.before_request(check_key)
        >>> app = Flask("app")
        >>> app.register_blueprint(served)
        >>> app.test_client().get("/v2").json
        {'error': 'send x-api-key'}
    """
    check_server(server, "blueprint", "app.register_blueprint(blueprint(server))")
    engine = server._inside.engine
    served, opened = Blueprint(name, __name__, url_prefix=url_prefix), Blueprint(f"{name}_public", __name__)
    for each in (served, opened):
        each.register_error_handler(HTTPException, _answer_abort)
        for code in default_exceptions:  # Flask prefers an application's handler of a code to ours of a class
            each.register_error_handler(code, _answer_abort)
    is_public = re.compile(f"/{match_public(public)}").fullmatch

    def add_rules(state: BlueprintSetupState) -> None:
        # Not `add_url_rule`: it needs a list of methods, and leaves all others and doubled slashes to Flask's
        # own answers
        app, full_name = state.app, f"{state.name_prefix}.{state.name}".lstrip(".")
        prefix = prefix_of(state.url_prefix or "/")
        app.url_map.converters |= {"oip_anything": _Anything, "oip_public": _Public}
        # not a part of any other blueprint, whose hooks would run
        open_name = f"{full_name.replace('.', '_')}_public"
        rules = [
            (path, path.replace("{", "<").replace("}", ">"), name, bool(is_public(path)))
            for path, name in list_templates(engine, prefix)
        ]
        rules.append(("/{oip_path}", "/<oip_anything:oip_path>", "other", False))
        if public:
            app.register_blueprint(opened, name=open_name)
            rules.append(
                ("/{oip_path}", f"/<oip_public({','.join(map(repr, public))}):oip_path>", "other", True)
            )
        paths = {f"{prefix}{rule}" or "/": path for path, rule, _, _ in rules}
        for _, rule, name, is_open in rules:
            endpoint = f"{open_name if is_open else full_name}.{name}"
            app.view_functions[endpoint] = _make_view(name, server, paths, is_open)
            app.url_map.add(
                Rule(
                    f"{prefix}{rule}" or "/",
                    endpoint=endpoint,
                    subdomain=state.subdomain,
                    merge_slashes=False,
                )
            )

    served.record(add_rules)
    return served


def _refuse_uncalled(*_: object) -> None:
    raise TypeError(
        "the function blueprint is no blueprint: write "
        "app.register_blueprint(oip_asgi.flask.blueprint(server))"
    )


blueprint.register = _refuse_uncalled  # type: ignore[attr-defined]


def _make_view(
    name: str, server: InferenceServer, paths: Mapping[str, str], is_open: bool
) -> Callable[..., Response]:
    """Make a view of a name. `paths` has the path below the mount by rule."""

    def view(**variables: str) -> Response:  # a prefix may have some of its own
        assert request.url_rule is not None
        path = paths[request.url_rule.rule].format_map(variables)
        head = wsgi.make_head(request.environ, path, request.environ)
        if is_open:
            head.path = quote(path)  # the path that was found open, and no other spelling of it
        stream = _Stream("stream" in vars(request))  # a cached property
        response, body = wsgi.answer(server, head, stream, _feed)
        answer = Response(
            stream_with_context(body) if type(response) is Events else list(body), response.status
        )
        # our headers alone: Flask would add a content type to an empty answer
        answer.headers = Headers(wsgi.convert_headers(response))
        return answer

    view.__module__, view.__name__, view.__qualname__ = "oip_asgi", name, name
    return view


def _answer_abort(error: HTTPException) -> Any:
    """Answer what the application's own code aborted with, such as in a `before_request`."""
    if error.response is not None or error.code is None or error.code < 400:
        return error  # a response of its own, or a redirect
    headers = [
        (name, value) for name, value in error.get_headers(request.environ) if name.lower() != "content-type"
    ]
    return Response(
        encode_json({"error": str(error.description or error.name)}),
        error.code,
        headers,
        content_type="application/json",
    )


class _Public(BaseConverter):
    """The paths that these words name."""

    part_isolating = False
    weight = 50  # before `_Anything`

    def __init__(self, url_map: Map, *words: str) -> None:
        super().__init__(url_map)
        self.regex = match_public(words)


class _Anything(BaseConverter):
    """Any rest of a path, slashes and line ends included."""

    regex = r"[\s\S]*"
    part_isolating = False


class _Stream(msgspec.Struct, eq=False):
    """Reads Flask's own stream, which respects MAX_CONTENT_LENGTH; or the body that Flask kept, if a
    `before_request` has read it.

    A body that comes in one piece stays there for an `after_request`. A long one is not kept beside its
    tensors.
    """

    is_begun: bool  # whether something has read of it
    _is_new: bool = True

    def read(self, size: int, /) -> bytes:
        chunk = request.stream.read(size)
        was_new, self._is_new = self._is_new, False
        if not was_new:
            return chunk
        if not chunk:
            return request.get_data()
        if len(chunk) == request.content_length:
            request.stream = BytesIO(chunk)
        return chunk


def _feed(stream: wsgi.Stream, body: Fed, begun: bytes) -> Any:
    assert isinstance(stream, _Stream)
    try:
        return wsgi.feed(
            stream, body, begun, _find_reader if stream.is_begun else None, is_taken=stream.is_begun
        )
    except RequestEntityTooLarge:
        raise TooLarge(
            f"the body is larger than {request.max_content_length} bytes, Flask's MAX_CONTENT_LENGTH"
        ) from None
    except ClientDisconnected:
        return body.finish(cut_off=True)


def _find_reader() -> Reader:
    """Find the functions of `before_request` that may have read the body."""
    functions = current_app.before_request_funcs
    names = [
        getattr(each, "__name__", str(each))
        for scope in (None, *request.blueprints)
        for each in functions.get(scope, ())
    ]
    return Reader(
        name_one("function of before_request", "the functions of before_request", names), "request.get_data()"
    )
