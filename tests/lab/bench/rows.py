"""The rows of the benchmark: what is asked, and how an answer is checked before it is measured. Knows no server and no client.

Checks read the protocol's text on their own, with json and numpy; data frames are too much for that and are read by the package's codec.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np

HEADER_LENGTH: Final = "inference-header-content-length"

HTTP: Final = "HTTP"
GRPC: Final = "gRPC"


@dataclass(frozen=True)
class Answer:
    """What came back; names of headers in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)


class WrongAnswer(Exception):
    """A server answered something else than the row asked for, so that it must not be measured on it."""


class LoadFailed(Exception):
    """A server did not answer every request of a measurement with success."""


Check: TypeAlias = Callable[[Answer], None]
"""Raises WrongAnswer."""


@dataclass(frozen=True)
class Row:
    """One kind of request.

    Args:
        name: What the table calls it.
        method: The HTTP method.
        path: What is behind the mount, or the path of the gRPC method.
        headers: Beside Host and Content-Length.
        body: The bytes that are sent, and that the floor sends back.
        check: Whether an answer of the protocol is right.
        connections: With how many at once it is measured.
        transport: "HTTP" or "gRPC".
    """

    name: str
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes = field(repr=False)
    check: Check = field(repr=False)
    connections: Sequence[int]
    transport: str = HTTP


def rows(patterns: Iterable[str]) -> list[Row]:
    """The rows whose names match one of these patterns of the shell, upper and lower case alike, in the table's order."""
    lowered = [pattern.lower() for pattern in patterns]
    return [make(name) for name, make in _ROWS.items() if any(fnmatch.fnmatch(name.lower(), pattern) for pattern in lowered)]


def names() -> list[str]:
    """The names of all rows, in the table's order."""
    return list(_ROWS)


def one_mebibyte() -> Row:
    """A binary request whose tensor has a mebibyte, for what a server keeps of many of them."""
    return _binary([512, 512], [1])("binary 1 MiB")


def _numbers(shape: Sequence[int]) -> Any:
    return np.random.default_rng(0).random(shape, np.float32)


def _texts() -> list[bytes]:
    return [b"element %d of a thousand" % number for number in range(1000)]


def _json(shape: Sequence[int], connections: Sequence[int], *, nested: bool = False) -> Callable[[str], Row]:
    """FP32 data spelled as clients spell it: Python's json writes each float32 with the digits of the float64 it is equal to."""

    def make(name: str) -> Row:
        values = _numbers(shape)
        data = values.tolist() if nested else values.ravel().tolist()
        tensor = {"name": "x", "shape": list(values.shape), "datatype": "FP32", "data": data}
        return infer(name, "identity", document([tensor]), b"", _is_array(values), connections)

    return make


def _binary(shape: Sequence[int], connections: Sequence[int]) -> Callable[[str], Row]:
    def make(name: str) -> Row:
        values = _numbers(shape)
        data = values.tobytes()
        tensor = {"name": "x", "shape": list(values.shape), "datatype": "FP32", "parameters": {"binary_data_size": len(data)}}
        return infer(name, "identity", document([tensor], binary_data_output=True), data, _is_array(values), connections)

    return make


def _strings(name: str) -> Row:
    texts = _texts()
    tensor = {"name": "x", "shape": [len(texts)], "datatype": "BYTES", "data": [text.decode() for text in texts]}
    return infer(name, "strings", document([tensor]), b"", _is_texts(texts), [8])


def _binary_strings(name: str) -> Row:
    texts = _texts()
    data = b"".join(len(text).to_bytes(4, "little") + text for text in texts)
    tensor = {"name": "x", "shape": [len(texts)], "datatype": "BYTES", "parameters": {"binary_data_size": len(data)}}
    return infer(name, "strings", document([tensor], binary_data_output=True), data, _is_texts(texts), [8])


def _wide_frame(name: str) -> Row:
    """One row of thirteen numbers and twenty-six categories, as models of clicks take it."""
    numbers = {f"number_{place}": [place + 0.5] for place in range(13)}
    return frame_row(name, {**numbers, **{f"category_{place}": [f"value {place}"] for place in range(26)}}, [8])


def _long_frame(name: str) -> Row:
    """100,000 rows in ten columns of floats, integers, strings and datetimes."""
    count = 100_000
    dice = np.random.default_rng(0)
    moments = np.datetime64("2024-01-01T00:00:00", "s") + np.arange(count)
    columns: dict[str, Any] = {f"float_{place}": dice.random(count) for place in range(4)}
    columns |= {f"integer_{place}": dice.integers(0, 2**40, count) for place in range(3)}
    columns |= {f"string_{place}": [f"row {number}" for number in range(count)] for place in range(2)}
    return frame_row(name, {**columns, "moment": moments}, [1])


