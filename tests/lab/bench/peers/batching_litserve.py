"""LitServe with one model and its own batches: `python batching_litserve.py MODEL PORT`."""

from __future__ import annotations

import signal
import sys
from typing import Any

import litserve as ls
import numpy as np
from batching_models import models


class API(ls.LitAPI):  # type: ignore[misc]
    """One image a request."""

    def setup(self, device: Any) -> None:
        self.model = models()[sys.argv[1]]

    def decode_request(self, request):  # type: ignore[no-untyped-def]  # it takes what is annotated for a parameter of the query
        return np.asarray(request["x"], np.float32)

    def predict(self, x: Any) -> Any:
        return self.model(x)

    def unbatch(self, output: Any) -> Any:
        return list(output)

    def encode_response(self, output: Any) -> Any:
        return {"y": int(output)}


if __name__ == "__main__":
    # LitServe ends its worker processes after this signal only
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    api = API(max_batch_size=64, batch_timeout=0.002, api_path=f"/{sys.argv[1]}")
    server = ls.LitServer(api, accelerator="cpu", workers_per_device=1)
    server.run(port=int(sys.argv[2]), num_api_servers=1, generate_client_file=False, log_level="warning")
