"""Content types of requests and responses: what decides, what a model receives, what is answered.

Each over every way in, as JSON and as binary data.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from types import NoneType
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

from oip_asgi import InferenceContext, InferenceRequest, InferenceResponse, InferenceServer, OIPApp, RequestOutput, Tensor, TensorSpec
from oip_asgi._core.datatypes import Array
from oip_asgi.codecs import (
    Base64Codec,
    DatetimeCodec,
    InputCodec,
    NumpyCodec,
    NumpyRequestCodec,
    PandasCodec,
    RequestCodec,
    StringCodec,
    StringRequestCodec,
)

from .asking import ask, error, get
from .ways import Answer, Request, over_asgi, ways_into


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


@pytest.fixture
def seen() -> list[Any]:
    return []


@pytest.fixture
def server(seen: list[Any]) -> Iterator[InferenceServer]:
    made = make_server(seen)
    yield made
    made.stop()  # the event loop that async models had under WSGI


def bytes_tensor(name: str, elements: Sequence[bytes], **parameters: Any) -> Tensor:
    array = np.empty(len(elements), object)
    array[:] = list(elements)
    return Tensor(name, array, parameters)


def bytes_column(name: str, elements: Sequence[bytes], **parameters: Any) -> Tensor:
    """As MLServer's clients write lists."""
    return Tensor(name, bytes_tensor(name, elements).array.reshape(-1, 1), parameters)


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
NAMES = bytes_tensor("x", [b"Joanne", b"Micha\xc3\xabl"])
BASE64 = bytes_tensor("x", [b"YQ==", b"/w=="], content_type="base64")
FLOATS = Tensor("x", np.array([1.5, 2.5]))
ONE = Tensor("y", np.array([1]))
DATED = bytes_tensor("x", [b"2022-01-11T11:00:00"], content_type="datetime")
COLOURS = bytes_tensor("x", [b"#ff0001"], content_type="colour")
RED = [Colour(255, 0, 1)]


class Case(NamedTuple):
    """A request, and the Python value that the model must receive."""

    model: str
    request: InferenceRequest
    value: Any


def with_type(tensor: Tensor, content_type: str) -> Tensor:
    return Tensor(tensor.name, tensor.array, {**tensor.parameters, "content_type": content_type})


CASES = {
    "frame, by its annotation": Case("frame", InferenceRequest(PandasCodec.encode_request(PEOPLE).inputs), PEOPLE),
    "frame, by the request": Case("frame", PandasCodec.encode_request(PEOPLE), PEOPLE),
    "frame, as [N, 1]": Case("frame", request_of(Tensor("a", np.array([[1], [2]])), content_type="pd"), pd.DataFrame({"a": [1, 2]})),
    "frame, stacked": Case(
        "frame",
        request_of(with_type(NAMES, "str"), Tensor("y", DATED.array.repeat(2), DATED.parameters), content_type="pd"),
        pd.DataFrame({"x": ["Joanne", "Michaël"], "y": pd.Series([NOON] * 2)}),
    ),
    "frame, with a user's codec": Case("frame", request_of(COLOURS), pd.DataFrame({"x": pd.Series(RED, dtype=object)})),
    "frame and more": Case(
        "frame and more",
        request_of(Tensor("limit", np.array([7])), Tensor("a", np.array([1, 2])), bytes_tensor("names", [b"n"]), content_type="pd"),
        (pd.DataFrame({"a": [1, 2]}), np.array([7]), "frame and more", ["n"]),
    ),
    "declared frame": Case(
        "declared frame",
        request_of(bytes_tensor("First Name", [b"Joanne"]), bytes_tensor("Born", [b"2022-01-11T11:00:00"])),
        pd.DataFrame({"First Name": ["Joanne"], "Born": [NOON]}),
    ),
    "the request beats the declaration": Case(
        "declared frame",
        request_of(bytes_tensor("First Name", [b"YQ=="], content_type="base64"), bytes_tensor("Born", [b"a"], content_type="str")),
        pd.DataFrame({"First Name": pd.Series([b"a"], dtype=object), "Born": ["a"]}),
    ),
    "array": Case("array", request_of(FLOATS), FLOATS.array),
    "array, np": Case("array", request_of(with_type(FLOATS, "np"), content_type="np"), FLOATS.array),
    "array, input-1": Case("array", NumpyRequestCodec.encode_request(FLOATS.array), FLOATS.array.reshape(2, 1)),
    "nothing said": Case("free", request_of(NAMES), NAMES.array),
    "said by the tensor": Case("free", request_of(BASE64), [b"a", b"\xff"]),
    "said by the request": Case("free", request_of(NAMES, content_type="str"), ["Joanne", "Michaël"]),
    "said by both, the tensor decides": Case("free", request_of(BASE64, content_type="str"), [b"a", b"\xff"]),
    "said by the request for the whole": Case("free", PandasCodec.encode_request(PEOPLE), PEOPLE),
    "declared for the tensor": Case("free str", request_of(NAMES), ["Joanne", "Michaël"]),
    "declared in an annotation": Case("annotated str", request_of(NAMES), ["Joanne", "Michaël"]),
    "declared, another said": Case("free str", request_of(BASE64), [b"a", b"\xff"]),
    "declared, [N, 1] said": Case("free str", request_of(bytes_column("x", [b"a"], content_type="str")), ["a"]),
    "declared for the model": Case("model str", request_of(NAMES), ["Joanne", "Michaël"]),
    "strings, by annotation": Case("strings", request_of(NAMES), ["Joanne", "Michaël"]),
    "strings, input-1": Case("strings", StringRequestCodec.encode_request(["a", "b"]), ["a", "b"]),
    "bytes as they are": Case("bytes", request_of(bytes_tensor("x", [b"YQ=="])), [b"YQ=="]),
    "bytes, base64": Case("bytes", request_of(bytes_tensor("x", [b"YQ=="], content_type="base64")), [b"a"]),
    "datetimes, by annotation": Case("datetimes", request_of(bytes_tensor("x", [b"2022-01-11T11:00:00"])), [NOON]),
    "datetimes, said": Case("datetimes", request_of(DatetimeCodec.encode_input("x", [NOON])), [NOON]),
    "datetimes, left out": Case("datetimes", request_of(), None),
    "series": Case("series", request_of(FLOATS), pd.Series([1.5, 2.5], name="x")),
    "series, said": Case("series", request_of(DATED), pd.Series([NOON], name="x")),
    "[N, 1] for a declared [-1]": Case("declared", request_of(NumpyCodec.encode_input("x", FLOATS.array)), FLOATS.array),
    "[N, 1] of the whole": Case("declared", NumpyRequestCodec.encode_request(FLOATS.array), FLOATS.array),
    "columns, one by one": Case(
        "two", request_of(FLOATS, bytes_column("names", [b"b"], content_type="str"), content_type="pd"), (FLOATS.array, ["b"])
    ),
    "a column for the only parameter": Case("array", request_of(FLOATS, content_type="pd"), FLOATS.array),
    "a column, [N, 1] for a declared [-1]": Case(
        "declared", request_of(Tensor("x", FLOATS.array.reshape(2, 1)), content_type="pd"), FLOATS.array
    ),
    "columns for the rest": Case(
        "rest",
        request_of(NAMES, bytes_column("y", [b"b"], content_type="str"), content_type="pd"),
        {"x": ["Joanne", "Michaël"], "y": ["b"]},
    ),
    "rest": Case("rest", request_of(NAMES, bytes_tensor("y", [b"b"])), {"x": ["Joanne", "Michaël"], "y": ["b"]}),
    "two": Case("two", request_of(FLOATS, bytes_tensor("names", [b"b"])), (FLOATS.array, ["b"])),
    "a user's codec, by annotation": Case("colours", request_of(bytes_tensor("x", [b"#ff0001"])), RED),
    "a user's codec, said": Case("free", request_of(COLOURS), RED),
    "a user's codec, named": Case("named codec", request_of(bytes_tensor("x", [b"#ff0001"])), RED),
    "a user's request codec": Case("pair", request_of(FLOATS, ONE), (FLOATS.array, ONE.array)),
    "a user's request codec, said": Case("pair", request_of(FLOATS, ONE, content_type="pair"), (FLOATS.array, ONE.array)),
}


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


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_a_model_receives_over_every_way_in(case: Case, server: InferenceServer, seen: list[Any]) -> None:
    answers = {
        (binary, name): way(http(case.model, case.request, binary=binary))
        for binary in (False, True)
        for name, way in ways_into(server).items()
    }
    assert {answer.status for answer in answers.values()} == {200}, answers
    assert len({answer.body for answer in answers.values()}) == 1
    assert len(seen) == len(answers)
    for value in seen:
        assert_same(value, case.value)


