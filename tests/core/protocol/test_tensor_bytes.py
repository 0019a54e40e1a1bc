"""BYTES in binary data: the same elements, the same bytes and the same errors, whichever way they are cut and joined."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oip_asgi import InferenceRequest, Tensor
from tests.support.inside import decode_request
from tests.support.inside.values import InvalidRequest, object_array, to_bytes
from tests.support.inside.values import tensor_bytes as raw

# zeros, and bytes that look like lengths or marks, are what could be cut or joined at a wrong place
ELEMENTS = st.lists(
    st.one_of(
        st.binary(max_size=6),
        st.text("ab", max_size=9).map(str.encode),
        st.lists(st.sampled_from([0, 1, 4, 255]), max_size=9).map(bytes),
        st.sampled_from([b"", b"x" * 255, b"x" * 256, b"x" * 257]),
    ),
    min_size=1,
    max_size=20,
)

TEXTS = [b"element %d of many" % number for number in range(300)]


def framed(elements: Sequence[bytes]) -> bytes:
    return b"".join(struct.pack("<I", len(element)) + element for element in elements)


def read(data: bytes, count: int) -> list[bytes]:
    return list(raw.from_bytes(data, np.dtype(object), (count,)))


@given(ELEMENTS)
def test_elements_of_any_bytes_come_back(elements: list[bytes]) -> None:
    data = framed(elements)
    assert to_bytes(object_array(elements, (len(elements),))) == data
    assert read(data, len(elements)) == elements


@pytest.mark.parametrize("odd", [b"", b"\0", b"a\0\0\0", b"\1\0\0\0a", b"x" * 256, b"x" * 2**18, b"x\xff", b"\xff\0\0\0", "Aÿ€".encode()])
@pytest.mark.parametrize("place", [0, 150, 299])
def test_one_element_among_many_that_is_not_plain(odd: bytes, place: int) -> None:
    elements = [*TEXTS[:place], odd, *TEXTS[place + 1 :]]
    data = framed(elements)
    assert read(data, len(elements)) == elements
    assert to_bytes(object_array(elements, (len(elements),))) == data


@pytest.mark.parametrize("long", [b"x" * 255, b"x" * 256, b"x" * 65_535, b"x" * 65_536, b"x" * 2**24])
@pytest.mark.parametrize("place", [0, 1, 299])
def test_lengths_of_one_to_four_bytes_are_joined(long: bytes, place: int) -> None:
    elements = [*TEXTS[:place], long, *TEXTS[place + 1 :]]
    data = framed(elements)
    assert to_bytes(object_array(elements, (len(elements),))) == data
    assert read(data, len(elements)) == elements


@pytest.mark.parametrize("element", [b"", b"a", b"\0", b"\xff", b"\xff\0\0\0", b"x" * 300])
@pytest.mark.parametrize("number", [0, 1, 24, 25, 96, 97, 1000, 8192, 8193])
def test_elements_that_are_all_alike(element: bytes, number: int) -> None:
    elements = [element] * number
    data = framed(elements)
    assert to_bytes(object_array(elements, (number,))) == data
    assert read(data, number) == elements


DATA = framed(TEXTS)


@pytest.mark.parametrize(
    ("data", "count", "message"),
    [
        (DATA, 299, f"{len(framed(TEXTS[-1:]))} bytes are left over behind the last of 299 BYTES elements"),
        (DATA, 301, "300 BYTES elements in the binary data, but the shape needs 301"),
        (DATA[:-1], 300, f"BYTES element 299 claims {len(TEXTS[-1])} bytes, but {len(TEXTS[-1]) - 1} are left in the binary data"),
        (DATA + b"\1", 300, "1 bytes are left over behind the last of 300 BYTES elements"),
        (DATA + b"\1\0\0", 301, "BYTES element 300: its 4-byte length is cut off by the end of the binary data"),
        (b"abcd" + DATA, 300, f"BYTES element 0 claims {0x64636261} bytes, but {len(DATA)} are left in the binary data"),
        (b"abcd" + DATA, 301, f"BYTES element 0 claims {0x64636261} bytes, but {len(DATA)} are left in the binary data"),
        (b"\xff" * len(DATA), 300, f"BYTES element 0 claims {2**32 - 1} bytes, but {len(DATA) - 4} are left in the binary data"),
    ],
)
def test_many_elements_that_are_not_all_there(data: bytes, count: int, message: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        read(data, count)
    assert str(raised.value) == message


@pytest.mark.parametrize("odd", [b"", b"\xff", b"\xff\0\0\0", b"x" * 300, "é".encode()])
@pytest.mark.parametrize("shape", [(300,), (300, 1), (2, 150)])
def test_many_strings_are_a_request_that_is_read_as_it_was(odd: bytes, shape: tuple[int, ...]) -> None:
    sent = object_array([*TEXTS[:-1], odd], shape)
    headers, body = InferenceRequest([Tensor("x", sent)]).to_http(binary=True)
    assert body.endswith(framed([*TEXTS[:-1], odd]))
    came = decode_request(body, int(headers["Inference-Header-Content-Length"]))["x"]
    assert came.shape == shape
    assert came.ravel().tolist() == [*TEXTS[:-1], odd]
