"""The adapter for Flask: a blueprint, so that the application's `before_request`, authentication and limits apply.

Knows Flask's request and response; the answers come from the core, through `wsgi`.
"""

from __future__ import annotations

from typing import Any

from ._hosts import check_server, make_import_error

try:
    from flask import Blueprint, Response, request, stream_with_context
    from flask.sansio.blueprints import BlueprintSetupState
except ImportError as error:
    raise make_import_error(error, "flask", "flask") from error
from werkzeug.exceptions import ClientDisconnected, RequestEntityTooLarge
from werkzeug.routing import BaseConverter, Rule

from . import wsgi
from ._http.request import prefix_of
from ._protocol.effects import Fed, Start
from ._protocol.errors import TooLarge
from .server import InferenceServer


def blueprint(server: InferenceServer, name: str = "oip", url_prefix: str = "/v2") -> Blueprint:
    """A blueprint that serves the protocol: `app.register_blueprint(blueprint(server))`.

    A model reaches Flask's request through `InferenceContext.transport`, the WSGI environ; a `def` model runs inside Flask's
    context too, with `flask.g`, `current_app` and extensions such as Flask-SQLAlchemy.

    Args:
        server: The server whose models it serves.
        name: The blueprint's name, for applications with several.
        url_prefix: Where to; `register_blueprint(..., url_prefix=)` overrides it, as with any blueprint.

    Raises:
        TypeError: `server` is no `InferenceServer`.
        ValueError: When it is registered: the prefix does not begin with a slash.
    """
    check_server(server, "blueprint", "app.register_blueprint(blueprint(server))")
    served = Blueprint(name, __name__, url_prefix=url_prefix)

    def view(path: str | None = None, **_: object) -> Response:  # a prefix may have variables of its own
        head = wsgi.head(request.environ, "" if path is None else f"/{path}", request.environ)
        response, body = wsgi.answer(server, head, _Stream(), _feed)
        if type(response) is Start:
            return Response(stream_with_context(body), response.status, wsgi.headers(response))
        made = Response(list(body), response.status, wsgi.headers(response))
        if not wsgi.has_type(response):
            del made.headers["Content-Type"]
        return made

    def add_rules(state: BlueprintSetupState) -> None:
        # Not `add_url_rule`: it needs a list of methods, and leaves all others and doubled slashes to Flask's own answers
        endpoint = f"{state.name_prefix}.{state.name}.v2".lstrip(".")
        prefix = prefix_of(state.url_prefix or "/")
        state.app.view_functions[endpoint] = view
        state.app.url_map.converters["oip_anything"] = _Anything
        for rule in (prefix or "/", f"{prefix}/<oip_anything:path>"):
            state.app.url_map.add(Rule(rule, endpoint=endpoint, subdomain=state.subdomain, merge_slashes=False))

    served.record(add_rules)
    return served


class _Anything(BaseConverter):
    """Any rest of a path, slashes and line ends included."""

    regex = r"[\s\S]*"
    part_isolating = False


class _Stream:
    """Reads Flask's own stream, which respects MAX_CONTENT_LENGTH; or the body that Flask kept, if a `before_request` has read it."""

    def __init__(self) -> None:
        self._is_new = True

    def read(self, size: int, /) -> bytes:
        chunk = request.stream.read(size)
        was_new, self._is_new = self._is_new, False
        return chunk or (request.get_data() if was_new else b"")


def _feed(stream: wsgi.Stream, body: Fed) -> Any:
    try:
        return wsgi.feed(stream, body)
    except RequestEntityTooLarge:
        raise TooLarge(f"the body is larger than {request.max_content_length} bytes, Flask's MAX_CONTENT_LENGTH") from None
    except ClientDisconnected:
        return body.finish(cut_off=True)
