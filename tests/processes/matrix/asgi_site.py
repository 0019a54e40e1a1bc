"""A Starlette application around the matrix's server."""

from __future__ import annotations

from starlette.applications import Starlette

from oip_asgi import OIPApp

from .models import make_server

app = Starlette()
OIPApp(make_server()).install(app, "/v2")
