"""A server with a model for each thing that gRPC has to carry, and the tensors that tests send to it."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
from grpc_health.v1 import health_pb2_grpc

from oip_asgi import InferenceContext, InferenceError, InferenceRequest, InferenceResponse, InferenceServer, Tensor, TensorSpec
from tests.support.grpc_ways import Client


def demo_server() -> InferenceServer:
    server = InferenceServer("demo", "1.2.3")

    @server.model("echo")
    def echo(**inputs: Any) -> Any:
        return inputs

    @server.model(
        "declared",
        inputs=[TensorSpec("x", "FP32", [-1, 2])],
        outputs=[TensorSpec("y", "FP32", [-1, 2]), TensorSpec("half", "FP16", [-1, 2])],
    )
    def declared(x: Any) -> Any:
        return {"half": x.astype("f2"), "y": x}

    for version in ("1", "2"):
        server.register("versioned", lambda version=version: np.array([version]), version=version)

    @server.model("surroundings")
    def surroundings(context: InferenceContext) -> Any:
        return {
            "custom": np.array([context.headers["x-custom"], context.headers["X-Many"], context.headers["x-some-bin"]]),
            "peer": np.array([context.transport.peer()]),
            "identity": np.array([str(context.id), context.model_name, str(context.model_version)]),
        }

    @server.model("parameters")
    def parameters(request: InferenceRequest) -> InferenceResponse:
        tensors = [Tensor(tensor.name, tensor.array, tensor.parameters) for tensor in request.inputs]
        return InferenceResponse(tensors, request.parameters)

    @server.model("speaks")
    def speaks(status: np.ndarray) -> Any:
        raise InferenceError("the teapot is short and stout", status=int(status[0]))

    @server.model("raises")
    def raises() -> Any:
        raise RuntimeError("a secret")

    @server.model("says")
    def says(text: np.ndarray) -> Any:
        raise InferenceError(text.item().decode("utf-8", "surrogateescape"))

    return server


def fp32(name: str = "x", shape: Any = (1, 2), **fields: Any) -> dict[str, Any]:
    return {"name": name, "datatype": "FP32", "shape": shape, **fields}


def logged(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """What was logged, but for what asyncio says where grpc's one poller serves several loops of a process."""
    return [record for record in caplog.records if record.exc_info is None or record.exc_info[0] is not BlockingIOError]


TWO_FLOATS = np.array([1.5, 2.5], "<f4").tobytes()


def health_of(client: Client) -> Any:
    return health_pb2_grpc.HealthStub(client.channel)
