"""A BentoML service that also speaks the Open Inference Protocol. BentoML's own method answers at /square.

pip install bentoml -e '.[examples]'
bentoml serve --working-dir examples/model_servers --port 8000 bentoml_service:Numbers    serves on http://127.0.0.1:8000

The models of the InferenceServer run in the service's workers: BentoML's batching is for its own methods.
"""

from __future__ import annotations

import bentoml
import numpy as np
from starlette.applications import Starlette

from oip_asgi import InferenceServer, OIPApp

server = InferenceServer("beside-bentoml")


@server.model("double")
def double(x: np.ndarray) -> np.ndarray:
    return x * 2


# around OIPApp, because BentoML's own mount would redirect a bare /v2
app = Starlette()
OIPApp(server).install(app, "/v2")


@bentoml.asgi_app(app, path="/")
@bentoml.service(workers=1)
class Numbers:
    """The service, with the protocol at /v2."""

    @bentoml.api  # type: ignore[untyped-decorator]  # BentoML has no types
    def square(self, x: float) -> float:
        return x**2
