"""MLServer with identity models: `python -m tests.lab.bench.peers.serve_mlserver PORT GRPC_PORT [--echo]`.

Without worker processes, which MLServer starts by default: each request would have to travel to one and back.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import Any

from mlserver import MLModel, MLServer, ModelSettings, Settings
from mlserver.codecs import NumpyCodec, PandasCodec, StringCodec
from mlserver.types import InferenceResponse
from mlserver.utils import install_uvloop_event_loop

from tests.lab.bench import functions


class Identity(MLModel):  # type: ignore[misc]
    """An array in, an array out."""

    async def predict(self, payload: Any) -> Any:
        x = self.decode(payload.inputs[0], default_codec=NumpyCodec)
        return InferenceResponse(model_name=self.name, outputs=[NumpyCodec.encode_output("y", x)])


class Strings(MLModel):  # type: ignore[misc]
    """Strings in, strings out."""

    async def predict(self, payload: Any) -> Any:
        x = self.decode(payload.inputs[0], default_codec=StringCodec)
        return InferenceResponse(model_name=self.name, outputs=[StringCodec.encode_output("y", x)])


class Frame(MLModel):  # type: ignore[misc]
    """A data frame in, a data frame out."""

    async def predict(self, payload: Any) -> Any:
        return PandasCodec.encode_response(self.name, self.decode_request(payload, default_codec=PandasCodec))


class Digits(MLModel):  # type: ignore[misc]
    """An image in, a digit out."""

    async def load(self) -> bool:
        self.function = functions.onnx() if self.name == "onnx" else functions.classifier().predict
        return True

    async def predict(self, payload: Any) -> Any:
        x = self.decode(payload.inputs[0], default_codec=NumpyCodec)
        return InferenceResponse(model_name=self.name, outputs=[NumpyCodec.encode_output("digit", self.function(x))])


class Clicks(MLModel):  # type: ignore[misc]
    """A data frame in, a data frame out."""

    async def load(self) -> bool:
        self.function = functions.clicks
        return True

    async def predict(self, payload: Any) -> Any:
        return PandasCodec.encode_response(self.name, self.function(self.decode_request(payload, default_codec=PandasCodec)))


async def main() -> None:
    http_port, grpc_port = map(int, sys.argv[1:3])
    settings = Settings(
        host="127.0.0.1",
        http_port=http_port,
        grpc_port=grpc_port,
        grpc_max_message_length=-1,
        metrics_endpoint=None,
        parallel_workers=0,
        load_models_at_startup=True,
        debug=False,
    )
    server = MLServer(settings)
    models = {"identity": Identity, "strings": Strings, "frame": Frame}
    if functions.has_sklearn():
        models |= {"digits": Digits, "clicks": Clicks} | ({"onnx": Digits} if functions.has_onnx() else {})
    if "--echo" in sys.argv:
        models = {f"echo-{datatype}": Strings if datatype == "BYTES" else Identity for datatype in ("FP32", "INT32", "BOOL", "BYTES")}
    logging.disable(logging.INFO)
    await server.start([ModelSettings(name=name, implementation=model) for name, model in models.items()])


if __name__ == "__main__":
    install_uvloop_event_loop()
    asyncio.run(main())
