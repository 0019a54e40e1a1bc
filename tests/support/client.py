"""A client of an application in this process, which shows redirects as they are."""

from __future__ import annotations

from typing import Any

from starlette.testclient import TestClient


class Client(TestClient):
    """Asks an application of Starlette or FastAPI; as a context manager, within its lifespan.

    Args:
        app: The application.
        root_path: What a proxy in front of it has cut off.
    """

    def __init__(self, app: Any, root_path: str = "") -> None:
        super().__init__(app, root_path=root_path, follow_redirects=False)
