"""MLServer with one model and its adaptive batches: `python batching_mlserver.py MODEL PORT`.

Without worker processes, as in `serve_mlserver`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from typing import Any

import numpy as np
from batching_models import models
from mlserver import MLModel, MLServer, ModelSettings, Settings
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse
from mlserver.utils import install_uvloop_event_loop


class Digits(MLModel):  # type: ignore[misc]
    """One image a request."""

    async def load(self) -> bool:
        self.model = models()[self.name]
        return True

    async def predict(self, payload: Any) -> Any:
        x = self.decode(payload.inputs[0], default_codec=NumpyCodec)
        return InferenceResponse(model_name=self.name, outputs=[NumpyCodec.encode_output("y", self.model(x.astype(np.float32)))])


async def main() -> None:
    logging.disable(logging.INFO)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        grpc_port = unused.getsockname()[1]
    settings = Settings(http_port=int(sys.argv[2]), grpc_port=grpc_port, metrics_endpoint=None, debug=False, parallel_workers=0)
    server = MLServer(settings)
    await server.start([ModelSettings(name=sys.argv[1], implementation=Digits, max_batch_size=64, max_batch_time=0.002)])


if __name__ == "__main__":
    install_uvloop_event_loop()
    asyncio.run(main())
