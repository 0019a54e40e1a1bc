"""A BentoML service around the matrix's server: `bentoml serve tests.processes.matrix.bentoml_site:Service`."""

from __future__ import annotations

import bentoml

from .asgi_site import app


@bentoml.asgi_app(app, path="/")
@bentoml.service(workers=1)
class Service:
    """A service with the protocol at /v2, and a method of its own."""

    @bentoml.api  # type: ignore[untyped-decorator]
    def own(self, x: float) -> float:
        return x