class Bad(NamedTuple):
    """A request, what the text of its 400 must hold, and whether that shows only in what the model returned."""

    model: str
    request: InferenceRequest
    text: tuple[str, ...]
    is_called: bool = False


KNOWN = "np, str, base64, datetime, pd_json, colour"
BAD = {
    "unknown, of the tensor": Bad("array", request_of(with_type(FLOATS, "nope")), ("input 'x'", "'nope'", KNOWN)),
    "unknown, of the request": Bad("array", request_of(FLOATS, content_type="nope"), ("the request", "'nope'", f"{KNOWN}, pd, pair")),
    "unknown, of an output": Bad(
        "array",
        request_of(FLOATS, outputs=[RequestOutput("output_0", {"content_type": "nope"})]),
        ("requested output 'output_0'", "'nope'", KNOWN),
    ),
    "unknown, though the model takes the whole": Bad("whole", request_of(with_type(FLOATS, "nope")), ("'nope'",)),
    "no string": Bad("array", request_of(Tensor("x", FLOATS.array, {"content_type": 5})), ("unknown content_type 5",)),
    "in other letters": Bad("array", request_of(with_type(FLOATS, "NP")), ("'NP'",)),
    "pd on a tensor": Bad("array", request_of(with_type(FLOATS, "pd")), ("'pd'", "whole request")),
    "str for an array": Bad("array", request_of(with_type(NAMES, "str")), ("'str'", "ndarray")),
    "pd of other columns for an array": Bad("array", request_of(ONE, content_type="pd"), ("unknown input 'y'", "'pd'", "x: numpy.ndarray")),
    "a user's whole for an array": Bad("array", request_of(FLOATS, content_type="pair"), ("'pair'", "x: numpy.ndarray")),
    "a column that is no array": Bad("strings", request_of(FLOATS, content_type="pd"), ("'x'", "FP64", "BYTES")),
    "numbers for a user's codec": Bad("colours", request_of(FLOATS), ("'x'", "FP64", "BYTES", "'colour'")),
    "np for a frame": Bad("frame", request_of(FLOATS, content_type="np"), ("'np'", "DataFrame")),
    "np for strings": Bad("strings", request_of(with_type(NAMES, "np")), ("'np'", "list[str]")),
    "base64 for strings": Bad("strings", request_of(BASE64), ("'base64'", "list[str]")),
    "datetime for bytes": Bad("bytes", request_of(DATED), ("'datetime'", "list[bytes]")),
    "str of the request for datetimes": Bad("datetimes", request_of(NAMES, content_type="str"), ("'str'", "datetime")),
    "str for numbers": Bad("free", request_of(with_type(FLOATS, "str")), ("'x'", "FP64", "BYTES", "'str'")),
    "numbers for strings": Bad("strings", request_of(FLOATS), ("'x'", "FP64", "BYTES")),
    "not UTF-8": Bad("strings", request_of(bytes_tensor("x", [b"a", b"\xff"])), ("'x'", "element 1", "UTF-8")),
    "not UTF-8 in a frame": Bad("frame", request_of(bytes_tensor("x", [b"a", b"\xff"])), ("'x'", "element 1", "UTF-8")),
    "not base64": Bad("bytes", request_of(bytes_tensor("x", [b"a"], content_type="base64")), ("'x'", "element 0", "base64")),
    "no date": Bad("datetimes", request_of(bytes_tensor("x", [b"2022-01-11", b"soon"])), ("'x'", "element 1", "b'soon'")),
    "a finer date": Bad("datetimes", request_of(bytes_tensor("x", [b"20220111T110000.000000001"])), ("'x'", "element 0", "pandas.Series")),
    "three dimensions of strings": Bad("strings", request_of(Tensor("x", NAMES.array.reshape(1, 2, 1))), ("[1, 2, 1]",)),
    "rows that differ": Bad("frame", request_of(FLOATS, Tensor("y", np.array([1]))), ("'y'", "1 rows", "2")),
    "two for the whole": Bad("array", request_of(FLOATS, Tensor("y", np.array([1])), content_type="np"), ("'y'",)),
    "another name, nothing said": Bad("array", request_of(Tensor("input-1", FLOATS.array)), ("unknown input 'input-1'", "'x'")),
    "[N, 1] for a declared [-1], nothing said": Bad("declared", request_of(Tensor("x", FLOATS.array.reshape(2, 1))), ("[2, 1]", "[-1]")),
    "[1, N] for a declared [-1]": Bad("declared", request_of(Tensor("x", FLOATS.array.reshape(1, 2), {"content_type": "np"})), ("[1, 2]",)),
    "declared frame, a column too many": Bad("declared frame", request_of(FLOATS), ("unknown input 'x'",)),
    "what a user's codec refuses": Bad("colours", request_of(bytes_tensor("x", [b"red"])), ("input 'x'", "fromhex()")),
    "what a user's request codec refuses": Bad("pair", request_of(FLOATS), ("a pair has 2 tensors, not 1",)),
    "an output that cannot be so": Bad(
        "array", request_of(FLOATS, outputs=[RequestOutput("output_0", {"content_type": "str"})]), ("'output_0'", "'str'", "1.5"), True
    ),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_what_is_refused_over_every_way_in(bad: Bad, server: InferenceServer, seen: list[Any]) -> None:
    for binary in (False, True):
        if not binary and any(
            b"\xff" in element for tensor in bad.request.inputs if tensor.datatype == "BYTES" for element in tensor.array.ravel()
        ):
            continue  # no JSON string can hold it
        for name, way in ways_into(server).items():
            answer = way(http(bad.model, bad.request, binary=binary))
            status, text = error(answer)
            assert (name, status) == (name, 400), text
            for part in bad.text:
                assert part in text, (name, text)
    assert bool(seen) is bad.is_called


ODD_DATA: dict[str, list[list[Any]]] = {
    "BYTES": [["a"], [""], ["\u0000"], ["NaT"], ["null"], ["2022-01-11"], ["1"], ["é" * 50], ["YQ=="], ["a", "b"], []],
    "FP64": [[1.5], [None], [1.0, 2.0], []],
    "INT8": [[1], []],
    "BOOL": [[True]],
}
CONTENT_TYPES = [None, "np", "str", "base64", "datetime", "pd_json", "pd", "pair", "nope", 1, True, ""]
ODD_DTYPES = [None, "Int64", "category", "string", "datetime64[ns]", "datetime64[us, UTC]", "boolean", 5]


def odd_requests() -> Iterator[tuple[str, bytes]]:
    """Some thousands of combinations of models, content types, datatypes, shapes and elements, most of them wrong."""
    models = ["frame", "array", "free", "strings", "bytes", "datetimes", "series", "colours", "pair", "free%20str", "model%20str", "whole"]
    for datatype, datas in ODD_DATA.items():
        for data in datas:
            for shape in ([len(data)], [len(data), 1], [1, len(data)]):
                for place, content_type in enumerate(CONTENT_TYPES):
                    parameters = {} if content_type is None else {"content_type": content_type}
                    hint = ODD_DTYPES[(place + len(shape) + len(data)) % len(ODD_DTYPES)]
                    of_tensor = parameters if hint is None else {**parameters, "pd_dtype": hint}
                    item = {"name": "x", "shape": shape, "datatype": datatype, "data": data}
                    for document in ({"inputs": [{**item, "parameters": of_tensor}]}, {"inputs": [item], "parameters": parameters}):
                        model = models[place * 5 % len(models)]
                        yield models[(place + len(shape)) % len(models)], json.dumps(document).encode()
                        yield model, json.dumps(document).encode()
                        yield "frame", json.dumps(document).encode()


MEANINGS: dict[str, Callable[[str], Any]] = {
    "np": str.encode,
    "str": str,
    "base64": base64.b64decode,
    "datetime": lambda text: None if text == "NaT" else datetime.fromisoformat(text),
    "pd_json": json.loads,
    "colour": lambda text: bytes.fromhex(text.removeprefix("#")),
}
UNSAID = {
    "frame": "str",
    "series": "str",
    "strings": "str",
    "free str": "str",
    "model str": "str",
    "datetimes": "datetime",
    "colours": "colour",
}


def meant(model: str, document: Any) -> list[Any]:
    """The elements that a request means, by the text of its content types; what is missing is None."""
    [item] = document["inputs"]
    of_request = document.get("parameters", {}).get("content_type")
    unsaid = "str" if of_request == "pd" else UNSAID.get(model, "np") if of_request is None else of_request
    content_type = "np" if model == "whole" else item.get("parameters", {}).get("content_type", unsaid)
    return [MEANINGS[content_type](element) if item["datatype"] == "BYTES" else element for element in item["data"]]


def elements_of(value: Any) -> list[Any]:
    """The elements that a model received, in the same form."""
    if isinstance(value, InferenceRequest):
        value = value.inputs[0].array
    if isinstance(value, pd.DataFrame):
        [value] = [value[name] for name in value]
    elements = value if isinstance(value, list) else value.ravel().tolist() if isinstance(value, np.ndarray) else value.tolist()
    return [plain(element) for element in elements]


def plain(element: Any) -> Any:
    if isinstance(element, Colour):
        return bytes(element)
    if isinstance(element, pd.Timestamp):
        return element.tz_localize(None).to_pydatetime()  # those that say no zone are in UTC
    return None if not isinstance(element, (list, dict)) and pd.isna(element) else element


def test_no_odd_request_is_the_servers_fault_or_means_something_else(server: InferenceServer, seen: list[Any]) -> None:
    """What is taken is received as it was meant, and nothing else reaches a model."""
    send_to = over_asgi(OIPApp(server), "")
    statuses: list[int] = []
    for model, body in odd_requests():
        answer = send_to(Request("POST", f"/models/{model}/infer", (), body))
        assert answer.status in (200, 400), (model, body, answer.body)
        statuses.append(answer.status)
        is_bytes_out = b"ask for this output with" in answer.body  # decoded bytes that no JSON can hold reached the model all the same
        assert len(seen) == (answer.status == 200 or is_bytes_out), (model, body, answer.body)
        if seen:
            expected = meant(model.replace("%20", " "), json.loads(body))
            received = elements_of(seen.pop())
            assert (received, list(map(type, received))) == (expected, [*map(type, expected)]) or numbers(received, expected), (model, body)
    assert statuses.count(200) > 100
    assert statuses.count(400) > 1000


def numbers(received: list[Any], expected: list[Any]) -> bool:
    """Whether they are equal numbers, of whichever kind: a column with a missing integer may be one of floats."""
    return received == expected and all(isinstance(element, (int, float, NoneType)) for element in received)


def described(answer: Answer) -> list[tuple[str, list[int], str | None, Any]]:
    """Each output's name, shape, content type and data."""
    assert answer.status == 200, answer.body
    return [
        (output["name"], output["shape"], output.get("parameters", {}).get("content_type"), output["data"])
        for output in json.loads(answer.body)["outputs"]
    ]


def test_results_by_their_return_annotation(server: InferenceServer) -> None:
    assert described(send(server, "strings", request_of(NAMES))) == [("output_0", [2], "str", ["Joanne", "Michaël"])]
    assert described(send(server, "datetimes", request_of(DATED))) == [("output_0", [1], "datetime", ["2022-01-11T11:00:00"])]
    assert described(send(server, "datetimes", request_of())) == [("output_0", [0], "datetime", [])]
    assert described(send(server, "bytes", request_of(bytes_tensor("x", [b"YQ=="])))) == [("output_0", [1], None, ["YQ=="])]
    assert described(send(server, "rest", request_of(bytes_tensor("y", [b"b"])))) == [("y", [1], "str", ["b"])]
    assert described(send(server, "two", request_of(FLOATS, bytes_tensor("names", [b"b"])))) == [
        ("output_0", [2], None, [1.5, 2.5]),
        ("output_1", [1], "str", ["b"]),
    ]
    assert described(send(server, "named codec", request_of(COLOURS))) == [("output_0", [1], "colour", ["#ff0001"])]


def test_results_by_their_value(server: InferenceServer) -> None:
    assert described(send(server, "colours", request_of(COLOURS))) == [("output_0", [1], "colour", ["#ff0001"])]
    assert described(send(server, "series", request_of(DATED))) == [("output_0", [1], "datetime", ["2022-01-11T11:00:00"])]
    server.register("dates", lambda: [NOON, NOON])
    server.register("text", lambda: ["a", "b"])
    assert described(ask(server, "dates")) == [("output_0", [2], "datetime", ["2022-01-11T11:00:00"] * 2)]
    assert described(ask(server, "text")) == [("output_0", [2], None, ["a", "b"])]


def test_np_by_name_writes_one_dimension_as_two(server: InferenceServer) -> None:
    def named() -> Annotated[Array, NumpyCodec]:
        return np.array([1, 2])

    server.register("by name", named)
    assert described(ask(server, "by%20name")) == [("output_0", [2, 1], "np", [1, 2])]
    assert described(send(server, "array", request_of(FLOATS))) == [("output_0", [2], None, [1.5, 2.5])]


def test_a_frame_answers_as_one(server: InferenceServer) -> None:
    response = response_of(send(server, "frame", PandasCodec.encode_request(PEOPLE)))
    assert response.parameters == {"content_type": "pd"}
    pd.testing.assert_frame_equal(PandasCodec.decode_response(response), PEOPLE)


def test_a_whole_response_of_a_users_codec(server: InferenceServer) -> None:
    response = response_of(send(server, "pair", request_of(FLOATS, Tensor("y", np.array([1])))))
    assert ([tensor.name for tensor in response.outputs], response.parameters) == (["first", "second"], {"content_type": "pair"})
    assert response.model_name == "pair"


def test_a_declared_output_keeps_its_shape_and_says_its_content_type(server: InferenceServer) -> None:
    assert described(send(server, "declared", request_of(FLOATS))) == [("y", [2], "np", [1.5, 2.5])]


@pytest.mark.parametrize(("datatype", "hint"), [("INT8", "Int8"), ("FP64", None)])
def test_a_column_that_is_cast_to_its_declaration_is_no_longer_of_its_dtype(datatype: str, hint: str | None) -> None:
    server = InferenceServer()
    frame = pd.DataFrame({"y": pd.array([1, 2], "Int8")})
    server.register("m", lambda: frame, outputs=[TensorSpec("y", datatype, [-1])])
    response = response_of(ask(server, "m"))
    assert (response.outputs[0].datatype, response.outputs[0].parameters.get("pd_dtype")) == (datatype, hint)
    assert PandasCodec.decode_response(response)["y"].dtype == (hint or "float64")


@pytest.mark.parametrize(
    ("content_type", "value", "expected"),
    [
        ("np", np.array([1, 2]), ([2, 1], [1, 2])),
        ("np", [1, 2], ([2, 1], [1, 2])),
        ("np", np.ones((1, 2)), ([1, 2], [1.0, 1.0])),
        ("str", np.array(["a"]), ([1], ["a"])),
        ("str", np.array([["a"]]), ([1, 1], ["a"])),
        ("str", ["a"], ([1], ["a"])),
        ("str", pd.Series(["a"]), ([1], ["a"])),
        ("base64", [b"\xff"], ([1], ["/w=="])),
        ("datetime", [NOON], ([1], ["2022-01-11T11:00:00"])),
        ("datetime", pd.Series([NOON]), ([1], ["2022-01-11T11:00:00"])),
        ("datetime", pd.Series([pd.Timestamp(1, unit="ns")]), ([1], ["1970-01-01T00:00:00.000000001"])),
        ("datetime", pd.Series([NOON]).dt.tz_localize("Asia/Tokyo"), ([1], ["2022-01-11T11:00:00+09:00"])),
        ("datetime", np.array([[NOON]], "M8[ns]"), ([1, 1], ["2022-01-11T11:00:00"])),
        ("datetime", np.array(["2022-01-11"], "M8[D]"), ([1], ["2022-01-11T00:00:00"])),
        ("colour", RED, ([1], ["#ff0001"])),
    ],
)
@pytest.mark.parametrize("whole", [False, True], ids=["value", "InferenceResponse"])
def test_a_content_type_that_the_client_asks_for(content_type: str, value: Any, expected: Any, whole: bool) -> None:
    server = InferenceServer(codecs=[ColourCodec])
    if whole and content_type in ("np", "str"):
        server.register("m", lambda: InferenceResponse([Tensor("output_0", np.asarray(value))]))
    else:
        server.register("m", lambda: {"output_0": value})
    answer = send(server, "m", request_of(outputs=[RequestOutput("output_0", {"content_type": content_type})]))
    assert described(answer) == [("output_0", expected[0], content_type, expected[1])]


def test_columns_can_be_asked_for_too(server: InferenceServer) -> None:
    asked = [RequestOutput("Age", {"content_type": "np"}), RequestOutput("First Name")]
    request = InferenceRequest(PandasCodec.encode_request(PEOPLE).inputs, outputs=asked)
    assert described(send(server, "frame", request)) == [("Age", [2, 1], "np", [34, 22]), ("First Name", [2], "str", ["Joanne", "Michael"])]


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [
        (None, ("first", [2], None, [1.5, 2.5])),
        ("np", ("first", [2, 1], "np", [1.5, 2.5])),
        ("pd_json", ("first", [2], "pd_json", ["1.5", "2.5"])),
    ],
)
def test_outputs_of_a_users_request_codec_can_be_asked_for_too(
    server: InferenceServer, content_type: str | None, expected: tuple[Any, ...]
) -> None:
    asked = RequestOutput("first", {} if content_type is None else {"content_type": content_type})
    assert described(send(server, "pair", request_of(FLOATS, ONE, outputs=[asked]))) == [expected]


