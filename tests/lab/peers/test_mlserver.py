"""MLServer 1.7.1's codecs against ours: what they encode we decode to equal values, and the reverse; what differs is listed here.

MLServer runs in its own environment and process: `tox -e peers` installs it and names its Python in MLSERVER_PYTHON.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

import httpx2
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oip_asgi.mlserver.codecs
from oip_asgi import InferenceError, InferenceRequest, InferenceResponse, codecs
from oip_asgi.mlserver import types
from tests.processes.test_codec_examples import expected, frame_app, url, wines  # noqa: F401  (fixtures)
from tests.support.inside import decode_request
from tests.support.inside.values import Array
from tests.support.processes import serving

PYTHON = os.environ.get("MLSERVER_PYTHON")

pytestmark = pytest.mark.skipif(
    PYTHON is None, reason="MLSERVER_PYTHON does not name the Python of an environment with mlserver: tox -e peers"
)

MLServer: TypeAlias = Callable[..., Any]


@pytest.fixture(scope="session")
def mlserver() -> Iterator[MLServer]:
    """Send a job to MLServer's process, and give its value."""
    command = [str(PYTHON), "-W", "ignore", str(Path(__file__).with_name("mlserver_codecs.py"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        to, of = process.stdin, process.stdout

        def ask(do: str, codec: str, **job: Any) -> Any:
            to.write(json.dumps({"do": do, "codec": codec, **job}) + "\n")
            to.flush()
            answer = json.loads(of.readline())
            if "error" in answer:
                raise AssertionError(answer["error"])
            return answer["value"]

        yield ask
        to.close()


def theirs(codec: str, document: Any) -> Any:
    """What our codec makes of a request in JSON."""
    request = decode_request(json.dumps(document).encode())
    ours = getattr(codecs, codec)
    return ours.decode_request(request) if issubclass(ours, codecs.RequestCodec) else ours.decode_input(request.inputs[0])


def ours(codec: str, value: Any) -> Any:
    """The JSON of the request that our codec makes."""
    mine = getattr(codecs, codec)
    request = mine.encode_request(value) if issubclass(mine, codecs.RequestCodec) else InferenceRequest([mine.encode_input("foo", value)])
    return json.loads(request.to_http()[1])


def as_response(document: Any) -> Any:
    """A request's tensors as a response's."""
    return {"model_name": "m", "parameters": document.get("parameters"), "outputs": document["inputs"]}


def tagged(value: Any) -> Any:
    """A value as it travels to MLServer."""
    if isinstance(value, np.ndarray):
        return {"kind": "array", "dtype": value.dtype.str, "shape": list(value.shape), "data": value.ravel().tolist()}
    if isinstance(value, pd.DataFrame):
        columns = [[name, str(value[name].dtype).replace("str", "object"), value[name].tolist()] for name in value]
        return {"kind": "frame", "columns": columns}
    if all(isinstance(element, str) for element in value):
        return {"kind": "strings", "data": value}
    if all(isinstance(element, bytes) for element in value):
        return {"kind": "bytes", "data": [element.hex() for element in value]}
    return {"kind": "datetimes", "data": [element.isoformat() for element in value]}


def both_ways(mlserver: MLServer, codec: str, value: Any, untagged: Any) -> Any:
    """Exchange a value both ways, as request and response; what ours decoded. `untagged` is what theirs must have decoded."""
    document = mlserver("encode", codec, value=tagged(value))
    mine = ours(codec, value)
    assert mlserver("decode request", codec, document=mine) == untagged
    assert mlserver("decode response", codec, document=as_response(mine)) == untagged
    if codec != "NumpyCodec" and codec != "NumpyRequestCodec":
        unbytes = mlserver("encode", codec, value=tagged(value), use_bytes=False)
        assert unbytes == document
    assert [item["shape"] for item in mine["inputs"]] == [_as_ours(codec, item["shape"]) for item in document["inputs"]]
    assert [item["data"] for item in mine["inputs"]] == [item["data"] for item in document["inputs"]]
    return theirs(codec, document)


def _as_ours(codec: str, shape: list[int]) -> list[int]:
    """Arrays have the same shape from both; lists are [N, 1] from MLServer and [N] from us."""
    return shape if codec in ("NumpyCodec", "NumpyRequestCodec") else shape[:1]


texts = st.text(st.characters(exclude_categories=["Cs"]))
examples = settings(max_examples=40)
wholes = pytest.mark.parametrize("whole", [False, True], ids=["tensor", "request"])

FLOATS = st.floats(allow_infinity=False)
DTYPES = {
    "?": st.booleans(),
    **{f"{kind}{size}": None for kind in "iu" for size in (1, 2, 4, 8)},
    "f2": st.floats(width=16, allow_infinity=False),
    "f4": st.floats(width=32, allow_infinity=False),
    "f8": FLOATS,
}


@st.composite
def arrays(draw: st.DrawFn) -> Array:
    dtype = np.dtype(draw(st.sampled_from(sorted(DTYPES))))
    shape = draw(st.sampled_from([(3,), (1,), (2, 2), (2, 1, 3)]))
    elements = DTYPES.get(dtype.str.lstrip("<|").replace("b1", "?"))
    if elements is None:
        limits = np.iinfo(dtype.str)
        elements = st.integers(int(limits.min), int(limits.max))
    size = math.prod(shape)
    return np.array(draw(st.lists(elements, min_size=size, max_size=size)), dtype).reshape(shape)


@wholes
@examples
@given(array=arrays())
def test_arrays(mlserver: MLServer, whole: bool, array: Array) -> None:
    with_unit = array.reshape(-1, 1) if array.ndim == 1 else array
    data = [None if element != element else element for element in array.ravel().tolist()]
    untagged = {"kind": "array", "dtype": array.dtype.str, "shape": list(with_unit.shape), "data": data}
    got = both_ways(mlserver, "NumpyRequestCodec" if whole else "NumpyCodec", array, untagged)
    assert got.dtype == array.dtype
    np.testing.assert_array_equal(got, with_unit)


@pytest.mark.parametrize(
    ("codec", "elements", "untag"),
    [
        *((codec, texts, str) for codec in ("StringCodec", "StringRequestCodec")),
        ("Base64Codec", st.binary(), bytes.hex),
        ("DatetimeCodec", st.datetimes(timezones=st.sampled_from([None, UTC])), datetime.isoformat),
    ],
)
@examples
@given(data=st.data())
def test_lists(mlserver: MLServer, codec: str, elements: Any, untag: Callable[[Any], str], data: st.DataObject) -> None:
    value = data.draw(st.lists(elements, min_size=1))
    assert both_ways(mlserver, codec, value, [untag(element) for element in value]) == value


@st.composite
def frames(draw: st.DrawFn) -> pd.DataFrame:
    rows = draw(st.integers(1, 4))

    def lists(elements: Any) -> Any:
        return draw(st.lists(elements, min_size=rows, max_size=rows))

    makers: dict[str, Callable[[], Any]] = {
        "float": lambda: np.array(lists(FLOATS)),
        "integer": lambda: np.array(lists(st.integers(-(2**63), 2**63 - 1)), "i8"),
        "byte": lambda: np.array(lists(st.integers(0, 255)), "u1"),
        "boolean": lambda: np.array(lists(st.booleans())),
        "text": lambda: lists(texts),
        "mixed": lambda: pd.Series(lists(st.integers(-(2**53), 2**53) | texts | st.lists(st.booleans())), dtype=object),
    }
    names = draw(st.lists(st.sampled_from(sorted(makers)), min_size=1, unique=True))
    return pd.DataFrame({name: makers[name]() for name in names})


@examples
@given(frame=frames())
def test_frames(mlserver: MLServer, frame: pd.DataFrame) -> None:
    got = theirs("PandasCodec", mlserver("encode", "PandasCodec", value=tagged(frame)))
    pd.testing.assert_frame_equal(got, frame, check_dtype=False)
    mine = ours("PandasCodec", frame)
    for document, do in ((mine, "decode request"), (as_response(mine), "decode response")):
        columns = mlserver(do, "PandasCodec", document=document)["columns"]
        assert [name for name, _, _ in columns] == list(frame.columns)
        for name, _, values in columns:
            assert values == [None if element is None or element != element else element for element in frame[name].tolist()], name


def test_arrays_in_the_cells_of_a_frame(mlserver: MLServer) -> None:
    data = [[1.5, 2.5], [[1, 2], [3, 4]], ["a", "é"], [], [True]]
    frame = pd.DataFrame({"x": pd.Series([np.array(cell) for cell in data], dtype=object)})
    [written] = mlserver("encode", "PandasCodec", value={"kind": "cells", "data": data})["inputs"]
    [mine] = ours("PandasCodec", frame)["inputs"]
    assert (mine["datatype"], mine["data"]) == (written["datatype"], written["data"])
    mine["parameters"].pop("pd_dtype", None)  # with pandas 3 ours says that it is no column of strings; MLServer does not read it
    assert mine["parameters"] == written["parameters"]
    [[_, _, read]] = mlserver("decode request", "PandasCodec", document=ours("PandasCodec", frame))["columns"]
    assert read == data


def test_what_mlserver_sends_to_a_frame_model(mlserver: MLServer, url: str, wines: pd.DataFrame, expected: pd.DataFrame) -> None:  # noqa: F811
    document = mlserver("encode", "PandasCodec", value=tagged(wines))
    answer = httpx2.post(f"{url}/v2/models/score/infer", json=document)
    pd.testing.assert_frame_equal(codecs.PandasCodec.decode_response(InferenceResponse.from_http(answer.headers, answer.content)), expected)
    columns = {name: values for name, _, values in mlserver("decode response", "PandasCodec", document=answer.json())["columns"]}
    assert columns == {name: expected[name].tolist() for name in expected}
    headers, body = codecs.PandasCodec.encode_request(wines).to_http(binary=True)
    assert httpx2.post(f"{url}/v2/models/score/infer", headers=headers, content=body).json() == answer.json()


PEOPLE = pd.DataFrame({"First Name": ["Joanne", "Zoé", ""], "Age": [34, 12, 2**53 + 1], "Weight": [60.5, np.nan, -1e300]})
BY_HAND = """{"inputs": [
  {"name": "First Name", "datatype": "BYTES", "shape": [3], "data": ["Joanne", "Zo\u00e9", ""]},
  {"name": "Age", "datatype": "INT64", "shape": [3], "data": [34, 12, 9007199254740993]},
  {"name": "Weight", "datatype": "FP64", "shape": [3], "data": [60.5, null, -1e300]}]}"""


@pytest.fixture(scope="module")
def score_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """FastAPI with `def score(df: pd.DataFrame) -> pd.DataFrame`, in a server process of its own; the model's address."""
    command = ["python", "-m", "uvicorn", "tests.lab.peers.frame_site:app", "--port", "PORT", "--log-level", "warning"]
    with serving(command, tmp_path_factory.mktemp("frames") / "log") as served:
        yield f"{served.url}/v2/models/score/infer"


def test_one_frame_from_mlserver_from_us_and_by_hand_is_answered_alike(mlserver: MLServer, score_url: str) -> None:
    by_mlserver = httpx2.post(score_url, json=mlserver("encode", "PandasCodec", value=tagged(PEOPLE)))
    answers = {"MLServer": (by_mlserver.headers, by_mlserver.content)}
    for binary in (False, True):
        request = codecs.PandasCodec.encode_request(PEOPLE)
        request.parameters["binary_data_output"] = binary
        headers, body = request.to_http(binary=binary)
        answer = httpx2.post(score_url, headers=headers, content=body)
        answers[f"ours, binary={binary}"] = answer.headers, answer.content
    curl = ["curl", "--silent", "--show-error", "--fail", "--noproxy", "*", "--data", BY_HAND, score_url]
    answers["curl"] = httpx2.Headers(), subprocess.run(curl, capture_output=True, timeout=60, check=True).stdout

    frame = PEOPLE.assign(adult=[True, False, True])
    for way, (headers_of_answer, content) in answers.items():
        got = codecs.PandasCodec.decode_response(InferenceResponse.from_http(headers_of_answer, content))
        pd.testing.assert_frame_equal(got, frame, obj=way)
    read = mlserver("decode response", "PandasCodec", document=by_mlserver.json())["columns"]
    wanted = [[None if element != element else element for element in frame[name].tolist()] for name in frame]
    assert [(name, values) for name, _, values in read] == list(zip(frame, wanted, strict=True))


def test_differences_that_remain(mlserver: MLServer) -> None:
    """The README's list, each as it is seen."""
    # a list and a column are [N]
    assert mlserver("encode", "StringCodec", value=tagged(["a", "b"]))["inputs"][0]["shape"] == [2, 1]
    assert ours("StringCodec", ["a", "b"])["inputs"][0]["shape"] == [2]
    one = pd.DataFrame({"x": [1, 2]})
    assert mlserver("encode", "PandasCodec", value=tagged(one))["inputs"][0]["shape"] == [2, 1]
    assert ours("PandasCodec", one)["inputs"][0]["shape"] == [2]
    # what is no base64 is refused, not handed on
    odd = {"inputs": [{"name": "foo", "shape": [1], "datatype": "BYTES", "data": ["no base64!"]}]}
    assert mlserver("decode request", "Base64Codec", document=odd) == [b"no base64!".hex()]
    with pytest.raises(InferenceError, match="which is not base64"):
        theirs("Base64Codec", odd)
    # a scalar stays one
    assert mlserver("encode", "NumpyCodec", value=tagged(np.array(1.5)))["inputs"][0]["shape"] == [1]
    assert ours("NumpyCodec", np.array(1.5))["inputs"][0]["shape"] == []
    # strings of numpy are bytes here
    text = {"inputs": [{"name": "foo", "shape": [1, 1], "datatype": "BYTES", "data": ["a"]}]}
    assert mlserver("decode request", "NumpyCodec", document=text)["data"] == ["a"]
    assert theirs("NumpyCodec", text).tolist() == [[b"a"]]
    # infinities survive in JSON
    assert ours("NumpyCodec", np.array([np.inf]))["inputs"][0]["data"] == ["Infinity"]
    assert mlserver("encode", "NumpyCodec", value=tagged(np.array([np.inf])))["inputs"][0]["data"] == [None]
    # infinities among objects are strings, alone floats
    for values, data in (([math.inf, "a"], ['"Infinity"', '"a"']), ([math.inf, 1.5], ["Infinity", 1.5])):
        with pytest.raises(AssertionError, match="ValueError: Out of range float values"):
            mlserver("encode", "PandasCodec", value={"kind": "frame", "columns": [["x", "object", values]]})
        assert ours("PandasCodec", pd.DataFrame({"x": pd.Series(values, dtype=object)}))["inputs"][0]["data"] == data
    # columns that MLServer cannot send, and reads all the same
    for dtype, values in COLUMNS_OF_OURS.items():
        with pytest.raises(AssertionError, match=r"KeyError|TypeError"):
            mlserver("encode", "PandasCodec", value={"kind": "frame", "columns": [["x", dtype, values]]})
        frame = pd.DataFrame({"x": pd.Series(values, dtype=dtype)})
        [[_, _, read]] = mlserver("decode request", "PandasCodec", document=ours("PandasCodec", frame))["columns"]
        assert read == values
        pd.testing.assert_frame_equal(theirs("PandasCodec", ours("PandasCodec", frame)), frame)


COLUMNS_OF_OURS: dict[str, list[Any]] = {
    "Int64": [1, None],
    "boolean": [True, None],
    "string": ["a", None],
    "category": ["b", "a", None],
    "object": ["a", None],
    "datetime64[ns]": ["2022-01-11T11:00:00", "2022-01-12T11:00:00"],
}


@pytest.mark.parametrize(
    ("codec", "value"),
    [
        ("NumpyCodec", np.arange(3)),
        ("NumpyCodec", np.array([[1, 2], [3, 4]], np.float32)),
        ("StringCodec", ["a", "ö"]),
        ("Base64Codec", [b"a", b"\xff"]),
        ("DatetimeCodec", [datetime(2022, 1, 11, 11, 0, tzinfo=UTC)]),
        ("NumpyRequestCodec", np.arange(4.0)),
        ("StringRequestCodec", ["a", "b"]),
        ("PandasCodec", pd.DataFrame({"age": [34, 22], "name": ["Jo", "Mi"], "size": [1.5, 2.5]})),
    ],
)
def test_the_codecs_for_its_models_write_and_read_as_its_own(mlserver: MLServer, codec: str, value: Any) -> None:
    mine = getattr(oip_asgi.mlserver.codecs, codec)
    is_whole = hasattr(mine, "encode_request")
    made = mine.encode_request(value, use_bytes=False) if is_whole else mine.encode_input("foo", value, use_bytes=False)
    request = made if is_whole else types.InferenceRequest(inputs=[made])
    assert request.dict() == mlserver("encode", codec, value=tagged(value), **({} if "Numpy" in codec else {"use_bytes": False}))
    read = mine.decode_request(made) if is_whole else mine.decode_input(made)
    if isinstance(value, pd.DataFrame):
        pd.testing.assert_frame_equal(read, value)
    else:
        assert np.array_equal(np.reshape(read, np.shape(value)), value)
