"""KServe's ModelServer with identity models: `python serve_kserve.py PORT GRPC_PORT`."""

from __future__ import annotations

import logging
import sys
from typing import Any

from kserve import InferOutput, InferResponse, Model, ModelServer
from kserve.utils.utils import generate_uuid, get_predict_response


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


def main() -> None:
    http_port, grpc_port = map(int, sys.argv[1:3])
    server = ModelServer(http_port=http_port, grpc_port=grpc_port, workers=1, enable_latency_logging=False)
    logging.disable(logging.INFO)
    server.start([Identity("identity"), Identity("strings"), Frame("frame")])


if __name__ == "__main__":
    main()
