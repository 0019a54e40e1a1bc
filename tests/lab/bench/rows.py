"""The rows of the benchmark: what is asked, and how an answer is checked before it is measured. Knows no server and no client.

Checks read the protocol's text on their own, with json and numpy; data frames are too much for that and are read by the package's codec.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import numpy as np

from .functions import NUMBERS, clicks, image

HEADER_LENGTH: Final = "inference-header-content-length"

HTTP: Final = "HTTP"
GRPC: Final = "gRPC"

DIGIT: Final = 4
"""What the image of the row `digits` shows."""

IN_THREADS: Final = ("sleeps 100 ms", "computes 5 ms")
"""Rows for a `def` in worker threads: how many of its calls run at once where nobody says it."""


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
    connections: Sequence[int] = (8,)
    transport: str = HTTP


def rows(patterns: Iterable[str]) -> list[Row]:
    """The rows whose names match one of these patterns of the shell, upper and lower case alike, in the table's order."""
    lowered = [pattern.lower() for pattern in patterns]
    return [replace(make(), name=name) for name, make in _ROWS.items() if any(fnmatch.fnmatch(name.lower(), each) for each in lowered)]


def names() -> list[str]:
    """The names of all rows, in the table's order."""
    return list(_ROWS)


def by_hand() -> dict[str, Row]:
    """What a service with JSON of its own is asked, by the name of the row whose place it takes. There is none for binary data."""
    x, texts, columns, pixels = [_numbers([1, 4]).ravel().tolist()], [text.decode() for text in _texts()], _columns(), image().tolist()
    asked: dict[str, tuple[str, Any, Any]] = {
        "JSON 1x4": ("/identity", {"x": x}, {"y": x}),
        **{f"JSON 1x{size}": ("/identity", {"x": many}, {"y": many}) for size in (784, 1000) for many in [_numbers([1, size]).tolist()]},
        **{name: (f"/{name.split()[0]}", {"x": x}, {"y": x}) for name in IN_THREADS},
        "digits": ("/digits", {"image": pixels}, {"digit": [DIGIT]}),
        "ONNX": ("/onnx", {"image": pixels}, {"digit": [DIGIT]}),
        "clicks 1x39": ("/clicks", {"rows": [columns]}, {"chance": [_chance()]}),
        "frame 1x39": ("/frame", {"rows": [columns]}, {"rows": [columns]}),
        "BYTES 1000, JSON": ("/strings", {"texts": texts}, {"texts": texts}),
    }
    return {name: _ask_by_hand(name, *each) for name, each in asked.items()}


def _ask_by_hand(name: str, path: str, sent: Any, expected: Any) -> Row:
    def check(answer: Answer) -> None:
        expect_success(answer)
        if json.loads(answer.body) != expected:
            raise WrongAnswer(f"expected {str(expected)[:80]}, and {answer.body[:80]!r} came back")

    return Row(name, "POST", path, {"content-type": "application/json"}, json.dumps(sent).encode(), check)


def _numbers(shape: Sequence[int]) -> Any:
    return np.random.default_rng(0).random(shape, np.float32)


def _texts() -> list[bytes]:
    return [b"element %d of a thousand" % number for number in range(1000)]


def _columns() -> dict[str, Any]:
    """One row of thirteen numbers and twenty-six categories, as models of clicks take it."""
    numbers = {f"number_{place}": place + 0.5 for place in range(13)}
    return {**numbers, **{f"category_{place}": f"value {place}" for place in range(26)}}


def _chance() -> float:
    import pandas as pd

    columns = _columns()
    return float(clicks(pd.DataFrame({name: [columns[name]] for name in NUMBERS}))["chance"][0])


def _json(shape: Sequence[int], connections: int = 8, path: str = "identity") -> Row:
    """FP32 data spelled as clients spell it: Python's json writes each float32 with the digits of the float64 it is equal to."""
    values = _numbers(shape)
    tensor = {"name": "x", "shape": list(shape), "datatype": "FP32", "data": values.ravel().tolist()}
    return _infer(path, tensor, None, _is_array(values), connections)


def _binary(shape: Sequence[int], connections: int = 8) -> Row:
    values = _numbers(shape)
    return _infer("identity", {"name": "x", "shape": list(shape), "datatype": "FP32"}, values.tobytes(), _is_array(values), connections)


def _strings(*, is_binary: bool) -> Row:
    texts = _texts()
    tensor: dict[str, Any] = {"name": "x", "shape": [len(texts)], "datatype": "BYTES"}
    if not is_binary:
        tensor["data"] = [text.decode() for text in texts]
    data = b"".join(len(text).to_bytes(4, "little") + text for text in texts) if is_binary else None
    return _infer("strings", tensor, data, _is_texts(texts))