def test_an_output_of_a_content_type_is_asked_for_with_another() -> None:
    """What the tensor stands for is written anew: bytes that went out as base64 are bytes again."""
    server = InferenceServer()
    server.register("bytes", lambda: InferenceResponse([Base64Codec.encode_output("y", [b"a"])]))
    server.register("broken", lambda: InferenceResponse([bytes_tensor("y", [b"no base64"], content_type="base64")]))
    request = request_of(outputs=[RequestOutput("y", {"content_type": "np"})])
    assert described(send(server, "bytes", request)) == [("y", [1, 1], "np", ["a"])]
    status, text = error(send(server, "broken", request))
    assert (status, "output 'y' cannot have the content_type 'np'" in text) == (400, True)


class ById(PandasCodec):
    """Frames whose index travels as the column `id`."""

    @classmethod
    def decode_request(cls, request: InferenceRequest) -> pd.DataFrame:
        return super().decode_request(request).set_index("id")

    @classmethod
    def encode_response(
        cls, model_name: str, payload: pd.DataFrame, model_version: str | None = None, use_bytes: bool = True
    ) -> InferenceResponse:
        return super().encode_response(model_name, payload.reset_index(), model_version, use_bytes)


class Settled(ById):
    """An instance of it has what it decodes under another name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def decode_request(self, request: InferenceRequest) -> pd.DataFrame:  # type: ignore[override]
        return ById.decode_request(request).rename_axis(self.name)


@pytest.mark.parametrize("codec", [ById, Settled("number")], ids=["class", "instance"])
def test_a_subclass_of_the_frames_codec_does_all_that_it_does(codec: Any) -> None:
    seen: list[pd.DataFrame] = []

    def model(df: pd.DataFrame) -> pd.DataFrame:
        seen.append(df)
        return df.rename_axis("id").assign(colour=pd.Series(RED, dtype=object, index=df.index))

    born = TensorSpec("born", "BYTES", [-1], content_type="datetime")
    server = InferenceServer(codecs=[ColourCodec, codec])
    server.register("m", model, inputs=[TensorSpec("id", "INT64", [-1]), born, TensorSpec("paint", "BYTES", [-1])])
    paint = with_type(Tensor("paint", COLOURS.array), "colour")
    asked = [RequestOutput(name) for name in ("id", "paint")] + [RequestOutput("colour", {"content_type": "colour"})]
    request = request_of(Tensor("id", np.array([7])), Tensor("born", DATED.array), paint, outputs=asked)
    answer = described(send(server, "m", request))
    index = pd.Index([7], name="id" if codec is ById else "number")
    assert_same(seen[0], pd.DataFrame({"born": pd.Series([NOON], index=index), "paint": pd.Series(RED, dtype=object, index=index)}))
    assert answer[0] == ("id", [1], None, [7])
    assert answer[1] == ("paint", [1], "pd_json", ["[255,0,1]"])
    assert answer[2] == ("colour", [1], "colour", ["#ff0001"])


class Careless(ColourCodec):
    """A codec that thinks of its own values only."""

    content_type = "careless"

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        return isinstance(payload[0], Colour)


class CarelessPair(PairCodec):
    content_type = "careless pair"

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        return payload["first"] is not payload["second"]


def test_a_can_encode_that_raises_is_no_harm_to_other_models(caplog: pytest.LogCaptureFixture) -> None:
    server = InferenceServer(codecs=[Careless, CarelessPair])
    server.register("number", lambda: 5)
    server.register("colours", lambda: RED)
    assert described(ask(server, "number")) == [("output_0", [1], None, [5])]
    assert [record.getMessage() for record in caplog.records] == [
        "CarelessPair.can_encode raised, so it counts as no",
        "Careless.can_encode raised, so it counts as no",
    ]
    assert caplog.records[1].exc_info is not None
    assert described(ask(server, "colours")) == [("output_0", [1], "careless", ["#ff0001"])]


class Comparing(ColourCodec):
    """A codec that compares, which an array answers with an array."""

    content_type = "comparing"

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        if isinstance(payload, str):
            raise ValueError(f"no colour: {payload}")
        result: bool = payload == RED
        return result


def test_a_can_encode_that_answers_no_bool_is_no_harm_either(caplog: pytest.LogCaptureFixture) -> None:
    server = InferenceServer(codecs=[Comparing])
    server.register("numbers", lambda: np.array([1, 2]))
    server.register("text", lambda: "x\nCRITICAL forged\x1b[2J")
    assert described(ask(server, "numbers")) == [("output_0", [2], None, [1, 2])]
    assert ask(server, "text").status == 200
    lines = logging.Formatter().format(caplog.records[-1]).splitlines()
    assert lines[0] == "Comparing.can_encode raised, so it counts as no"
    assert all(line.startswith("    ") and line.isprintable() for line in lines[1:])


DATES_OUT = TensorSpec("y", "BYTES", [-1], content_type="datetime")


@pytest.mark.parametrize(
    "value",
    [pd.Series([NOON, NOON]), np.array([NOON, NOON], "M8[s]"), np.array([[NOON], [NOON]], "M8[ns]")],
    ids=["Series", "[N]", "[N, 1]"],
)
def test_points_in_time_of_pandas_and_numpy_are_declared_dates(value: Any) -> None:
    server = InferenceServer()

    def annotated() -> list[datetime]:
        return value  # type: ignore[no-any-return]

    server.register("declared", lambda: value, outputs=[DATES_OUT])
    server.register("annotated", annotated)
    texts = ["2022-01-11T11:00:00"] * 2
    column = isinstance(value, np.ndarray) and value.ndim == 2  # an array keeps its shape where none is declared
    assert described(ask(server, "declared")) == [("y", [2], "datetime", texts)]
    assert described(ask(server, "annotated")) == [("output_0", [2, 1] if column else [2], "datetime", texts)]


@pytest.mark.parametrize(
    ("function", "outputs", "message"),
    [
        (lambda: [1], [TensorSpec("y", "BYTES", [-1], content_type="str")], "element 0 is 1: expected a string"),
        (lambda: pd.DataFrame([[1, 2]], columns=["a", "a"]), [], "column 'a' is there twice"),
        (lambda: pd.DataFrame({"x": [1j]}), [], "complex128"),
        (lambda: pd.Series([1j]), [], "complex128"),
        (lambda: np.array([1], "M8[ns]"), [DATES_OUT], "finer than microseconds"),
        (lambda: np.array(["NaT"], "M8[s]"), [DATES_OUT], "element 0 is None: expected a datetime"),
        (lambda: pd.Series([NOON, None]), [DATES_OUT], "element 1 is NaT: a missing value"),
    ],
)
def test_results_that_are_the_models_fault(function: Any, outputs: list[TensorSpec], message: str) -> None:
    server = InferenceServer(debug=True)
    server.register("m", function, outputs=outputs)
    status, text = error(ask(server, "m"))
    assert status == 500
    assert "ModelFault" in text
    assert message in text


def returns_numbers() -> list[str]:
    return [1]  # type: ignore[list-item]


def test_a_result_that_is_not_what_its_annotation_says() -> None:
    server = InferenceServer(debug=True)
    server.register("m", returns_numbers)
    assert error(ask(server, "m"))[0] == 500


def test_metadata_shows_what_is_declared(server: InferenceServer) -> None:
    status, metadata = get(server, "/models/declared%20frame")
    assert status == 200
    assert metadata["parameters"] == {"content_type": "pd"}
    assert metadata["inputs"] == [
        {"name": "First Name", "datatype": "BYTES", "shape": [-1], "parameters": {"content_type": "str"}},
        {"name": "Born", "datatype": "BYTES", "shape": [-1], "parameters": {"content_type": "datetime"}},
    ]
    assert get(server, "/models/declared")[1]["outputs"] == [
        {"name": "y", "datatype": "FP64", "shape": [-1], "parameters": {"content_type": "np"}}
    ]
    assert "parameters" not in get(server, "/models/array")[1]


def test_what_can_never_work_fails_at_registration() -> None:
    server = InferenceServer()
    strings = TensorSpec("x", "BYTES", [-1], content_type="str")

    def takes_array(x: Array) -> Any: ...
    def takes_float(x: float) -> Any: ...
    def takes_colours(x: list[Colour]) -> Any: ...
    def takes_two_frames(a: pd.DataFrame, b: pd.DataFrame) -> Any: ...
    def takes_frame_and_rest(a: pd.DataFrame, **inputs: Any) -> Any: ...
    def takes_floats(**inputs: float) -> Any: ...
    def takes_frames(**inputs: Annotated[Any, PandasCodec]) -> Any: ...

    registrations: list[tuple[Callable[[], Any], type[Exception], str]] = [
        (
            lambda: server.register("m", takes_array, inputs=[strings]),
            TypeError,
            r"content_type 'str' .* 'x' cannot become numpy",
        ),
        (lambda: server.register("m", takes_array, content_type="str"), TypeError, "content_type 'str'"),
        (lambda: server.register("m", takes_array, content_type="pd"), TypeError, "no parameter for content_type='pd'"),
        (lambda: server.register("m", np.add, content_type="pd"), TypeError, "wrap it in a def"),
        (lambda: server.register("m", takes_float), TypeError, r"annotated float, .* list\[str\]"),
        (lambda: server.register("m", takes_floats), TypeError, "no tensor can become float: annotate np.ndarray"),
        (lambda: server.register("m", takes_frames), TypeError, "a parameter of its own"),
        (lambda: server.register("m", takes_colours), TypeError, "Colour"),
        (lambda: server.register("m", takes_two_frames), TypeError, "only one parameter"),
        (lambda: server.register("m", takes_frame_and_rest), TypeError, "only one parameter"),
        (lambda: server.register("m", takes_array, content_type="nope"), ValueError, "unknown content_type 'nope': expected one of np"),
        (lambda: server.register("m", len, inputs=[TensorSpec("x", "FP32", [1], content_type="str")]), ValueError, "needs datatype BYTES"),
        (lambda: server.register("m", len, inputs=[TensorSpec("x", "BYTES", [1], content_type="pd")]), ValueError, "whole request"),
        (lambda: TensorSpec("x", "BYTES", [1], content_type=5), TypeError, "content_type=5 must be a string"),  # type: ignore[arg-type]
        (lambda: InferenceServer(codecs=[object]), TypeError, "has no content_type"),  # type: ignore[list-item]
        (lambda: InferenceServer(codecs=[type("C", (), {"content_type": "c"})]), TypeError, "neither an InputCodec nor a RequestCodec"),
    ]
    for register, kind, message in registrations:
        with pytest.raises(kind, match=message):
            register()
    assert get(server, "/models")[1] == {"models": []}


class Silent(InputCodec[int]):
    """What a codec must define, and nothing else."""

    content_type = "silent"

    @classmethod
    def encode_input(cls, name: str, payload: int, use_bytes: bool = True) -> Tensor:
        return Tensor(name, np.array([payload]))

    @classmethod
    def decode_input(cls, request_input: Tensor) -> int:
        return int(request_input.array[0])


class Nameless(Silent):
    content_type = ""


class OnlyReads(InputCodec[int]):
    content_type = "reads"

    @classmethod
    def decode_input(cls, request_input: Tensor) -> int:
        return 1


class OnlyAnswers(RequestCodec[int]):
    content_type = "answers"

    @classmethod
    def encode_response(cls, model_name: str, payload: int, model_version: str | None = None, use_bytes: bool = True) -> InferenceResponse:
        return InferenceResponse([])


class OtherPair(PairCodec):
    pass


class OneAndWhole(Silent, PairCodec):
    pass


def test_a_codec_that_encodes_by_name_only_is_no_ones_but_by_name() -> None:
    server = InferenceServer(codecs=[Silent])
    server.register("array", lambda x: x * 2)
    server.register("free", lambda x: np.array([x]))
    assert described(send(server, "array", request_of(FLOATS))) == [("output_0", [2], None, [3.0, 5.0])]
    assert described(send(server, "free", request_of(with_type(FLOATS, "silent")))) == [("output_0", [1], None, [1])]


@pytest.mark.parametrize(
    ("codecs", "message"),
    [
        ([OnlyReads], "OnlyReads.* does not define encode_input$"),
        ([OnlyAnswers], "OnlyAnswers.* does not define encode_request, decode_request, decode_response$"),
        ([Nameless], "Nameless.* has no content_type"),
        ([OneAndWhole], "OneAndWhole.* is both an InputCodec and a RequestCodec"),
        ([Silent, Silent()], "two input codecs have the content_type 'silent'"),
        ([PairCodec, OtherPair], "two request codecs have the content_type 'pair'"),
    ],
)
def test_codecs_that_cannot_be_fail_when_the_server_is_made(codecs: list[Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        InferenceServer(codecs=codecs)


def test_codecs_that_cannot_be_fail_at_registration_where_annotations_name_them() -> None:
    def reads(x: Annotated[Any, OnlyReads]) -> Any: ...
    def answers(x: Array) -> Annotated[Any, OnlyAnswers]: ...
    def nameless(x: Array) -> Annotated[Any, Nameless]: ...

    for function, message in ((reads, "encode_input"), (answers, "encode_request"), (nameless, "content_type")):
        with pytest.raises(TypeError, match=f"Annotated.*{message}"):
            InferenceServer().register("m", function)


def test_the_one_declared_input_is_for_the_one_parameter_of_a_named_codec() -> None:
    seen: list[Any] = []

    def look(colours: Annotated[Any, ColourCodec]) -> int:
        seen.append(colours)
        return len(colours)

    server = InferenceServer()
    server.register("m", look, inputs=[TensorSpec("paint", "BYTES", [-1])])
    assert described(send(server, "m", request_of(bytes_tensor("paint", [b"#ff0001"])))) == [("output_0", [1], None, [1])]
    assert seen == [RED]
    with pytest.raises(TypeError, match="'paint' is declared with datatype FP32, which cannot become what ColourCodec decodes"):
        server.register("numbers", look, inputs=[TensorSpec("paint", "FP32", [-1])])


class Lengths(InputCodec[Any]):
    """What is no column, one way or the other: as many values as the first element says, or none to count."""

    content_type = "lengths"

    @classmethod
    def encode_input(cls, name: str, payload: Any, use_bytes: bool = True) -> Tensor:
        raise TypeError("cannot be encoded")

    @classmethod
    def decode_input(cls, request_input: Tensor) -> Any:
        length = int(request_input.array[0])
        return length if length < 0 else ["value"] * length


@pytest.mark.parametrize("model", ["frame", "series"])
@pytest.mark.parametrize(
    ("first", "message"),
    [
        (1.0, "column 'x' has 2 rows, but its content_type 'lengths' makes 1 values of them"),
        (-1.0, "column 'x': its content_type 'lengths' does not make a list of it: 'int' object is not iterable"),
        (np.nan, "column 'x' of the content_type 'lengths': cannot convert float NaN to integer"),
    ],
)
def test_a_users_codec_that_makes_no_column(model: str, first: float, message: str) -> None:
    def frame(df: pd.DataFrame) -> int:
        return len(df)

    def series(x: pd.Series) -> int:
        return len(x)

    server = InferenceServer(codecs=[Lengths])
    server.register("frame", frame)
    server.register("series", series)
    column = Tensor("x", np.array([first, 0.0]), {"content_type": "lengths"})
    assert error(send(server, model, request_of(column))) == (400, message)
    column.array[0] = 2
    assert described(send(server, model, request_of(column))) == [("output_0", [1], None, [2])]


class Fragile(InputCodec[Any]):
    """A codec with mistakes, which raises what the bytes are called, on its way in or out."""

    content_type = "fragile"

    @classmethod
    def encode_input(cls, name: str, payload: Any, use_bytes: bool = True) -> Tensor:
        raise KeyError("a secret")

    @classmethod
    def decode_input(cls, request_input: Tensor) -> Any:
        raise {b"TypeError": TypeError, b"KeyError": KeyError, b"OSError": OSError}[request_input.array[0]]("a secret")


class FragileWhole(PairCodec):
    content_type = "fragile whole"

    @classmethod
    def decode_request(cls, request: InferenceRequest) -> Any:
        return Fragile.decode_input(request.inputs[0])


@pytest.mark.parametrize("model", ["frame", "series", "free", "whole", "encoded"])
@pytest.mark.parametrize("kind", ["TypeError", "KeyError", "OSError"])
def test_what_a_users_codec_raises_beside_value_error_is_its_own_fault(model: str, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """As of any code of the user's: logged with its traceback, and answered 500 without its text. What it finds wrong is a ValueError."""

    def frame(df: pd.DataFrame) -> None: ...
    def series(x: pd.Series) -> None: ...
    def free(x: Annotated[Any, Fragile]) -> None: ...
    def whole(pair: Annotated[Any, FragileWhole]) -> None: ...
    def encoded(x: Array) -> int:
        return 1

    functions: dict[str, Callable[..., Any]] = {"frame": frame, "series": series, "free": free, "whole": whole, "encoded": encoded}
    server = InferenceServer(codecs=[Fragile])
    server.register("m", functions[model])
    outputs = [RequestOutput("output_0", {"content_type": "fragile"})] if model == "encoded" else []
    x = bytes_tensor("x", [kind.encode()], **({} if model in ("whole", "encoded") else {"content_type": "fragile"}))
    status, text = error(send(server, "m", request_of(x, outputs=outputs)))
    assert (status, "secret" in text) == (500, False)
    [record] = caplog.records
    assert record.exc_info is not None
    assert "a secret" in str(record.exc_info[1])


