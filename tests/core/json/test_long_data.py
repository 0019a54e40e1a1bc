"""Long JSON in pieces: the same arrays and the same refusals as for short JSON.

What makes data long is set to a few bytes here, so that short data is read in pieces too. Strings are those that Python's json makes.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oip_asgi import InferenceError, OIPApp
from tests.support.inside import read_in_pieces
from tests.support.ways import Way, over_asgi
from tests.support.wire import objects, read, written
from tests.table.row import Row, table_server
from tests.table.rows import rows

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
        np.testing.assert_array_equal(read(written(array), "FP32", array.shape), array)


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


@pytest.mark.parametrize(("number", "element"), [(0, b""), (1, b""), (17, b""), (1000, b""), (1000, b"ab"), (1000, "é".encode())])
def test_strings_that_are_all_alike(number: int, element: bytes) -> None:
    text = written(objects([element] * number))
    assert json.loads(text) == [element.decode()] * number
    assert read_strings(text, number) == [element] * number
