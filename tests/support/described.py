"""A server whose models declare each kind of thing that the OpenAPI document and the page show. Needs no extra."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Annotated, Any

import numpy as np

from oip_asgi import InferenceRequest, InferenceResponse, InferenceServer, Tensor, TensorSpec

DATATYPES = ("BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64", "BYTES")

LARGE = "large"
"""The model whose inputs are too large for an example."""


def described_server(**options: Any) -> InferenceServer:
    server = InferenceServer("described", "1.2.3", **options)
    add_declared(server)
    add_undeclared(server)
    return server


def add_declared(server: InferenceServer) -> None:
    """Models that declare their inputs and outputs."""

    @server.model("iris", inputs=[TensorSpec("x", "FP32", [-1, 4])], outputs=[TensorSpec("label", "INT64", [-1])])
    def iris(x: Any) -> Any:
        return x.argmax(axis=1)

    of_each = [TensorSpec(datatype.lower(), datatype, [-1, 2]) for datatype in DATATYPES]  # type: ignore[arg-type]

    @server.model("all datatypes", inputs=of_each, outputs=of_each)
    def all_datatypes(**inputs: Any) -> Any:
        return inputs

    @server.model("dates", inputs=[TensorSpec("when", "BYTES", [-1])], outputs=[TensorSpec("days", "INT64", [-1])])
    def dates(when: list[datetime]) -> Any:
        return np.array([each.toordinal() for each in when])

    @server.model("files", inputs=[TensorSpec("file", "BYTES", [1], "base64")], outputs=[TensorSpec("file", "BYTES", [1], "base64")])
    def files(file: Any) -> Any:
        return [b"\xff" + each for each in file]

    @server.model("scalar", inputs=[TensorSpec("x", "FP64", []), TensorSpec("factor", "FP64", [])], outputs=[TensorSpec("y", "FP64", [])])
    def scalar(x: Any, factor: Any = 2.0) -> Any:
        return x * factor

    @server.model("empty", inputs=[TensorSpec("x", "FP32", [0, 3])], outputs=[TensorSpec("y", "FP32", [0, 3])])
    def empty(x: Any) -> Any:
        return x

    for version in ("1", "9", "10"):

        @server.model(
            "org/scorer",
            version=version,
            inputs=[TensorSpec("x", "INT32", [int(version)])],
            outputs=[TensorSpec("y", "INT32", [int(version)])],
        )
        def scorer(x: Any) -> Any:
            return x

    @server.model("chat", inputs=[TensorSpec("prompt", "BYTES", [1])], outputs=[TensorSpec("word", "BYTES", [1])])
    async def chat(prompt: list[str]) -> AsyncIterator[list[str]]:
        for place in range(3):
            yield [f"{prompt[0]} {place}"]

    server.register(
        LARGE,
        lambda image: image.mean(axis=(1, 2, 3)),
        inputs=[TensorSpec("image", "FP32", [-1, 3, 64, 64])],
        outputs=[TensorSpec("mean", "FP32", [-1])],
    )


def add_undeclared(server: InferenceServer) -> None:
    """Models that declare nothing, or not all."""
    server.register("double", lambda x: x * 2)
    server.register("add", np.add)
    server.register("nothing", lambda: 1.5)
    server.register("模型", lambda x: x)

    @server.model("greet")
    def greet(names: list[str]) -> list[str]:
        return [f"hello {name}" for name in names]

    @server.model("when")
    def when(date: list[datetime], weight: Annotated[np.ndarray, TensorSpec("weight", "FP32", [2])]) -> Any:
        return weight

    @server.model("anything")
    def anything(**inputs: Any) -> Any:
        return inputs

    @server.model("raw")
    def raw(request: InferenceRequest) -> InferenceResponse:
        return InferenceResponse([Tensor("count", np.array([len(request.inputs)]))])