def frame_row(name: str, columns: Mapping[str, Any], connections: Sequence[int]) -> Row:
    """A data frame that comes back."""
    import pandas as pd

    from oip_asgi import InferenceResponse
    from oip_asgi.codecs import PandasCodec

    sent = pd.DataFrame(columns)
    headers, body = PandasCodec.encode_request(sent).to_http()

    def check(answer: Answer) -> None:
        expect_success(answer)
        came = PandasCodec.decode_response(InferenceResponse.from_http(answer.headers, answer.body))
        try:
            pd.testing.assert_frame_equal(came[list(columns)], sent, check_dtype=False)
        except (AssertionError, KeyError) as error:
            raise WrongAnswer(f"another frame came back: {error}") from None

    return Row(name, "POST", "/models/frame/infer", headers, body, check, connections)


def _health(name: str) -> Row:
    def check(answer: Answer) -> None:
        expect_success(answer)

    return Row(name, "GET", "/health/live", {}, b"", check, [1, 8, 64])


def rpc(shape: Sequence[int], connections: Sequence[int]) -> Callable[[str], Row]:
    """From its name to a row of `ModelInfer` with a tensor of FP32."""

    def make(name: str) -> Row:
        from tests.support.grpc_ways import MESSAGES, SERVICE, wire_request

        values = _numbers(shape)
        message = wire_request("identity", [{"name": "x", "datatype": "FP32", "shape": shape}], [values.tobytes()])

        def check(answer: Answer) -> None:
            came = MESSAGES["ModelInferResponse"].FromString(answer.body)
            raw = came.raw_output_contents
            array = np.frombuffer(raw[0], "<f4") if raw else np.array(came.outputs[0].contents.fp32_contents, np.float32)
            if list(came.outputs[0].shape) != shape or not np.array_equal(array, values.ravel()):
                raise WrongAnswer(f"another array came back, of shape {came.outputs[0].shape}")

        return Row(name, "ModelInfer", f"/{SERVICE}/ModelInfer", {}, message.SerializeToString(), check, connections, GRPC)

    return make


def document(inputs: Sequence[Mapping[str, Any]], **parameters: Any) -> bytes:
    """The JSON of a request."""
    return json.dumps({"inputs": inputs, **({"parameters": parameters} if parameters else {})}).encode()


def infer(name: str, model: str, text: bytes, binary: bytes, check: Check, connections: Sequence[int]) -> Row:
    """A row of one model's inference: JSON, and the binary data behind it."""
    headers = {"content-type": "application/json"}
    if binary:
        headers = {"content-type": "application/octet-stream", HEADER_LENGTH: str(len(text))}
    return Row(name, "POST", f"/models/{model}/infer", headers, text + binary, check, connections)


def _is_array(sent: Any) -> Check:
    def check(answer: Answer) -> None:
        output, data = only_output(answer)
        came = np.array(output["data"], np.float32) if data is None else np.frombuffer(data, "<f4")
        if list(output["shape"]) != list(sent.shape) or not np.array_equal(came.ravel(), sent.ravel()):
            raise WrongAnswer(f"another array came back, of shape {output['shape']}")

    return check


def _is_texts(sent: list[bytes]) -> Check:
    def check(answer: Answer) -> None:
        output, data = only_output(answer)
        came = [text.encode() for text in np.ravel(output["data"]).tolist()] if data is None else list(_unframed(data))
        if came != sent:
            raise WrongAnswer("other strings came back")

    return check


def _unframed(data: bytes) -> Iterable[bytes]:
    place = 0
    while place < len(data):
        start = place + 4
        place = start + int.from_bytes(data[place:start], "little")
        yield data[start:place]


def only_output(answer: Answer) -> tuple[Any, bytes | None]:
    """The one output of a response, and its bytes where it is binary.

    Raises:
        WrongAnswer: There is another number of outputs, or no success.
    """
    expect_success(answer)
    size = int(answer.headers.get(HEADER_LENGTH, len(answer.body)))
    outputs = json.loads(answer.body[:size])["outputs"]
    if len(outputs) != 1:
        raise WrongAnswer(f"{len(outputs)} outputs came back")
    return outputs[0], None if "data" in outputs[0] else answer.body[size:]


def expect_success(answer: Answer) -> None:
    """Raise WrongAnswer for any status but 200."""
    if answer.status != 200:
        raise WrongAnswer(f"{answer.status} {answer.body[:120].decode(errors='replace')}")


_ROWS: Final[Mapping[str, Callable[[str], Row]]] = {
    "health/live": _health,
    "JSON 1x4": _json([1, 4], [1, 8, 64]),
    "JSON 1x784": _json([1, 784], [8]),
    "JSON 1000x1000": _json([1000, 1000], [1]),
    "JSON 1000x1000 nested": _json([1000, 1000], [1], nested=True),
    "binary 1x4": _binary([1, 4], [1, 8, 64]),
    "binary 1x150528": _binary([1, 150_528], [1, 8]),
    "binary 4x150528": _binary([4, 150_528], [8]),
    "binary 64 MiB": _binary([4096, 4096], [1]),
    "BYTES 1000, JSON": _strings,
    "BYTES 1000, binary": _binary_strings,
    "frame 1x39": _wide_frame,
    "frame 100000x10": _long_frame,
    "gRPC 1x4": rpc([1, 4], [1, 8]),
    "gRPC 1x150528": rpc([1, 150_528], [1, 8]),
}
