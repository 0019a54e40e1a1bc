"""Tells those who look here for FastAPI what to write, as there are modules for Flask and Django. Knows
nothing else."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise ImportError(
        "FastAPI and Starlette have no module of their own: write from oip_asgi import OIPApp, and "
        'OIPApp(server).install(app, "/v2")'
    )
