"""A server with a model for each content type and annotation, and codecs of a user's: for tests of content types."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd

from oip_asgi import InferenceContext, InferenceRequest, InferenceResponse, InferenceServer, OIPApp, RequestOutput, Tensor, TensorSpec
from oip_asgi.codecs import InputCodec, RequestCodec
from tests.support.inside.values import Array
from tests.support.ways import Answer, Request, over_asgi


class Colour(NamedTuple):
    """A type of the user's."""

    red: int
    green: int
    blue: int


class ColourCodec(InputCodec[list[Colour]]):
    """Colours as `#rrggbb`."""

    content_type = "colour"
    type_hint = list[Colour]
    datatype = "BYTES"

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        return isinstance(payload, list) and bool(payload) and all(isinstance(element, Colour) for element in payload)

    @classmethod
    def encode_input(cls, name: str, payload: list[Colour], use_bytes: bool = True) -> Tensor:
        elements = [b"#%02x%02x%02x" % colour for colour in payload]
        return Tensor(name, np.array(elements, object), {"content_type": cls.content_type})

    @classmethod
    def decode_input(cls, request_input: Tensor) -> list[Colour]:
        return [_colour(element) for element in request_input.array.ravel().tolist()]


def _colour(element: bytes) -> Colour:
    red, green, blue = bytes.fromhex(element.decode().removeprefix("#"))
    return Colour(red, green, blue)


class PairCodec(RequestCodec["tuple[Array, Array]"]):
    """Two tensors as one pair."""

    content_type = "pair"

    @classmethod
    def encode_request(cls, payload: tuple[Array, Array], use_bytes: bool = True) -> InferenceRequest:
        first, second = payload
        return InferenceRequest([Tensor("first", first), Tensor("second", second)], parameters={"content_type": cls.content_type})

    @classmethod
    def decode_request(cls, request: InferenceRequest) -> tuple[Array, Array]:
        if len(request.inputs) != 2:
            raise ValueError(f"a pair has 2 tensors, not {len(request.inputs)}")
        first, second = request.inputs
        return first.array, second.array

    @classmethod
    def encode_response(
        cls, model_name: str, payload: tuple[Array, Array], model_version: str | None = None, use_bytes: bool = True
    ) -> InferenceResponse:
        return InferenceResponse(cls.encode_request(payload).inputs, {"content_type": cls.content_type})

    @classmethod
    def decode_response(cls, response: InferenceResponse) -> tuple[Array, Array]:
        first, second = response.outputs
        return first.array, second.array


def make_server(seen: list[Any]) -> InferenceServer:
    server = InferenceServer(codecs=[ColourCodec, PairCodec])

    def note(function: Callable[..., Any], name: str, **more: Any) -> None:
        server.register(name, function, **more)

    @server.model("frame")
    def frame(df: pd.DataFrame) -> pd.DataFrame:
        seen.append(df)
        return df

    @server.model("frame and more")
    def frame_and_more(df: pd.DataFrame, limit: Array, context: InferenceContext, names: list[str] | None = None) -> Any:
        seen.append((df, limit, context.model_name, names))
        return len(df)

    @server.model(
        "declared frame",
        content_type="pd",
        inputs=[TensorSpec("First Name", "BYTES", [-1], content_type="str"), TensorSpec("Born", "BYTES", [-1], content_type="datetime")],
    )
    def declared_frame(df):  # type: ignore[no-untyped-def]
        seen.append(df)
        return len(df)

    @server.model("array")
    def array(x: Array) -> Array:
        seen.append(x)
        return x

    @server.model("free")
    def free(x):  # type: ignore[no-untyped-def]
        seen.append(x)
        return 1

    @server.model("free str", inputs=[TensorSpec("x", "BYTES", [-1], content_type="str")])
    def free_str(x):  # type: ignore[no-untyped-def]
        seen.append(x)
        return 1

    @server.model("annotated str")
    def annotated_str(x: Annotated[Any, TensorSpec("x", "BYTES", [-1], content_type="str")]) -> int:
        seen.append(x)
        return 1

    @server.model("model frame", content_type="pd")
    def model_frame(df):  # type: ignore[no-untyped-def]
        seen.append(df)
        return 1

    @server.model("model str", content_type="str", run="inline")
    def model_str(x):  # type: ignore[no-untyped-def]
        seen.append(x)
        return 1

    @server.model("strings")
    async def strings(x: list[str]) -> list[str]:
        seen.append(x)
        return x

    @server.model("bytes")
    def raw_bytes(x: list[bytes]) -> list[bytes]:
        seen.append(x)
        return x

    @server.model("datetimes")
    def datetimes(x: list[datetime] | None = None) -> list[datetime]:
        seen.append(x)
        return x or []

    @server.model("series")
    def series(x: pd.Series) -> pd.Series:
        seen.append(x)
        return x

    @server.model("declared", inputs=[TensorSpec("x", "FP64", [-1])], outputs=[TensorSpec("y", "FP64", [-1], content_type="np")])
    def declared(x: Array) -> Array:
        seen.append(x)
        return x

    @server.model("rest")
    def rest(**inputs: list[str]) -> dict[str, list[str]]:
        seen.append(inputs)
        return inputs

    @server.model("two")
    def two(x: Array, names: list[str]) -> tuple[Array, list[str]]:
        seen.append((x, names))
        return x, names

    @server.model("colours")
    def colours(x: list[Colour]) -> Any:
        seen.append(x)
        return x

    @server.model("named codec")
    def named_codec(x: Annotated[Any, ColourCodec]) -> Annotated[Any, ColourCodec]:
        seen.append(x)
        return x

    @server.model("pair")
    def pair(both: Annotated[Any, PairCodec]) -> Annotated[Any, PairCodec]:
        seen.append(both)
        return both

    @server.model("whole")
    def whole(request: InferenceRequest) -> InferenceResponse:
        seen.append(request)
        return InferenceResponse(request.inputs)

    return server


