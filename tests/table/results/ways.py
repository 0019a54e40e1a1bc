"""The ways out: each is a function from a model to the outputs that a client reads, as text, or to the status of the refusal.

An output reads as `FP64 [2] [1.5, nan]`, with its parameters behind: datatype, shape, elements in row-major order. `generate` has no
datatypes and no shapes, so there it is the JSON alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Self

import numpy as np
import pandas as pd
from google.protobuf.json_format import MessageToDict

from oip_asgi import InferenceError, InferenceServer, OIPApp, RequestOutput, ResponseCache, TensorSpec
from oip_asgi.grpc import OIPGRPCApp
from tests.support.grpc_asgi import ASGIClient
from tests.support.grpc_ways import wire_request
from tests.support.ways import Answer, Request, over_asgi

NAME: Final = "output_0"
"""The output's name where nobody gives it one."""

ROWS: Final = 2
"""The rows of a request to a model that gets batches; results of other lengths leave by the other ways."""

_DTYPES: Final = {"BOOL": "?", "BYTES": "O", "FP16": "<f2", "FP32": "<f4", "FP64": "<f8"}


class Ways:
    """A server with models that return one value, each asked by each way."""

    def __init__(self) -> None:
        self._server = InferenceServer()
        self._value: Any = None
        self._asked = 0.0  # what is sent, so that each request is another one to the cache
        self._send = over_asgi(OIPApp(self._server), "")
        self._grpc = ASGIClient(OIPGRPCApp(self._server))
        self._ways: Final[dict[str, Callable[[str | None], str]]] = {
            "infer": lambda asked: self._infer("plain", asked),
            "binary": self._binary,
            "gRPC": self._ask_grpc,
            "Python": self._python,
            "stream": lambda asked: self._infer("stream", asked),
            "thread": lambda asked: self._infer("thread", asked),
            "batch": lambda asked: self._infer("batch", asked),
            "cache": self._cached,
            "generate": lambda asked: self._generate("plain", "generate"),
            "generate_stream": lambda asked: self._generate("stream", "generate_stream"),
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()

    def ask(self, value: Any, asked: str | None = None) -> dict[str, str]:
        """What leaves by each way that has a form for it.

        Args:
            value: What the model returns.
            asked: The content type that the client asks for.
        """
        self._value, self._asked = value, self._asked + 1.0
        left_out = set[str]() if asked is None else {"generate", "generate_stream"}
        if not isinstance(value, (list, np.ndarray, pd.Series, pd.DataFrame)) or getattr(value, "ndim", 1) == 0 or len(value) != ROWS:
            left_out.add("batch")
        return {name: way(asked) for name, way in self._ways.items() if name not in left_out}

    def declare(self, outputs: Sequence[TensorSpec] = (), annotation: Any = None) -> None:
        """What is declared of the models that are asked from here on.

        Args:
            outputs: As `register` takes them.
            annotation: That of the result, if it has one.
        """

        def plain(x: Any) -> Any:
            return self._value

        async def stream(x: Any) -> Any:
            yield self._value

        for function in (plain, stream):
            function.__annotations__ = {} if annotation is None else {"return": annotation}
        models: dict[str, tuple[Any, dict[str, Any]]] = {
            "plain": (plain, {"run": "inline"}),
            "stream": (stream, {}),
            "thread": (plain, {}),
            "batch": (plain, {"max_batch_size": ROWS}),
            "cached": (plain, {"cache": ResponseCache(1 << 20)}),
        }
        for name, (function, options) in models.items():
            self._server.register(name, function, outputs=outputs, replace=True, **options)

    def _infer(self, model: str, asked: str | None) -> str:
        document = {"inputs": [{"name": "x", "datatype": "FP64", "shape": [ROWS], "data": [self._asked] * ROWS}], **_ask_for(asked)}
        action = "infer_stream" if model == "stream" else "infer"
        answer = self._send(Request("POST", f"/models/{model}/{action}", (), json.dumps(document).encode()))
        return _read_document(answer)

    def _cached(self, asked: str | None) -> str:
        self._infer("cached", asked)
        return self._infer("cached", asked)

    def _binary(self, asked: str | None) -> str:
        document = {
            "inputs": [{"name": "x", "datatype": "FP64", "shape": [ROWS], "data": [self._asked] * ROWS}],
            "parameters": {"binary_data_output": True},
            **_ask_for(asked),
        }
        answer = self._send(Request("POST", "/models/plain/infer", (), json.dumps(document).encode()))
        if answer.status != 200:
            return str(answer.status)
        length = int(answer.headers.get("inference-header-content-length", len(answer.body)))
        outputs, rest = json.loads(answer.body[:length])["outputs"], answer.body[length:]
        described = []
        for output in outputs:
            size = output["parameters"].pop("binary_data_size")
            raw, rest = rest[:size], rest[size:]
            described.append(describe(output, _read_raw(raw, output["datatype"])))
        return "; ".join(described)

    def _ask_grpc(self, asked: str | None) -> str:
        message = wire_request(
            "plain", [{"name": "x", "datatype": "FP64", "shape": [ROWS], "contents": {"fp64_contents": [self._asked] * ROWS}}]
        )
        if asked is not None:
            message.outputs.add(name=NAME).parameters["content_type"].string_param = asked
        got = self._grpc.got("ModelInfer", message)
        if got.refusal[0] != "OK":
            return {"INVALID_ARGUMENT": "400", "INTERNAL": "500"}.get(got.refusal[0], got.refusal[0])
        answer = self._grpc.ask("ModelInfer", message)
        raws = iter(answer.raw_output_contents)
        described = []
        for output in answer.outputs:
            document = MessageToDict(output, preserving_proto_field_name=True)
            parameters = {name: next(iter(each.values())) for name, each in document.get("parameters", {}).items()}
            plain = {"name": output.name, "datatype": output.datatype, "shape": list(output.shape), "parameters": parameters}
            described.append(describe(plain, _read_raw(next(raws), output.datatype)))
        return "; ".join(described)

    def _python(self, asked: str | None) -> str:
        outputs = [] if asked is None else [RequestOutput(NAME, {"content_type": asked})]
        try:
            response = self._server.infer_sync("plain", {"x": np.full(ROWS, self._asked)}, outputs=outputs)
        except InferenceError as error:
            return str(error.status)
        return "; ".join(
            describe(
                {"name": each.name, "datatype": each.datatype, "shape": list(each.shape), "parameters": each.parameters},
                each.array.ravel().tolist(),
            )
            for each in response.outputs
        )

    def _generate(self, model: str, action: str) -> str:
        answer = self._send(Request("POST", f"/models/{model}/{action}", (), json.dumps({"x": [self._asked] * ROWS}).encode()))
        if answer.status != 200:
            return str(answer.status)
        document = json.loads(answer.body.removeprefix(b"data: "))
        if "error" in document:
            return "400" if "see the server's log" not in document["error"] else "500"
        return json.dumps({name: value for name, value in document.items() if name not in ("model_name", "content_type")})


def _ask_for(asked: str | None) -> dict[str, Any]:
    return {} if asked is None else {"outputs": [{"name": NAME, "parameters": {"content_type": asked}}]}


def _read_document(answer: Answer) -> str:
    document = json.loads(answer.body.removeprefix(b"data: ").partition(b"\n\n")[0])
    if "error" in document:
        return str(answer.status) if answer.status != 200 else "500" if "see the server's log" in document["error"] else "400"
    return "; ".join(describe(output, [_read(each, output["datatype"]) for each in output["data"]]) for output in document["outputs"])


def _read(element: Any, datatype: str) -> Any:
    """An element of JSON, as numpy has it."""
    if datatype.startswith(("FP", "BF")):
        return math.nan if element is None else float(element)
    return element.encode() if datatype == "BYTES" else element


def _read_raw(raw: bytes, datatype: str) -> list[Any]:
    """Binary tensor data, as the protocol describes them."""
    if datatype != "BYTES":
        kind = {"UINT": "u", "INT": "i"}
        name = datatype.rstrip("0123456789")
        dtype = _DTYPES.get(datatype) or f"<{kind[name]}{int(datatype.removeprefix(name)) // 8}"
        numbers: list[Any] = np.frombuffer(raw, dtype).tolist()
        return numbers
    elements = []
    while raw:
        size = 4 + int.from_bytes(raw[:4], "little")
        elements.append(raw[4:size])
        raw = raw[size:]
    return elements


def describe(output: Mapping[str, Any], elements: list[Any]) -> str:
    """An output, as the table has it."""
    parameters = dict(output.get("parameters", {}))
    named = "" if output["name"] == NAME else f"{output['name']}: "
    kind = " ".join(filter(None, [output["datatype"], parameters.pop("content_type", "")]))
    return " ".join([f"{named}{kind} {output['shape']} {elements!r}", *map(" ".join, sorted(parameters.items()))])
