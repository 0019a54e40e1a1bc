"""Long JSON in pieces: the same arrays and the same refusals as for short JSON.

What makes data long is set to a few bytes here, so that short data is read in pieces too.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oip_asgi import OIPApp
from tests.support.inside import decode_request_closely, read_in_pieces
from tests.support.inside.rest import json_data
from tests.support.inside.rest import rest_body as rest
from tests.support.inside.values import DTYPES, InvalidRequest
from tests.support.ways import Way, over_asgi
from tests.table.row import Row, table_server
from tests.table.rows import rows

NUMBERS = [name for name in DTYPES if name not in ("BOOL", "BYTES")]


@pytest.fixture(scope="module")
def way() -> Way:
    return over_asgi(OIPApp(table_server([])), "")


@pytest.mark.slow
@pytest.mark.parametrize("row", rows(), ids=str)
def test_the_table_is_answered_as_ever(row: Row, way: Way) -> None:
    for piece in (64, 2**16):
        with pytest.MonkeyPatch.context() as patch:
            read_in_pieces(patch, piece)
            answer = way(row.request)
        assert answer.status == row.status, piece
        if row.status == 200:
            assert answer.body == row.body, piece
        else:
            error = json.loads(answer.body)["error"] if answer.body else ""
            is_shape = "data has another form" in error or "data has too many" in error  # long data do not say where
            assert row.request.method == "HEAD" or piece == 64 or is_shape or all(part in error for part in row.text), (piece, error)


def outcome(text: bytes, datatype: str, shape: tuple[int, ...]) -> tuple[Any, ...]:
    head = json.dumps({"name": "x", "shape": shape, "datatype": datatype}).encode()
    try:
        [item] = rest.decode_request(b'{"inputs":[%b,"data":%b}]}' % (head[:-1], text), None).inputs
    except InvalidRequest as error:
        return (str(error),)
    return item.array.dtype, item.array.shape, item.array.tobytes()


def every(text: bytes, datatype: str, shape: tuple[int, ...], piece: int) -> list[tuple[Any, ...]]:
    """What comes of it as short text, and as long text."""
    outcomes = [outcome(text, datatype, shape)]
    with pytest.MonkeyPatch.context() as patch:
        read_in_pieces(patch, piece)
        outcomes.append(outcome(text, datatype, shape))
    # what is wrong with long text is told in fewer words
    return [("refused",) if len(outcome) == 1 else outcome for outcome in outcomes]


elements: st.SearchStrategy[Any] = st.one_of(
    st.integers(-300, 300),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([None, True, "NaN", "Infinity", [], [1], {}, -0.0, 1e39, 65520, 2.0]),
)


@given(
    data=st.data(),
    datatype=st.sampled_from(NUMBERS),
    shape=st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple),
    piece=st.integers(8, 100),  # some of the texts are one piece, most are more
)
def test_all_ways_give_the_same_array_or_refusal(data: st.DataObject, datatype: str, shape: tuple[int, ...], piece: int) -> None:
    kind = data.draw(st.sampled_from([st.integers(0, 100), st.floats(width=16, allow_nan=False, allow_infinity=False), elements]))
    flat = data.draw(st.lists(kind, min_size=int(np.prod(shape)), max_size=int(np.prod(shape))))
    nested = np.array([None, *flat], dtype=object)[1:].reshape(shape).tolist()
    for value in (flat, nested):
        text = json.dumps(value, separators=data.draw(st.sampled_from([(",", ":"), (" ,\n", ":")]))).encode()
        short, long = every(text, datatype, shape, piece)
        assert long == short


RAGGED = [
    "[[1,2],[3]]",
    "[[1,2,3],[4]]",
    "[1,[2,3],4]",
    "[1,2,[3],4]",
    "[[1,[2]],[3,4]]",
    "[[1,2],[3,4],[]]",
    "[[[1,2],[3,4]]]",
    "[[1,2],3,4]",
    "[[1,2][3,4]]",
    "[[1,2],,[3,4]]",
    "[[1,2],[3,4],]",
    "[[1,2,],[3,4]]",
    "[[1,2],[3,,4]]",
    "[[,1,2],[3,4]]",
    "[1,2,3,4,]",
    "[1,2,3,,4]",
    "[,1,2,3,4]",
    "[1,2,3,4]]",
    "[[1,2],[3,4]",
    "[[1,2],[3,4]]]",
    "[[1,2],[3,4]] 5",
    "[1,2,3 4]",
    "1,2,3,4",
    "",
    "[1,2,3,4",
    "[[1,2],[3,4",
]


@pytest.mark.parametrize("text", RAGGED)
@pytest.mark.parametrize("datatype", ["FP32", "FP64", "INT64", "UINT8", "BOOL"])
def test_data_of_another_form_is_refused_by_all(text: str, datatype: str) -> None:
    text = text.replace("2", "0").replace("3", "1").replace("4", "0") if datatype == "BOOL" else text
    for piece in (3, 5, 8, 64):
        assert every(text.encode(), datatype, (2, 2), piece) == [("refused",)] * 2, piece


SPACES = " " * 5000
EMPTY = {
    "spaces": ([0], f"[{SPACES}]"),
    "spaces in spaces": ([5, 0], f"[{SPACES}]"),
    "commas": ([0], f"[{(' ' * 63 + ',') * 100}]"),
    "more rows than there are": ([1, 0], f"[{','.join(['[]'] * 3000)}]"),
    "as many rows as there are": ([3000, 0], f"[{','.join(['[]'] * 3000)}]"),
    "fewer rows than there are": ([5000, 0], f"[{','.join(['[]'] * 3000)}]"),
    "a comma before an array": ([1, 1, 1000], f"[[{SPACES * 14},[{','.join(['1'] * 1000)}]]]"),
    "a comma behind an array": ([1, 1, 1000], f"[[[{','.join(['1'] * 1000)}]{SPACES * 14},]]"),
}


@pytest.mark.parametrize(("shape", "text"), EMPTY.values(), ids=EMPTY)
def test_what_is_long_by_nothing_is_read_as_what_is_short(shape: list[int], text: str) -> None:
    expected = outcome(text.replace("  ", "").encode(), "FP32", tuple(shape))
    [_, long] = every(text.encode(), "FP32", tuple(shape), 2**16)
    assert long == (expected if len(expected) > 1 else ("refused",))


@given(st.lists(st.floats(width=32), max_size=5))
def test_what_is_written_reads_back_as_the_same_array(values: list[float]) -> None:
    array = np.array(values, "<f4")
    with pytest.MonkeyPatch.context() as patch:
        read_in_pieces(patch, 16)
        text = json_data.to_json(array)
    np.testing.assert_array_equal(json_data.from_json(text, array.dtype, array.shape), array)


def inputs(*items: str) -> str:
    return f'{{"inputs":[{",".join(items)}]}}'


def fp32(data: str) -> str:
    return f'{{"name":"x","shape":[2],"datatype":"FP32",{data}}}'


LAST = '{"data":[3],"name":"y","shape":[1],"datatype":"FP64"}'

APART = {
    "one": inputs(fp32('"data":[1,2]')),
    "spaces": '{ "inputs" : [ { "data" : [ 1 , 2 ] , "name" : "x" , "shape" : [ 2 ] , "datatype" : "FP32" } ] }',
    "two": inputs(fp32('"data":[[1],[2]]'), LAST),
    "data twice": inputs(fp32('"data":[7,8],"data":[1,2]'), LAST),
    "data twice, and a short one": '{"inputs":[{"name":"x","shape":[],"datatype":"FP32","data":[7,8],"data":1}]}',
    "a key that ends so": inputs(fp32('"my\\"data":[7,8],"data":[1,2]')),
    "elsewhere": '{"data":[7],"inputs":[' + fp32('"data":[1,2],"more":{"data":[9]}') + "]}",
    "in a name": '{"inputs":[{"name":"\\"data\\":[1]","shape":[2],"datatype":"FP32","data":[1,2]}]}',
    "what stands for it": inputs('{"name":"x","shape":[1],"datatype":"FP64","data":[7.77e-77]}', LAST),
    "strings": inputs('{"name":"x","shape":[2],"datatype":"BYTES","data":["a]","}b"]}', LAST),
    "literals": inputs(fp32('"data":[NaN,-Infinity]')),
    "cut off": inputs(fp32('"data":[1,2')),
    "not closed": inputs(fp32('"data":[1,2')) + "}]}",
    "closed twice": inputs(fp32('"data":[1,2]]')),
    "bad number": inputs(fp32('"data":[1,02]')),
    "object": inputs(fp32('"data":[1,{"data":[2]}]')),
    "trailing": inputs(fp32('"data":[1,2]')) + "]",
}


@pytest.mark.parametrize("text", APART.values(), ids=APART)
def test_parts_are_read_one_by_one_as_together(text: str) -> None:
    def decoded(decode: Any) -> Any:
        try:
            request = decode(text.encode(), None)
        except InvalidRequest as error:
            return str(error)
        return [(tensor.name, tensor.datatype, str(tensor.array.tolist())) for tensor in request.inputs]

    whole, apart = decoded(rest.decode_request), decoded(decode_request_closely)
    assert apart == whole or (isinstance(apart, str) and isinstance(whole, str))