def make_tensor(name: str, elements: Sequence[bytes], **parameters: Any) -> Tensor:
    array = np.empty(len(elements), object)
    array[:] = list(elements)
    return Tensor(name, array, parameters)


def bytes_column(name: str, elements: Sequence[bytes], **parameters: Any) -> Tensor:
    """As MLServer's clients write lists."""
    return Tensor(name, make_tensor(name, elements).array.reshape(-1, 1), parameters)


def request_of(*tensors: Tensor, outputs: Sequence[RequestOutput] = (), **parameters: Any) -> InferenceRequest:
    return InferenceRequest(list(tensors), None, parameters, list(outputs))


def http(model: str, request: InferenceRequest, *, binary: bool) -> Request:
    headers, body = request.to_http(binary=binary)
    return Request("POST", f"/models/{model.replace(' ', '%20')}/infer", tuple(headers.items()), body)


def send(server: InferenceServer, model: str, request: InferenceRequest, *, binary: bool = False) -> Answer:
    return over_asgi(OIPApp(server), "")(http(model, request, binary=binary))


def response_of(answer: Answer) -> InferenceResponse:
    assert answer.status == 200, answer.body
    return InferenceResponse.from_http(answer.headers, answer.body)


PEOPLE = pd.DataFrame({"First Name": ["Joanne", "Michael"], "Age": [34, 22]})
NOON = datetime(2022, 1, 11, 11)
NAMES = make_tensor("x", [b"Joanne", b"Micha\xc3\xabl"])
BASE64 = make_tensor("x", [b"YQ==", b"/w=="], content_type="base64")
FLOATS = Tensor("x", np.array([1.5, 2.5]))
ONE = Tensor("y", np.array([1]))
DATED = make_tensor("x", [b"2022-01-11T11:00:00"], content_type="datetime")
COLOURS = make_tensor("x", [b"#ff0001"], content_type="colour")
RED = [Colour(255, 0, 1)]


def with_type(tensor: Tensor, content_type: str) -> Tensor:
    return Tensor(tensor.name, tensor.array, {**tensor.parameters, "content_type": content_type})


def assert_same(got: Any, expected: Any) -> None:
    if isinstance(expected, pd.DataFrame):
        pd.testing.assert_frame_equal(got, expected, check_dtype=False, check_column_type=False)
    elif isinstance(expected, pd.Series):
        pd.testing.assert_series_equal(got, expected, check_dtype=False)
    elif isinstance(expected, np.ndarray):
        assert type(got) is np.ndarray
        assert (got.dtype, got.shape, got.tolist()) == (expected.dtype, expected.shape, expected.tolist())
    elif type(expected) is tuple:
        for one, other in zip(got, expected, strict=True):
            assert_same(one, other)
    else:
        assert type(got) is type(expected)
        assert got == expected


def described(answer: Answer) -> list[tuple[str, list[int], str | None, Any]]:
    """Each output's name, shape, content type and data."""
    assert answer.status == 200, answer.body
    return [
        (output["name"], output["shape"], output.get("parameters", {}).get("content_type"), output["data"])
        for output in json.loads(answer.body)["outputs"]
    ]
