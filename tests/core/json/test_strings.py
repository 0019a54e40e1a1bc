"""BYTES elements as JSON strings: the same elements and texts as Python's json makes, in pieces of any size."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.inside import decode_request, read_in_pieces
from tests.support.inside.rest import from_json, to_json
from tests.support.inside.values import DTYPES, InvalidRequest, object_array

PLAIN = ["element one", "two", "three of them"] * 20

# each is plain for a reader of bytes that overlooks one thing
ODD = ["", '"', "\\", '","', '\\"', "\n", "\x1f", "\x7f", "\0", "é", "日本", "\U0001f600", "\u2028", "[", "]", ", ", "x" * 5000]


def read(text: bytes, number: int) -> list[bytes]:
    """The elements, which are the same in pieces of any size."""
    found: list[bytes] = from_json(text, DTYPES["BYTES"], (number,)).tolist()
    for size in (8, 50, 2**14):
        with pytest.MonkeyPatch.context() as patch:
            read_in_pieces(patch, size)
            assert from_json(text, DTYPES["BYTES"], (number,)).tolist() == found
            if number and number % 2 == 0:
                texts = [element.decode() for element in found]
                nested = json.dumps([texts[at : at + 2] for at in range(0, number, 2)]).encode()
                assert from_json(nested, DTYPES["BYTES"], (number // 2, 2)).ravel().tolist() == found
    return found


def array_of(texts: list[str]) -> np.typing.NDArray[np.object_]:
    return object_array([text.encode() for text in texts], (len(texts),))


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("place", [0, 30, 59])
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ":"), (" ,\n", ":")])
@pytest.mark.parametrize("ensure_ascii", [True, False])
def test_one_string_among_many_that_is_not_plain(odd: str, place: int, separators: tuple[str, str], ensure_ascii: bool) -> None:
    texts = [*PLAIN[:place], odd, *PLAIN[place + 1 :]]
    text = json.dumps(texts, separators=separators, ensure_ascii=ensure_ascii).encode()
    assert read(text, len(texts)) == [text.encode() for text in texts]
    assert json.loads(to_json(array_of(texts))) == texts


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=40), st.booleans())
def test_strings_of_any_text_come_back(texts: list[str], ensure_ascii: bool) -> None:
    assert read(json.dumps(texts, ensure_ascii=ensure_ascii).encode(), len(texts)) == [text.encode() for text in texts]
    assert json.loads(to_json(array_of(texts))) == texts


@pytest.mark.parametrize(
    "odd", [b"\n", b"\x1f", b"\0", b'"', b'x"', b'","x', b"\\", b"\\x", b"\\ud800", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc3,"]
)
@pytest.mark.parametrize("place", [0, 30, 59])
def test_what_is_no_string_is_refused(odd: bytes, place: int) -> None:
    elements = [text.encode() for text in PLAIN]
    elements[place] = odd
    text = b'["%b"]' % b'","'.join(elements)
    try:
        expected = [each.encode() for each in json.loads(text)]
    except (ValueError, UnicodeError):
        body = b'{"inputs":[{"name":"x","shape":[60],"datatype":"BYTES","data":%b}]}' % text
        for size in (8, 2**14):
            with pytest.MonkeyPatch.context() as patch:
                read_in_pieces(patch, size)
                with pytest.raises(InvalidRequest):
                    decode_request(body)
    else:
        assert read(text, len(expected)) == expected  # of which quotes made two


@pytest.mark.parametrize("odd", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\x80", b"\xff\0\0\0"])
@pytest.mark.parametrize("place", [0, 30, 59])
def test_an_element_that_is_no_utf_8_is_named(odd: bytes, place: int) -> None:
    elements = [text.encode() for text in PLAIN]
    elements[place] = odd
    with pytest.raises(InvalidRequest, match=f"BYTES element {place} is "):
        to_json(object_array(elements, (len(elements),)))
    many = [b""] * 8192 + elements
    with pytest.raises(InvalidRequest, match=f"BYTES element {8192 + place} is "):
        to_json(object_array(many, (len(many),)))


@pytest.mark.parametrize(("number", "element"), [(0, b""), (1, b""), (17, b""), (1000, b""), (1000, b"ab"), (1000, "é".encode())])
def test_strings_that_are_all_alike(number: int, element: bytes) -> None:
    elements = [element] * number
    written = to_json(object_array(elements, (number,)))
    assert json.loads(written) == [element.decode()] * number
    assert read(written, number) == elements
