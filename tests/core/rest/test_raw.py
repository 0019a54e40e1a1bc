"""BYTES in binary data: the same elements, the same bytes and the same errors, whichever way they are cut and joined."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oip_asgi import InferenceRequest, Tensor
from oip_asgi._core import framing, raw
from oip_asgi._core.errors import InvalidRequest
from oip_asgi._core.tensors import object_array
from tests.support.inside import decode_request

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
    return list(raw.from_raw(data, np.dtype(object), (count,)))


@given(ELEMENTS, st.sampled_from([8, 24, 300, 2**18]), st.sampled_from([0, 2, 64]))
def test_elements_of_any_bytes_come_back(elements: list[bytes], window: int, few: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(framing, "_WINDOW", window)
        patch.setattr(framing, "_CUT_ONE_BY_ONE", few)
        assert read(framed(elements), len(elements)) == elements


@given(ELEMENTS, st.integers(-2, 2), st.integers(0, 30), st.binary(max_size=4))
def test_both_ways_of_cutting_refuse_the_same(elements: list[bytes], more: int, cut: int, behind: bytes) -> None:
    data = framed(elements)
    data = data[: max(0, len(data) - cut)] + behind
    count = max(1, len(elements) + more)
    outcomes = []
    for few in (0, 2**20):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(framing, "_CUT_ONE_BY_ONE", few)
            try:
                outcomes.append(str(read(data, count)))
            except InvalidRequest as error:
                outcomes.append(str(error))
    assert outcomes[0] == outcomes[1]


def test_short_elements_without_zeros_are_cut_without_a_loop() -> None:
    elements = [b"element %d of many" % number for number in range(100)] + [b"x" * 255]
    data = framed(elements)
    assert framing._split_at_lengths(data) == (elements, len(data))
    # the last is not all there
    assert framing._split_at_lengths(framed([b"abc", b"abc"])[:-1]) == ([b"abc"], 7)
    for others in ([b"abc", b"a\0c"], [b"", b"abc"], [b"abc", b""], [b"abc", b"x" * 256]):
        assert framing._split_at_lengths(framed(others)) is None


@pytest.mark.parametrize("odd", [b"", b"\0", b"a\0\0\0", b"\1\0\0\0a", b"x" * 256, b"x" * 2**18, b"x\xff", b"\xff\0\0\0", "Aÿ€".encode()])
@pytest.mark.parametrize("place", [0, 150, 299])
def test_one_element_among_many_that_is_not_plain(odd: bytes, place: int) -> None:
    elements = [*TEXTS[:place], odd, *TEXTS[place + 1 :]]
    data = framed(elements)
    assert read(data, len(elements)) == elements
    assert raw.to_raw(object_array(elements, (len(elements),))) == data


@given(ELEMENTS, st.sampled_from([(20, 20, 64), (0, 20, 64), (0, 0, 64), (0, 0, 0), (0, 0, 2**10)]), st.sampled_from([1, 8]))
def test_all_ways_of_joining_give_the_same_bytes(elements: list[bytes], bounds: tuple[int, int, int], looked_at: int) -> None:
    looped, interleaved, short = bounds
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(framing, "_LOOPED", looped)
        patch.setattr(framing, "_INTERLEAVED", interleaved)
        patch.setattr(framing, "_SHORT", short)
        patch.setattr(framing, "_LOOKED_AT", looked_at)
        assert framing.joined(elements) == framed(elements)


@pytest.mark.parametrize("long", [b"x" * 255, b"x" * 256, b"x" * 65_535, b"x" * 65_536, b"x" * 2**24])
@pytest.mark.parametrize("place", [0, 1, 299])
def test_lengths_of_one_to_four_bytes_are_joined(long: bytes, place: int) -> None:
    elements = [*TEXTS[:place], long, *TEXTS[place + 1 :]]
    assert framing.joined(elements) == framed(elements)
    # where all are short but this one, and it has bytes like marks
    elements[place] = b"\xff" + long
    assert framing.joined(elements) == framed(elements)


@pytest.mark.parametrize("element", [b"", b"a", b"\0", b"\xff", b"\xff\0\0\0", b"x" * 300])
@pytest.mark.parametrize("number", [0, 1, 24, 25, 96, 97, 1000, 8192, 8193])
def test_elements_that_are_all_alike(element: bytes, number: int) -> None:
    elements = [element] * number
    data = framed(elements)
    assert raw.to_raw(object_array(elements, (number,))) == data
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
