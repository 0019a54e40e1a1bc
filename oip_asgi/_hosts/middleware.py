"""The middleware of an application: what it is called, what it does not see, what it may do to a request or its response.

Knows frameworks by the names of their classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from .._protocol.errors import Reader
from .body_readers import READ_ASYNC, name_one
from .given import is_framework

if TYPE_CHECKING:
    from starlette.types import Scope


def iterate_applications(app: object) -> Iterator[object]:
    """Yield an application, and the applications inside its middleware, from the outside to the inside."""
    for _ in range(100):
        yield app
        app = getattr(app, "app", None)
        if app is None:
            return


_FRAMEWORKS_OWN: Final = frozenset({"ServerErrorMiddleware", "ExceptionMiddleware", "AsyncExitStackMiddleware", "TrailersMiddleware"})


def describe_middleware(host: object, path: str) -> str:
    """Say which middleware is in and around an application, from the outside to the inside, and how to put it before the protocol too."""
    names: list[str] = []
    advice = "put it around OIPMiddleware"
    for app in iterate_applications(host):
        if is_framework(app, "starlette", "Starlette") or is_framework(app, "starlette", "Router"):
            names += [_name_middleware(each.cls, each.kwargs.get("dispatch")) for each in getattr(app, "user_middleware", ())]
            advice = f'write OIPApp(server).install(app, "{path}")'
        elif is_framework(app, "litestar", "Litestar"):
            names += [_name_middleware(getattr(each, "middleware", each)) for each in getattr(app, "middleware", ())]
            advice = f'mount OIPApp(server) with @asgi("{path}", is_mount=True, copy_scope=False)'
        elif is_framework(app, "django", "ASGIHandler"):
            from django.conf import settings

            names += settings.MIDDLEWARE
            advice = f'write path("{path.strip("/")}", include(oip_asgi.django.urls(server)))'
        elif getattr(app, "app", None) is not None:
            names.append(_name_middleware(type(app), getattr(app, "dispatch_func", None)))
    named = ", ".join(name for name in names if name not in _FRAMEWORKS_OWN)
    return named and f"OIPMiddleware answers {path} before this middleware, which does not see it: {named}. If it should, {advice}"


def describe_before_request(host: object, path: str) -> str:
    """Say which `before_request` functions a Flask application has inside its WSGI middleware, and how to put them before the protocol."""
    owners = (getattr(each, "__self__", each) for each in iterate_applications(host))  # of a bound method, such as Flask's `wsgi_app`
    app = next((each for each in owners if is_framework(each, "flask", "Flask")), None)
    named = ", ".join(_name_middleware(each) for each in getattr(app, "before_request_funcs", {}).get(None, ()))
    return named and (
        f"OIPWSGIMiddleware answers {path} before these functions of before_request, which do not see it: {named}. If they should, write "
        f'app.register_blueprint(oip_asgi.flask.blueprint(server, url_prefix="{path}"))'
    )


def _name_middleware(kind: object, dispatch: object = None) -> str:
    named = kind if dispatch is None else dispatch  # the function of @app.middleware("http")
    return str(getattr(named, "__name__", named))


def drops_trailers(host: object) -> bool:
    """True if middleware of a Starlette application drops the trailers of a mounted application, or of an `OIPMiddleware` inside it."""
    for middleware in getattr(host, "user_middleware", None) or ():  # from the outside to the inside
        kinds = [kind.__name__ for kind in getattr(getattr(middleware, "cls", None), "__mro__", ())]
        if "OIPMiddleware" in kinds and middleware.kwargs.get("grpc"):
            return False
        if "BaseHTTPMiddleware" in kinds:
            return True
    return False


def find_reader(scope: Scope) -> Reader:
    """Find the middleware of a Starlette application that may have read a request's body, which only one of `BaseHTTPMiddleware` can."""
    middleware = getattr(scope.get("app"), "user_middleware", None) or ()
    kinds = [each for each in middleware if "BaseHTTPMiddleware" in [kind.__name__ for kind in getattr(each.cls, "__mro__", ())]]
    names = [_name_middleware(each.cls, each.kwargs.get("dispatch")) for each in kinds]
    return Reader(name_one("middleware", "the middleware", names), READ_ASYNC)