def test_servers_share_no_codecs() -> None:
    plain = InferenceServer()
    plain.register("free", lambda x: x)
    assert "unknown content_type 'colour'" in error(send(plain, "free", request_of(COLOURS)))[1]


def test_an_instance_serves_as_a_codec_and_takes_the_place_of_another() -> None:
    class Shouting(StringCodec):
        content_type = "str"

        def __init__(self, mark: str) -> None:
            self.mark = mark

        def decode_input(self, request_input: Tensor) -> list[str]:  # type: ignore[override]
            return [text.upper() + self.mark for text in StringCodec.decode_input(request_input)]

    server = InferenceServer(codecs=[Shouting("!")])
    server.register("free", lambda x: np.array(x))
    assert described(send(server, "free", request_of(with_type(NAMES, "str")))) == [("output_0", [2], None, ["JOANNE!", "MICHAËL!"])]


def test_base64_of_the_client_side() -> None:
    tensor = Base64Codec.encode_input("x", [b"\xff"])
    assert (tensor.shape, tensor.array.tolist()) == ((1,), [b"/w=="])


OF_TENSORS = ["np", "str", "base64", "datetime", "pd_json"]
SAID = [(None, None), (None, "pd"), *((one, None) for one in OF_TENSORS), *((None, one) for one in OF_TENSORS[:2])]
SAID += [("str", "pd"), ("pd_json", "pd"), ("np", "str"), ("datetime", "np")]
ELEMENTS: dict[str, list[Any]] = {"BYTES": [b"YQ==", b"20220111", b'"a"', b"1", b"{}", b"NaT", b"\xff"], "FP64": [1.5], "INT64": [7]}


