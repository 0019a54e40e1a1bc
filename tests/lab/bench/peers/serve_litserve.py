"""LitServe with the models of `tests.lab.bench`: `python -m tests.lab.bench.peers.serve_litserve PORT`.

It has one worker process for each model, as it always does, and JSON of its own: its documentation lets the user decode and encode it.
"""

# without postponed annotations: LitServe reads that of `decode_request`

import signal
import sys
from collections.abc import Callable
from typing import Any, Final

import litserve
import numpy as np
import pandas as pd
from fastapi import Request

from tests.lab.bench.functions import classifier, clicks, has_onnx, identity, onnx


class Served(litserve.LitAPI):  # type: ignore[misc]
    """One model.

    Args:
        name: Its path, and what `MODELS` calls it.
    """

    def __init__(self, name: str) -> None:
        super().__init__(api_path=f"/{name}")
        self.name = name

    def setup(self, device: str) -> None:
        make, self.decode, self.encode = MODELS[self.name]
        self.function = make()

    def decode_request(self, request: Request):  # type: ignore[no-untyped-def]  # with a type of its result, LitServe would check it
        return self.decode(request)

    def predict(self, x: Any) -> Any:
        return self.function(x)

    def encode_response(self, output: Any) -> Any:
        return self.encode(output)


def _decoded_image(request: Any) -> Any:
    return np.array(request["image"], np.float32)


def _encoded_digits(digits: Any) -> Any:
    return {"digit": digits.tolist()}


def _frame(request: Any) -> Any:
    return pd.DataFrame(request["rows"])


MODELS: Final[dict[str, tuple[Callable[[], Any], Callable[[Any], Any], Callable[[Any], Any]]]] = {
    "identity": (lambda: identity, lambda request: np.array(request["x"], np.float32), lambda y: {"y": y.tolist()}),
    "digits": (lambda: classifier().predict, _decoded_image, _encoded_digits),
    "onnx": (onnx, _decoded_image, _encoded_digits),
    "clicks": (lambda: clicks, _frame, lambda frame: {"chance": frame["chance"].tolist()}),
    "frame": (lambda: identity, _frame, lambda frame: {"rows": frame.to_dict("records")}),
    "strings": (lambda: identity, lambda request: request["texts"], lambda texts: {"texts": texts}),
}
"""For each model: what makes its function, and how its requests are read and its responses written."""


def main() -> None:
    port = int(sys.argv[1])
    # LitServe ends its worker processes after this signal only
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    served = [Served(name) for name in MODELS if name != "onnx" or has_onnx()]
    server = litserve.LitServer(served, accelerator="cpu", healthcheck_path="/health/live")
    server.run(host="127.0.0.1", port=port, num_api_servers=1, log_level="warning", generate_client_file=False, access_log=False)


if __name__ == "__main__":
    main()
