"""A row of the table of requests, the server that the rows ask, and what writes their requests and answers."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from oip_asgi import InferenceContext, InferenceError, InferenceRequest, InferenceResponse, InferenceServer, Tensor, TensorSpec
from tests.support.ways import Request
from tests.table.row_classes import register_rows
from tests.table.row_estimators import register_estimators

MAX_BODY_BYTES = 20_000
MAX_JSON_BYTES = 19_000


@dataclass(frozen=True)
class Row:
    """A request, and what it is answered."""

    name: str
    request: Request
    status: int
    body: bytes = b""
    """The exact body, for rows that succeed."""
    text: tuple[str, ...] = ()
    """What the error's text must hold, for rows that do not."""
    headers: tuple[tuple[str, str], ...] = ()
    """Headers the answer must have beside its content type and length."""

    def __str__(self) -> str:
        return self.name


def table_server(calls: list[str]) -> InferenceServer:
    """The server that the table is asked of; every call of a model is noted in `calls`."""
    server = InferenceServer("table", "1.2.3", max_body_bytes=MAX_BODY_BYTES, max_json_bytes=MAX_JSON_BYTES)

    @server.model("echo")
    def echo(**inputs: Any) -> Any:
        calls.append("echo")
        return inputs

    @server.model(
        "two",
        inputs=[TensorSpec("x", "FP32", [-1, 2]), TensorSpec("n", "INT64", [1])],
        outputs=[TensorSpec("y", "FP32", [-1, 2], labels=["cold", "warm"]), TensorSpec("m", "INT64", [1])],
    )
    async def two(x: Any, n: Any) -> Any:
        calls.append("two")
        return {"m": n, "y": x}

    @server.model("one", inputs=[TensorSpec("x", "FP32", [-1])], outputs=[TensorSpec("y", "FP32", [-1])], run="inline")
    def one(x: Any) -> Any:
        calls.append("one")
        return x

    server.register("raw-fixed", lambda x: x, inputs=[TensorSpec("x", "INT16", [2, 2])], outputs=[TensorSpec("y", "INT16", [2, 2])])
    server.register("raw-bytes", lambda x: x, inputs=[TensorSpec("x", "BYTES", [-1])], outputs=[TensorSpec("y", "BYTES", [-1])])
    server.register("raw-free", lambda x: x, inputs=[TensorSpec("x", "FP32", [-1, -1])])

    for version in ("1", "10", "9"):
        server.register("integers", lambda version=version: np.array([int(version)]), version=version)
    for version in ("2", "beta"):
        server.register("words", lambda version=version: np.array([version]), version=version)

    server.register("org/model", lambda x: x)
    server.register("naïve model", lambda x: x)
    server.register("no inputs", lambda: 1.5)
    server.register("optional", lambda x, bias=np.float32(0): x + bias)

    @server.model("whole")
    def whole(request: InferenceRequest) -> InferenceResponse:
        calls.append("whole")
        return InferenceResponse([Tensor("names", np.array([tensor.name for tensor in request.inputs]))], {"seen": True})

    @server.model("speaks")
    def speaks(x: Any) -> Any:
        raise InferenceError("the teapot is short and stout", status=418)

    @server.model("raises")
    def raises(x: Any) -> Any:
        raise RuntimeError("a secret")

    server.register("returns none", lambda x: None)
    server.register("long and empty", lambda x: np.empty((x.item(), 0)))
    server.register("lists text", lambda x: x, outputs=[TensorSpec("y", "BYTES", [-1], content_type="str")])
    server.register("not utf-8", lambda: np.array([b"\xff\xfe"], dtype=object))
    server.register("not finite", lambda: np.array([np.nan, np.inf, -np.inf, 1]))

    @server.model("scaled", inputs=[TensorSpec("x", "FP32", [-1])], outputs=[TensorSpec("y", "FP32", [-1])])
    def scaled(x: Any, factor: float = 2.0, unit: str = "cm") -> Any:
        calls.append("scaled")
        return x * np.float32(factor)

    server.register("tells its version", lambda: InferenceResponse([Tensor("y", np.ones(1))], model_version="7"))

    @server.model("gives headers")
    def gives_headers(x: Any, context: InferenceContext) -> Any:
        context.response_headers.update({name: str(value) for name, value in context.parameters.items()})
        return x

    @server.model("overridden", allow_timeout_override=True)
    async def overridden(x: Any) -> Any:
        await asyncio.sleep(0.01)
        return {"x": x}

    register_estimators(server)
    register_rows(server)
    return server


def tensor(datatype: str, shape: Any, data: str | None, name: str = "x", parameters: str | None = None) -> str:
    """The JSON text of an input tensor."""
    fields = [f'"name":{json.dumps(name)},"shape":{json.dumps(shape, separators=(",", ":"))},"datatype":{json.dumps(datatype)}']
    if parameters is not None:
        fields.append(f'"parameters":{parameters}')
    if data is not None:
        fields.append(f'"data":{data}')
    return "{" + ",".join(fields) + "}"


def inputs(*tensors: str, more: str = "") -> bytes:
    """The JSON of a request."""
    return f'{{"inputs":[{",".join(tensors)}]{more}}}'.encode()


def infer(model: str, body: bytes, *headers: tuple[str, str]) -> Request:
    return Request("POST", f"/models/{model}/infer", headers, body)


def framed(model: str, text: bytes, data: bytes) -> Request:
    """A request with binary data behind its JSON."""
    return infer(model, text + data, ("inference-header-content-length", str(len(text))))


def answer(model: str, *outputs: str, more: str = "", version: str = "") -> bytes:
    """The exact JSON of an answer."""
    described = f',"model_version":"{version}"' if version else ""
    return f'{{"model_name":{json.dumps(model, ensure_ascii=False)},"outputs":[{",".join(outputs)}]{described}{more}}}'.encode()


FLOATS = ("FP16", "BF16", "FP32", "FP64")
INTEGERS = {f"{sign}INT{bits}": bits for sign in ("", "U") for bits in (8, 16, 32, 64)}
GOOD = tensor("FP32", [2], "[1,2]")
ECHOED = tensor("FP32", [2], "[1.0,2.0]")