@pytest.mark.parametrize("shape", [(-1,), (-1, 1), (-1, -1)], ids=str)
@pytest.mark.parametrize(("of_tensor", "of_request"), SAID)
@pytest.mark.parametrize("datatype", ELEMENTS)
def test_no_content_type_makes_a_declared_model_fail(datatype: str, of_request: str | None, of_tensor: str | None, shape: Any) -> None:
    """An identity without annotations gives back what a client's content type makes; a 500 would blame the model for it."""
    server = InferenceServer()
    spec = TensorSpec("x", datatype, shape)
    server.register("m", lambda x: x, inputs=[spec], outputs=[TensorSpec("y", datatype, shape)])
    parameters = {} if of_tensor is None else {"content_type": of_tensor}
    taken = 0
    for element in ELEMENTS[datatype]:
        for sent in ((2,), (2, 1)):
            array = bytes_tensor("x", [element] * 2).array if datatype == "BYTES" else np.array([element] * 2)
            request = request_of(Tensor("x", array.reshape(sent), {**parameters}))
            if of_request is not None:
                request.parameters["content_type"] = of_request
            answer = send(server, "m", request, binary=True)
            assert answer.status in (200, 400), answer.body
            taken += answer.status == 200
            if answer.status == 200:
                [output] = response_of(answer).outputs
                assert (output.name, output.datatype, len(output.shape)) == ("y", datatype, len(shape))
    is_plain = (of_tensor or of_request) in ("np", None) or (datatype == "BYTES" and (of_tensor or of_request) != "pd_json")
    assert taken > 0 or of_request == "pd" or not is_plain


