"""KServe's ModelServer with identity models: `python -m tests.lab.bench.peers.serve_kserve PORT GRPC_PORT`."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

from kserve import InferOutput, InferResponse, Model, ModelServer
from kserve.utils.utils import generate_uuid, get_predict_response

from tests.lab.bench import functions


class Identity(Model):  # type: ignore[misc]
    """An array in, an array out."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.ready = True

    async def predict(self, payload: Any, headers: Any = None, response_headers: Any = None) -> Any:
        x = payload.inputs[0].as_numpy()
        output = InferOutput("y", list(x.shape), payload.inputs[0].datatype)
        output.set_data_from_numpy(x, binary_data=payload.use_binary_outputs)
        return InferResponse(payload.id or generate_uuid(), self.name, [output], use_binary_outputs=payload.use_binary_outputs)


class Frame(Identity):
    """A data frame in, a data frame out."""

    async def predict(self, payload: Any, headers: Any = None, response_headers: Any = None) -> Any:
        return get_predict_response(payload, payload.as_dataframe(), self.name)


class Digits(Identity):
    """An image in, a digit out.

    Args:
        name: Of the model.
        function: What is called.
    """

    def __init__(self, name: str, function: Callable[[Any], Any]) -> None:
        super().__init__(name)
        self.function = function

    async def predict(self, payload: Any, headers: Any = None, response_headers: Any = None) -> Any:
        digits = self.function(payload.inputs[0].as_numpy())
        output = InferOutput("digit", list(digits.shape), "INT64")
        output.set_data_from_numpy(digits, binary_data=payload.use_binary_outputs)
        return InferResponse(payload.id or generate_uuid(), self.name, [output], use_binary_outputs=payload.use_binary_outputs)


class Clicks(Digits):
    """A data frame in, a data frame out."""

    async def predict(self, payload: Any, headers: Any = None, response_headers: Any = None) -> Any:
        return get_predict_response(payload, self.function(payload.as_dataframe()), self.name)


def real_models() -> list[Model]:
    """Those that call the functions that all servers call."""
    models = [Digits("digits", functions.classifier().predict), Clicks("clicks", functions.clicks)]
    return models + ([Digits("onnx", functions.onnx())] if functions.has_onnx() else [])


def main() -> None:
    http_port, grpc_port = map(int, sys.argv[1:3])
    models = [Identity("identity"), Identity("strings"), Frame("frame"), *(real_models() if functions.has_sklearn() else [])]
    if "--echo" in sys.argv:
        models = [Identity(f"echo-{datatype}") for datatype in ("FP32", "INT32", "BOOL", "BYTES")]
    server = ModelServer(http_port=http_port, grpc_port=grpc_port, workers=1, enable_latency_logging=False)
    logging.disable(logging.INFO)
    server.start(models)


if __name__ == "__main__":
    main()