def _digits(model: str) -> Row:
    pixels = image()
    tensor = {"name": "image", "shape": list(pixels.shape), "datatype": "FP32", "data": pixels.ravel().tolist()}
    return _infer(model, tensor, None, _is_output([DIGIT]))


def _clicks() -> Row:
    return replace(_frame(), path="/models/clicks/infer", check=_is_output([_chance()]))


def _frame() -> Row:
    return frame_row({name: [value] for name, value in _columns().items()})


def frame_row(columns: Mapping[str, Any]) -> Row:
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

    return Row("frame", "POST", "/models/frame/infer", headers, body, check)


def _rpc(shape: Sequence[int]) -> Row:
    """A `ModelInfer` with a tensor of FP32."""
    from tests.support.grpc_ways import MESSAGES, SERVICE, wire_request

    values = _numbers(shape)
    message = wire_request("identity", [{"name": "x", "datatype": "FP32", "shape": shape}], [values.tobytes()])

    def check(answer: Answer) -> None:
        came = MESSAGES["ModelInferResponse"].FromString(answer.body)
        raw = came.raw_output_contents
        array = np.frombuffer(raw[0], "<f4") if raw else np.array(came.outputs[0].contents.fp32_contents, np.float32)
        if list(came.outputs[0].shape) != shape or not np.array_equal(array, values.ravel()):
            raise WrongAnswer(f"another array came back, of shape {came.outputs[0].shape}")

    return Row("gRPC", "ModelInfer", f"/{SERVICE}/ModelInfer", {}, message.SerializeToString(), check, transport=GRPC)


def _infer(model: str, tensor: dict[str, Any], binary: bytes | None, check: Check, connections: int = 8) -> Row:
    """A row of one model's inference: JSON, and the binary data behind it."""
    document: dict[str, Any] = {"inputs": [tensor]}
    headers = {"content-type": "application/json"}
    if binary is not None:
        tensor["parameters"] = {"binary_data_size": len(binary)}
        document["parameters"] = {"binary_data_output": True}
    text = json.dumps(document).encode()
    if binary is not None:
        headers = {"content-type": "application/octet-stream", HEADER_LENGTH: str(len(text))}
    return Row(model, "POST", f"/models/{model}/infer", headers, text + (binary or b""), check, [connections])


def _is_array(sent: Any) -> Check:
    def check(answer: Answer) -> None:
        output, data = _only_output(answer)
        came = np.array(output["data"], np.float32) if data is None else np.frombuffer(data, "<f4")
        if list(output["shape"]) != list(sent.shape) or not np.array_equal(came.ravel(), sent.ravel()):
            raise WrongAnswer(f"another array came back, of shape {output['shape']}")

    return check


def _is_texts(sent: list[bytes]) -> Check:
    def check(answer: Answer) -> None:
        output, data = _only_output(answer)
        framed = b"".join(len(text).to_bytes(4, "little") + text for text in sent)
        came = framed == data if data is not None else [text.encode() for text in np.ravel(output["data"]).tolist()] == sent
        if not came:
            raise WrongAnswer("other strings came back")

    return check


def _is_output(expected: list[float]) -> Check:
    def check(answer: Answer) -> None:
        output, _ = _only_output(answer)
        if not np.allclose(np.ravel(output["data"]), expected, rtol=1e-12):
            raise WrongAnswer(f"expected {expected}, and {output['data']} came back")

    return check


def _only_output(answer: Answer) -> tuple[Any, bytes | None]:
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


_ROWS: Final[Mapping[str, Callable[[], Row]]] = {
    "JSON 1x4": lambda: _json([1, 4]),
    "JSON 1x784": lambda: _json([1, 784]),
    "JSON 1x1000": lambda: _json([1, 1000]),
    "JSON 1000x1000": lambda: _json([1000, 1000], 1),
    "binary 1x4": lambda: _binary([1, 4]),
    "binary 1x5120": lambda: _binary([1, 5120]),
    "binary 1x150528": lambda: _binary([1, 150_528]),
    "binary 64 MiB": lambda: _binary([4096, 4096], 1),
    "digits": lambda: _digits("digits"),
    "ONNX": lambda: _digits("onnx"),
    "clicks 1x39": _clicks,
    "frame 1x39": _frame,
    "BYTES 1000, JSON": lambda: _strings(is_binary=False),
    "BYTES 1000, binary": lambda: _strings(is_binary=True),
    **{name: lambda name=name: _json([1, 4], path=name.split()[0]) for name in IN_THREADS},  # type: ignore[misc]
    "gRPC 1x4": lambda: _rpc([1, 4]),
    "gRPC 1x784": lambda: _rpc([1, 784]),
    "gRPC 1x150528": lambda: _rpc([1, 150_528]),
}
