"""Invariants: any tensor survives the trip bit for bit, and no change of a valid body is answered with a 5xx."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from oip_asgi import InferenceRequest, InferenceResponse, InferenceServer, OIPApp, Tensor
from tests.support.ways import Answer, Request, over_asgi
from tests.support.wire import objects

pytestmark = pytest.mark.ci  # as no machine breaks it

ml_dtypes = pytest.importorskip("ml_dtypes")

DTYPES = [*(np.dtype(f"<{kind}{size}") for kind in "iu" for size in (1, 2, 4, 8)), *(np.dtype(f"<f{size}") for size in (2, 4, 8))]
DTYPES += [np.dtype(bool), np.dtype(object), np.dtype(ml_dtypes.bfloat16)]


@st.composite
def arrays(draw: st.DrawFn) -> Any:
    """An array of any datatype and shape, any bit pattern included; of texts if it is BYTES."""
    dtype, shape = draw(st.sampled_from(DTYPES)), draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
    if dtype.hasobject:
        count = math.prod(shape)
        return objects(draw(st.lists(st.text(max_size=5).map(str.encode), min_size=count, max_size=count))).reshape(shape)
    return draw(hnp.arrays(bool if dtype.kind == "b" else np.dtype(f"u{dtype.itemsize}"), shape)).view(dtype)


def assert_equal(left: Any, right: Any, *, in_json: bool) -> None:
    """Equal to the last bit, but that JSON does not tell any NaN from any other."""
    assert (left.dtype, left.shape) == (right.dtype, right.shape)
    if left.dtype.kind not in "fV" or left.dtype.hasobject:
        assert left.tolist() == right.tolist()
        return
    with np.errstate(invalid="ignore"):  # isnan of a signalling BF16 NaN says so
        either = np.isnan(left) & np.isnan(right) if in_json else np.zeros(left.shape, bool)
    bits = [np.ascontiguousarray(array).reshape(left.shape).view(np.dtype(f"u{left.dtype.itemsize}")) for array in (left, right)]
    assert np.all(either | (bits[0] == bits[1]))


def to_request(tensors: list[Tensor], forms: list[str]) -> tuple[bytes, int]:
    """A request that sends each tensor in the form asked for: binary, or nested or flat JSON; written by hand, as a client would."""
    inputs, data = [], b""
    for tensor, form in zip(tensors, forms, strict=True):
        headers, body = InferenceRequest([tensor]).to_http(binary=form == "binary")
        length = int(headers.get("Inference-Header-Content-Length", len(body)))
        [item] = json.loads(body[:length])["inputs"]
        data += body[length:]
        if form == "nested" and tensor.array.size:
            for size in reversed(tensor.shape[1:]):
                item["data"] = [item["data"][start : start + size] for start in range(0, len(item["data"]), size)]
            if not tensor.shape and item["data"] != [None]:  # null alone is no data
                [item["data"]] = item["data"]
        inputs.append(item)
    text = json.dumps({"inputs": inputs}).encode()
    return text + data, len(text)


@st.composite
def mixtures(draw: st.DrawFn) -> tuple[list[Tensor], list[str]]:
    tensors = [Tensor(f"t{place}", array) for place, array in enumerate(draw(st.lists(arrays(), max_size=4)))]
    return tensors, [draw(st.sampled_from(["binary", "nested", "flat"])) for _ in tensors]


def identity_server() -> InferenceServer:
    server = InferenceServer()

    @server.model("m")
    def model(**inputs: Any) -> Any:
        assert all(not array.size or array.flags.aligned for array in inputs.values())
        return inputs

    return server


SEND = over_asgi(OIPApp(identity_server()), "", chunk=50)


def ask(body: bytes, length: object) -> Answer:
    return SEND(Request("POST", "/models/m/infer", (("inference-header-content-length", str(length)),), body))


def assert_answered(answer: Answer) -> None:
    assert answer.status == 200 or 400 <= answer.status < 500
    if answer.status != 200:
        assert list(json.loads(answer.body)) == ["error"]


@settings(max_examples=50)
@given(mixtures(), st.data())
def test_mixtures_of_json_and_binary_come_back(mixture: tuple[list[Tensor], list[str]], data: st.DataObject) -> None:
    tensors, forms = mixture
    body, length = to_request(tensors, forms)
    asked = [{"name": tensor.name, "parameters": {"binary_data": data.draw(st.booleans())}} for tensor in tensors]
    text = json.dumps({**json.loads(body[:length]), "outputs": asked}).encode()
    answer = ask(text + body[length:], len(text))
    response = InferenceResponse.from_http(answer.headers, answer.body, answer.status)
    for sent, form, output, back in zip(tensors, forms, asked, response.outputs, strict=True):
        is_binary = form == "binary" and output["parameters"]["binary_data"]  # type: ignore[index]
        assert back.name == sent.name
        assert_equal(back.array, sent.array, in_json=not is_binary)


@given(mixtures(), st.data())
def test_any_prefix_or_changed_byte_is_answered(mixture: tuple[list[Tensor], list[str]], data: st.DataObject) -> None:
    body, length = to_request(*mixture)
    assert ask(body, length).status == 200
    end = data.draw(st.integers(0, len(body)))
    assert_answered(ask(body[:end], length))
    place = data.draw(st.integers(0, len(body) - 1))
    changed = body[:place] + bytes([data.draw(st.integers(0, 255))]) + body[place + 1 :]
    assert_answered(ask(changed, length))
    assert_answered(ask(body, data.draw(st.integers(-1, len(body) + 1))))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.sampled_from(["FP32", "INT8", "BYTES", "x"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["inputs", "outputs", "name", "shape", "datatype", "data", "parameters", "id", "binary_data_size", "zz"]),
            inner,
            max_size=6,
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_any_json_is_answered(document: Any) -> None:
    body = json.dumps(document).encode()
    assert_answered(ask(body, len(body)))


@given(st.binary(max_size=200), st.integers(0, 200))
def test_any_bytes_are_answered(body: bytes, length: int) -> None:
    assert_answered(ask(body, length))


@given(
    st.integers(1, 300),
    st.sampled_from([("[", "]"), ('{"a":', "}"), ('{"\\"[]{\\\\":', "}"), ('["]",', "]")]),
    st.text(alphabet='[]{}\\"a'),
)
def test_nesting_outside_strings_is_counted_exactly(times: int, brackets: tuple[str, str], text: str) -> None:
    opening, closing = brackets
    body = f'{{"inputs":[],"zz":{opening * times}{json.dumps(text)}{closing * times}}}'.encode()
    assert ask(body, len(body)).status == (400 if 1 + times > 100 else 200)


def test_nesting_is_counted_over_many_chunks() -> None:
    for deep in (False, True):
        filler = '"[[[\\\\\\"",' * 300_000
        body = f'{{"inputs":[],"zz":[{filler}{"[" * (98 + deep)}{"]" * (98 + deep)}]}}'.encode()
        assert ask(body, len(body)).status == (400 if deep else 200)