@pytest.mark.parametrize("content_type", ["np", "str", "base64", "datetime", "pd_json", "colour"])
@pytest.mark.parametrize("datatype", ["FP64", "BYTES"])
def test_no_content_type_of_an_output_makes_a_declared_model_fail(datatype: str, content_type: str) -> None:
    server = InferenceServer(codecs=[ColourCodec])
    array: Any = np.ones((2, 2)) if datatype == "FP64" else np.full((2, 2), b"20220111", object)
    for value, shape in ((array, [-1, -1]), (array[0], [-1]), (array[:, :1], [2, 1]), (array[0].tolist(), [-1])):
        for model in (lambda value=value: value, lambda value=value: InferenceResponse([Tensor("y", np.asarray(value, array.dtype))])):
            name = f"m{len(list(server.core.models))}"
            server.register(name, model, outputs=[TensorSpec("y", datatype, shape)])
            answer = send(server, name, request_of(outputs=[RequestOutput("y", {"content_type": content_type})]))
            is_possible = content_type == "np" or (datatype == "BYTES" and content_type not in ("colour", "pd_json"))
            assert answer.status == 200 if is_possible and shape != [-1, -1] and content_type != "datetime" else answer.status in (200, 400)


def test_a_model_that_breaks_its_declaration_is_at_fault_whatever_is_asked() -> None:
    server = InferenceServer()
    server.register("m", lambda: np.ones(3), outputs=[TensorSpec("y", "FP64", [2])])
    server.register("n", lambda x: x.missing, inputs=[TensorSpec("x", "BYTES", [-1])])
    assert error(send(server, "m", request_of(outputs=[RequestOutput("y", {"content_type": "pd_json"})])))[0] == 500
    assert error(send(server, "n", request_of(with_type(NAMES, "np"))))[0] == 500
    status, text = error(send(server, "n", request_of(with_type(NAMES, "str"))))
    assert (status, text) == (400, "model 'n' failed with the content_type 'str', which is not what it declares: leave it out")


