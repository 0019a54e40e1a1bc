"""BYTES in binary data: the same elements, the same bytes and the same errors, whichever way they are cut and joined."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oip_asgi import InferenceError, InferenceRequest, InferenceResponse, Tensor
from tests.support.wire import objects

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


def read(data: bytes, *shape: int) -> list[bytes]:
    text = b'{"outputs":[{"name":"x","shape":[%b],"datatype":"BYTES","parameters":{"binary_data_size":%d}}]}'
    text %= b",".join(b"%d" % size for size in shape), len(data)
    array = InferenceResponse.from_http({"Inference-Header-Content-Length": f"{len(text)}"}, text + data)["x"]
    assert array.shape == shape
    return list(array.ravel())


def comes_back(elements: list[bytes], *shape: int) -> bool:
    shape, data = shape or (len(elements),), framed(elements)
    headers, body = InferenceRequest([Tensor("x", objects(elements).reshape(shape))]).to_http(binary=True)
    return body[int(headers["Inference-Header-Content-Length"]) :] == data and read(data, *shape) == elements


@given(ELEMENTS)
def test_elements_of_any_bytes_come_back(elements: list[bytes]) -> None:
    assert comes_back(elements)


ODD = [b"", b"\0", b"a\0\0\0", b"\1\0\0\0a", b"x\xff", b"\xff", b"\xff\0\0\0", "Aÿ€".encode()]
LENGTHS = [b"x" * length for length in (255, 256, 300, 65_535, 65_536, 2**18, 2**24)]


@pytest.mark.parametrize("odd", [*ODD, *LENGTHS], ids=lambda odd: repr(odd[:8]))
def test_one_element_among_many_that_is_not_plain(odd: bytes) -> None:
    for place in (0, 1, 150, 299):
        assert comes_back([*TEXTS[:place], odd, *TEXTS[place + 1 :]]), place
    for shape in ((300, 1), (2, 150)):
        assert comes_back([*TEXTS[:-1], odd], *shape)


@pytest.mark.parametrize("element", [b"", b"a", b"\0", b"\xff", b"\xff\0\0\0", b"x" * 300])
def test_elements_that_are_all_alike(element: bytes) -> None:
    for number in (0, 1, 24, 25, 96, 97, 1000, 8192, 8193):
        assert comes_back([element] * number), number


DATA = framed(TEXTS)


@pytest.mark.parametrize(
    ("data", "count", "message"),
    [
        (DATA, 299, f"{len(framed(TEXTS[-1:]))} bytes are left over after the last of 299 BYTES elements"),
        (DATA, 301, "300 BYTES elements in the binary data, but the shape needs 301"),
        (DATA[:-1], 300, f"BYTES element 299 claims {len(TEXTS[-1])} bytes, but {len(TEXTS[-1]) - 1} are left in the binary data"),
        (DATA + b"\1", 300, "1 bytes are left over after the last of 300 BYTES elements"),
        (DATA + b"\1\0\0", 301, "BYTES element 300: its 4-byte length is cut off by the end of the binary data"),
        (b"abcd" + DATA, 300, f"BYTES element 0 claims {0x64636261} bytes, but {len(DATA)} are left in the binary data"),
        (b"abcd" + DATA, 301, f"BYTES element 0 claims {0x64636261} bytes, but {len(DATA)} are left in the binary data"),
        (b"\xff" * len(DATA), 300, f"BYTES element 0 claims {2**32 - 1} bytes, but {len(DATA) - 4} are left in the binary data"),
    ],
)
def test_many_elements_that_are_not_all_there(data: bytes, count: int, message: str) -> None:
    with pytest.raises(InferenceError) as raised:
        read(data, count)
    assert str(raised.value).endswith(message)
