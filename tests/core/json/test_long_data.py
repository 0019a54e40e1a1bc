"""Long JSON in pieces: the same arrays and the same refusals as for short JSON, in bounded memory.

What makes data long is set to a few bytes in some tests, so that short data is read in pieces too.
"""

from __future__ import annotations

import gc
import json
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oip_asgi import InferenceError, InferenceServer, OIPApp
from tests.support.asking import error
from tests.support.inside import read_in_pieces
from tests.support.ways import Request, Way, over_asgi
from tests.support.wire import objects, read, received, written
from tests.table.row import Row, table_server
from tests.table.rows import rows

pytestmark = pytest.mark.ci  # as no machine breaks it

NUMBERS = [*(f"{sign}INT{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)), "FP16", "FP32", "FP64"]


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
    try:
        array = read(text, datatype, shape)
    except InferenceError as error:
        return (str(error),)
    return array.dtype, array.shape, array.tobytes()


def every(text: bytes, datatype: str, shape: tuple[int, ...], piece: int) -> list[tuple[Any, ...]]:
    """What comes of it as short text, and as long text."""
    outcomes = [outcome(text, datatype, shape)]
    with pytest.MonkeyPatch.context() as patch:
        read_in_pieces(patch, piece)
        outcomes.append(outcome(text, datatype, shape))
    # fewer words say what is wrong with long text
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
    "[[1,2],[3]]", "[[1,2,3],[4]]", "[1,[2,3],4]", "[1,2,[3],4]", "[[1,[2]],[3,4]]", "[[1,2],[3,4],[]]", "[[[1,2],[3,4]]]",
    "[[1,2],3,4]", "[[1,2][3,4]]", "[[1,2],,[3,4]]", "[[1,2],[3,4],]", "[[1,2,],[3,4]]", "[[1,2],[3,,4]]", "[[,1,2],[3,4]]",
    "[1,2,3,4,]", "[1,2,3,,4]", "[,1,2,3,4]", "[1,2,3,4]]", "[[1,2],[3,4]", "[[1,2],[3,4]]]", "[[1,2],[3,4]] 5", "[1,2,3 4]",
    "1,2,3,4", "", "[1,2,3,4", "[[1,2],[3,4",
]  # fmt: skip


@pytest.mark.parametrize("datatype", ["FP32", "FP64", "INT64", "UINT8", "BOOL"])
def test_data_of_another_form_is_refused_by_all(datatype: str) -> None:
    for text in RAGGED:
        numbers = text.replace("2", "0").replace("3", "1").replace("4", "0") if datatype == "BOOL" else text
        for piece in (3, 5, 8, 64):
            assert every(numbers.encode(), datatype, (2, 2), piece) == [("refused",)] * 2, (text, piece)


SPACES = " " * 5000
EMPTY = {
    "spaces": ([0], f"[{SPACES}]"),
    "spaces in spaces": ([5, 0], f"[{SPACES}]"),
    "commas": ([0], f"[{(' ' * 63 + ',') * 100}]"),
    "more rows than there are": ([1, 0], f"[{','.join(['[]'] * 3000)}]"),
    "as many rows as there are": ([3000, 0], f"[{','.join(['[]'] * 3000)}]"),
    "fewer rows than there are": ([5000, 0], f"[{','.join(['[]'] * 3000)}]"),
    "a comma before an array": ([1, 1, 1000], f"[[{SPACES * 14},[{','.join(['1'] * 1000)}]]]"),
    "a comma after an array": ([1, 1, 1000], f"[[[{','.join(['1'] * 1000)}]{SPACES * 14},]]"),
}


@pytest.mark.parametrize(("shape", "text"), EMPTY.values(), ids=EMPTY)
def test_what_is_long_by_nothing_is_read_as_what_is_short(shape: list[int], text: str) -> None:
    expected = outcome(text.replace("  ", "").encode(), "FP32", tuple(shape))
    [_, long] = every(text.encode(), "FP32", tuple(shape), 2**16)
    assert long == (expected if len(expected) > 1 else ("refused",))


PLAIN = ["element one", "two", "three of them"] * 20

# each is plain for a reader of bytes that overlooks one thing
ODD = ["", '"', "\\", '","', '\\"', "\n", "\x1f", "\x7f", "\0", "é", "日本", "\U0001f600", "\u2028", "[", "]", ", ", "x" * 5000]


def read_strings(text: bytes, number: int) -> list[bytes]:
    """The elements, which are the same in pieces of any size."""
    found: list[bytes] = read(text, "BYTES", (number,)).tolist()
    nested = json.dumps([[element.decode() for element in found[at : at + 2]] for at in range(0, number, 2)]).encode()
    for size in (8, 50, 2**14):
        with pytest.MonkeyPatch.context() as patch:
            read_in_pieces(patch, size)
            assert read(text, "BYTES", (number,)).tolist() == found
            assert number % 2 or read(nested, "BYTES", (number // 2, 2)).ravel().tolist() == found
    return found


@pytest.mark.parametrize("odd", ODD)
def test_one_string_among_many_that_is_not_plain(odd: str) -> None:
    for place, comma, ensure_ascii in ((0, ",", True), (30, ", ", False), (59, " ,\n", False), (30, " ,\n", True)):
        texts = [*PLAIN[:place], odd, *PLAIN[place + 1 :]]
        text = json.dumps(texts, separators=(comma, ":"), ensure_ascii=ensure_ascii).encode()
        assert read_strings(text, len(texts)) == [text.encode() for text in texts], (place, comma, ensure_ascii)
        assert json.loads(written(objects([text.encode() for text in texts]))) == texts


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=40), st.booleans())
def test_strings_of_any_text_come_back(texts: list[str], ensure_ascii: bool) -> None:
    elements = [text.encode() for text in texts]
    assert read_strings(json.dumps(texts, ensure_ascii=ensure_ascii).encode(), len(texts)) == elements
    assert json.loads(written(objects(elements))) == texts


ODD_BYTES = [b"\n", b"\x1f", b"\0", b'"', b'x"', b'","x', b"\\", b"\\x", b"\\ud800", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc3,"]


@pytest.mark.parametrize("odd", ODD_BYTES)
def test_what_is_no_string_is_refused(odd: bytes) -> None:
    for place in (0, 30, 59):
        elements = [text.encode() for text in PLAIN]
        elements[place] = odd
        text = b'["%b"]' % b'","'.join(elements)
        try:
            expected = [each.encode() for each in json.loads(text)]
        except (ValueError, UnicodeError):
            assert {len(each) for piece in (8, 2**14) for each in every(text, "BYTES", (60,), piece)} == {1}
        else:
            assert read_strings(text, len(expected)) == expected  # of which quotes made two


@pytest.mark.parametrize("odd", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\x80", b"\xff\0\0\0"])
def test_an_element_that_is_no_utf_8_is_named(odd: bytes) -> None:
    for place in (0, 30, 59, 8192 + 30):
        elements = [b""] * 8192 + [text.encode() for text in PLAIN] if place > 59 else [text.encode() for text in PLAIN]
        elements[place] = odd
        with pytest.raises(InferenceError, match=f"BYTES element {place} is "):
            written(objects(elements))


MIB = 2**20


def tensor(datatype: str, shape: list[int], data: str, more: str = "") -> str:
    return f'{{"name":"x","shape":{json.dumps(shape)},"datatype":"{datatype}","data":{data}{more}}}'


def document(*tensors: str) -> bytes:
    return f'{{"inputs":[{",".join(tensors)}]}}'.encode()


def refusal(body: bytes) -> tuple[int, str]:
    """What a server answers."""
    server = InferenceServer()
    server.register("m", lambda **inputs: 1)
    return error(over_asgi(OIPApp(server), "")(Request("POST", "/models/m/infer", (), body)))


def array_of(element: str, times: int, *last: str) -> str:
    """A JSON array of so many elements, and what follows them."""
    return f"[{','.join([element] * times + list(last))}]"


def repeated(element: str, size: int, *, dimensions: int = 0) -> tuple[list[int], str]:
    """A shape, and as many elements as so many bytes have, each in so many arrays of its own."""
    item = "[" * dimensions + element + "]" * dimensions
    times = size // (len(item) + 1)
    return [times] + [1] * dimensions, array_of(item, times)


def long_of(datatype: str, element: str, dimensions: int, size: int = MIB) -> bytes:
    return document(tensor(datatype, *repeated(element, size, dimensions=dimensions)))


LONG: list[tuple[str, str, int]] = [
    *(("FP64", element, 0) for element in ("1", "1e300", "null", "NaN")),
    *(("FP32", "0.12345678901234567", 0), ("INT64", "1", 0), ("INT64", "1e3", 0), ("BOOL", "0", 0), ("BF16", "1", 0)),
    *(("FP32", "1", dimensions) for dimensions in (1, 2, 60)),
    ("INT64", "1e3", 2),
]
STRINGS: list[tuple[str, str, int]] = [*(("BYTES", element, 0) for element in ('"ab"', '""', '"\\n\\u0041"')), ("BYTES", '"ab"', 2)]
ONE_STRING = [document(tensor("BYTES", [1], f'["{"a" * MIB}"]')), document(tensor("BYTES", [], f'"{"a" * MIB}"'))]
NOTHING = [document(tensor("FP32", [MIB // 3, 0], array_of("[]", MIB // 3))), document(tensor("FP32", [0], f"[{' ' * MIB}]"))]
SMALL = [
    *(tensor("FP32", [1], "[1]"), tensor("FP32", [0], "[]"), tensor("BOOL", [1], "[1]"), tensor("INT8", [1, 1], "[1]")),
    *(tensor("BYTES", [1], '["a"]'), tensor("FP32", [1], "[1]", ',"more":1')),
]


def memory(body: bytes) -> float:
    """How much memory a body takes while it is decoded, itself included, in bytes for each of its."""
    tracemalloc.start()
    try:
        assert received(body).inputs
        return 1 + tracemalloc.get_traced_memory()[1] / len(body)
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_no_body_takes_more_than_twelve_times_its_size_and_no_strings_more_than_24_times() -> None:
    for each in LONG:
        assert memory(long_of(*each)) < 12, each
    for body in NOTHING:
        assert memory(body) < 12, body[:60]
    for item in SMALL:
        assert memory(document(*[item] * (MIB // (len(item) + 1)))) < 12, item
    for body in (*(long_of(*each) for each in STRINGS), *ONE_STRING):
        assert memory(body) < 24, body[:60]


def test_no_lists_are_left_to_the_garbage_collector() -> None:
    collected: list[Any] = []

    def seen(phase: str, info: dict[str, int]) -> None:
        collected.append((phase, info))

    for body in (*(long_of(*each, MIB // 8) for each in LONG), *NOTHING):
        gc.collect(1)  # the young ones are counted anew
        collected.clear()
        gc.callbacks.append(seen)
        try:
            received(body)
        finally:
            gc.callbacks.remove(seen)
        assert len(collected) < 10, body[:60]


SLOW = "2.4703282292062327208e-324"


@pytest.mark.parametrize("literal", ["1e300", "-5e-324", SLOW, "1E+0300", "17976931348623158e292"])
def test_numbers_that_are_slow_to_read(literal: str) -> None:
    for size in (2000, 20_000):
        shape, text = repeated(literal, size)
        nested, within = repeated(literal, size, dimensions=2)
        for body in (document(tensor("FP64", shape, text)), document(tensor("FP64", nested, within))):
            assert set(received(body).inputs[0].array.ravel().tolist()) == {float(literal)}
        for other in ("NaN", '"Infinity"', '"\\u004eaN"', " null ", "1"):
            mixed = f"[{','.join([other, *[literal] * 99] * (size // 100))}]".encode()
            [odd] = np.array([json.loads(other)], np.float64)
            array = read(mixed, "FP64", (size // 100 * 100,))
            assert np.array_equal(array, np.array([odd, *[float(literal)] * 99] * (size // 100)), equal_nan=True), other


MISSING_STRINGS = (
    "a model that takes a column gets missing strings as null in generate, and in infer as JSON texts: "
    'parameters {"content_type": "pd_json"}, data ["null", "\\"Bonn\\""]; '
    'and a missing date is "NaT"'
)
MISSING_BOOLEANS = (
    'a model that declares a column with pd_dtype="boolean" gets missing booleans as null in generate, and in infer as JSON texts: '
    'datatype "BYTES", parameters {"content_type": "pd_json", "pd_dtype": "boolean"}, '
    'data ["null", "true"]'
)
MISSING_INTEGERS = (
    'a model that declares a column with pd_dtype="UInt8" gets missing integers as null in generate, and in infer as JSON texts: '
    'datatype "BYTES", parameters {"content_type": "pd_json", "pd_dtype": "UInt8"}, '
    'data ["null", "7"]'
)


@pytest.mark.parametrize(
    ("datatype", "shape", "text", "message"),
    [
        ("FP32", [30_000], array_of("1.5", 29_999, '"x"'), "data[29999] is a string: expected a number"),
        ("FP32", [30_000, 1], array_of("[1.5]", 29_999, "[true]"), "data[29999][0] is true or false: expected a number"),
        (
            "FP32",
            [15_000, 2],
            array_of("[1.5,2]", 14_999, "[1,1e39]"),
            "data: element 29999 is 1e+39, which is out of range for FP32",
        ),
        ("INT8", [60_000], array_of("1", 59_999, "128"), "data: element 59999 is out of range for INT8: expected -128 to 127"),
        ("INT8", [60_000], array_of("1", 59_999, "1.5"), "data[59999] is not a whole number: expected an integer for INT8"),
        ("INT8", [60_000], array_of("1", 60_001), "data has too many elements: expected 60000 in a flat array"),
        ("INT8", [60_000], array_of("1", 59_000), "data has another form, or too few elements, from element "),
        ("INT8", [60_000, 1], array_of("[1]", 59_999, "1"), "data has another form, or too few elements, from element "),
        ("BYTES", [30_000], array_of('"ab"', 29_999, "null"), f"data[29999] is null: expected a string for BYTES; {MISSING_STRINGS}"),
        ("UINT8", [60_000], array_of("1", 59_999, "null"), f"data[59999] is null: expected an integer for UINT8; {MISSING_INTEGERS}"),
        ("BOOL", [1], "[null]", f"data[0] is null: expected true, false, 0 or 1 for BOOL; {MISSING_BOOLEANS}"),
        ("FP32", [1], "[" * 500_000 + "]" * 500_000, "the JSON is nested more than 100 deep"),
        ("FP32", [30_000], array_of("1.5", 29_999, "1."), "the body is not valid JSON: JSON is malformed: invalid number (byte 1200"),
        ("FP64", [30_000], array_of(SLOW, 29_999, '"x"'), "data[29999] is a string: expected a number"),
        ("FP64", [30_000, 1], array_of(f"[{SLOW}]", 29_999, '["x"]'), "data[29999][0] is a string: expected a number"),
        (
            "FP64",
            [30_000],
            array_of(SLOW, 29_999, ""),
            "the body is not valid JSON: JSON is malformed: trailing comma in array (byte 810038)",
        ),
        ("INT8", [30_000], array_of("1", 29_999, "NaN"), "NaN, Infinity and -Infinity are no JSON: expected them as elements of"),
    ],
)
def test_what_is_wrong_with_long_data(datatype: str, shape: list[int], text: str, message: str) -> None:
    status, found = refusal(document(tensor(datatype, shape, text)))
    assert (status, found.removeprefix("inputs[0] ('x'): ")[: len(message)]) == (400, message)


SHAPES = [(1, 48, 48, 3), (3000, 1, 1), (2, 1, 1, 5000), (1, 1, 1, 9000), (700, 9), (5, 3, 700), (1,) * 60 + (50, 3, 1, 7), (4000, 2)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("datatype", ["FP32", "INT16", "BOOL", "BYTES"])
def test_data_nests_as_its_shape(shape: tuple[int, ...], datatype: str) -> None:
    values = np.random.default_rng(0).integers(0, 2, shape)
    array: Any = objects([b'"a],[\\"' if value else b"[" for value in values.ravel()], *shape)
    if datatype != "BYTES":
        array = values.astype({"FP32": "f4", "INT16": "i2", "BOOL": "?"}[datatype])
    nested = np.array([element.decode() for element in array.ravel()], object).reshape(shape) if datatype == "BYTES" else array
    texts = [json.dumps(nested.tolist(), separators=separators).encode() for separators in ((",", ":"), (", ", ": "), ("\n ,\n   ", ":"))]
    for text in (*texts, written(array)):
        found = read(text, datatype, shape)
        assert (found.dtype, found.shape) == (array.dtype, shape)
        assert (found == array).all()


MISREAD = np.frombuffer(b"\xfd\x43\xae\x15", "<f4")
"""The fewest digits that name it among FP32 are those of an FP64 that lies halfway to the next FP32."""


def test_every_fp32_comes_back_also_to_a_reader_of_fp64() -> None:
    bits = np.random.default_rng(0).integers(0, 2**32, 50_000, np.uint32)
    values = np.concatenate([bits.view("<f4"), MISREAD, -MISREAD])
    values = values[np.isfinite(values)]
    text = written(values)
    assert np.array(json.loads(text), np.float64).astype("<f4").tobytes() == values.tobytes()
    assert read(text, "FP32", values.shape).tobytes() == values.tobytes()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'{"inputs":[],"parameters":{%b"x":1}}' % (b'"a":1,' * 100_000), "the request has more than 100000 members"),
        (b'{"inputs":[],"a":{%b"x":1}}' % (b'"a":1,' * 800_000), "the JSON has more than 450000 members"),
        (
            b'{"inputs":[{"name":"x","shape":[%b1],"datatype":"INT8"}]}' % (b"1," * MIB),
            "inputs[0].shape has too many dimensions: at most 64 are possible",
        ),
    ],
)
def test_how_many_members_there_may_be(text: bytes, message: str) -> None:
    assert refusal(text) == (400, message)


@pytest.mark.parametrize("item", [b"{}", b"1"])
@pytest.mark.parametrize("field", [b"inputs", b"outputs"])
def test_items_that_are_none_cost_nothing(item: bytes, field: bytes) -> None:
    body = b'{"inputs":[],"%b":[%b]}' % (field, b",".join([item] * (3 * MIB // (len(item) + 1))))
    refusal(b"")  # what the first request costs
    tracemalloc.start()
    try:
        assert refusal(body)[0] == 400
        assert tracemalloc.get_traced_memory()[1] < len(body)
    finally:
        tracemalloc.stop()
