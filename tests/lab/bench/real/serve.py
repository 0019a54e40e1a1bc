"""A server process of this benchmark: `python -m tests.lab.bench.real.serve HOST APP PORT`.

HOST is the server, and APP what it serves, as `tests.lab.bench.real.servers` names them. Some servers import the application
themselves: it is `app` of this module, made when it is asked for.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..serve import echo, uvicorn_settings

if TYPE_CHECKING:
    from ..models import Run

APP: Final = "BENCH_APP"
"""The variable of the environment that names the application."""

TARGET: Final = f"{__package__}.serve:app"


def _own(run: Run) -> Any:
    from oip_asgi import OIPApp

    from .models import make_real_server

    return OIPApp(make_real_server(run))


def _own_wsgi() -> Any:
    from oip_asgi import OIPWSGIApp

    from .models import make_real_server

    return OIPWSGIApp(make_real_server("thread"))


def _by_hand() -> Any:
    from .hand import make_app

    return make_app()


APPS: Final[Mapping[str, Callable[[], Any]]] = {
    "echo": lambda: echo,
    "def": lambda: _own("thread"),
    "inline": lambda: _own("inline"),
    "async": lambda: _own("async"),
    "WSGI": _own_wsgi,
    "FastAPI": _by_hand,
}


def __getattr__(name: str) -> Any:
    if name == "app":
        return APPS[os.environ[APP]]()
    raise AttributeError(name)


def _uvicorn(port: int, settings: Mapping[str, Any]) -> None:
    import uvicorn

    app = APPS[os.environ[APP]]()
    # on a busy machine the usual five seconds close connections that are in use
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning", access_log=False, timeout_keep_alive=75, **settings)


def _command(name: str, *arguments: str) -> None:
    """Become a program of this environment."""
    program = Path(sys.executable).with_name(name)
    os.execv(program, [str(program), *arguments, TARGET])


def _gunicorn_settings(port: int) -> list[str]:
    return ["--bind", f"127.0.0.1:{port}", "--keep-alive", "75", "--log-level", "warning"]


def _granian_settings(port: int) -> list[str]:
    return ["--port", str(port), "--no-access-log", "--log-level", "warning"]


HOSTS: Final[Mapping[str, Callable[[int], None]]] = {
    "uvicorn": lambda port: _uvicorn(port, uvicorn_settings()),
    "uvicorn, h11": lambda port: _uvicorn(port, {"loop": "asyncio", "http": "h11"}),
    "zttp": lambda port: _uvicorn(port, {**uvicorn_settings(), "http": "zttp"}),
    "gunicorn": lambda port: _command("gunicorn", "--worker-class", "asgi", *_gunicorn_settings(port)),
    "gunicorn, WSGI": lambda port: _command("gunicorn", "--threads", "8", *_gunicorn_settings(port)),
    "granian": lambda port: _command("granian", "--interface", "asgi", "--loop", "uvloop", *_granian_settings(port)),
    "granian, WSGI": lambda port: _command("granian", "--interface", "wsgi", "--blocking-threads", "8", *_granian_settings(port)),
    "pyvoy": lambda port: _command("pyvoy", "--port", str(port), "--loop", "uvloop", "--log-level", "error"),
}


def is_installed(host: str) -> bool:
    """Whether this environment has the server."""
    return find_spec(host.partition(",")[0]) is not None


def main() -> None:
    host, app, port = sys.argv[1:]
    os.environ[APP] = app
    HOSTS[host](int(port))


if __name__ == "__main__":
    main()