def test_strings_as_mlservers_clients_send_them_to_a_declared_column() -> None:
    """Its StringCodec writes [N, 1], ours [N]; both are taken for what is declared, and so is the list that comes back."""
    server = InferenceServer()
    for name, shape in (("any", [-1, -1]), ("one", [-1, 1]), ("list", [-1])):
        server.register(name, lambda x: x, inputs=[TensorSpec("x", "BYTES", shape)], outputs=[TensorSpec("y", "BYTES", shape)])
        for tensor in (bytes_column("x", [b"a", b"b"], content_type="str"), StringCodec.encode_input("x", ["a", "b"])):
            assert described(send(server, name, request_of(tensor))) == [("y", [2] if name == "list" else [2, 1], None, ["a", "b"])]


@pytest.mark.parametrize("shape", [[-1, 1], [-1, -1]], ids=str)
def test_a_list_of_elements_is_declared_as_a_column(shape: list[int]) -> None:
    def strings() -> list[str]:
        return ["a", "b"]

    server = InferenceServer(debug=True)
    server.register("annotated", strings, outputs=[TensorSpec("y", "BYTES", shape)])
    server.register("bytes", lambda: [b"a", b"b"], outputs=[TensorSpec("y", "BYTES", shape)])
    server.register("dates", lambda: [NOON], outputs=[TensorSpec("y", "BYTES", shape)])
    server.register("declared", lambda: {"y": ["a", "b"]}, outputs=[TensorSpec("y", "BYTES", shape, content_type="str")])
    server.register("array", lambda: np.array(["a", "b"]), outputs=[TensorSpec("y", "BYTES", shape)])
    assert described(ask(server, "annotated")) == [("y", [2, 1], "str", ["a", "b"])]
    assert described(ask(server, "bytes")) == [("y", [2, 1], None, ["a", "b"])]
    assert described(ask(server, "dates")) == [("y", [1, 1], "datetime", ["2022-01-11T11:00:00"])]
    assert described(ask(server, "declared")) == [("y", [2, 1], "str", ["a", "b"])]
    assert "has shape [2]" in error(ask(server, "array"))[1]  # an array has the shape it has
