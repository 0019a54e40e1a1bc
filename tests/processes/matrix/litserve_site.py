"""A LitServe server around the matrix's: `python -m tests.processes.matrix.litserve_site PORT`."""

from __future__ import annotations

import signal
import sys
from typing import Any

import litserve

from oip_asgi import OIPApp

from .models import make_server


class Own(litserve.LitAPI):  # type: ignore[misc]
    """LitServe's own model."""

    def setup(self, device: str) -> None: ...

    def predict(self, request: Any) -> Any:
        return request


if __name__ == "__main__":
    lit = litserve.LitServer(Own(), accelerator="cpu")
    OIPApp(make_server()).install(lit.app, "/v2")
    # as in examples/model_servers/litserve_app.py
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    lit.run(host="127.0.0.1", port=int(sys.argv[1]), num_api_servers=1, generate_client_file=False)
