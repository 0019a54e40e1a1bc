"""BYTES in binary data: the same elements, and the same errors, whichever way they are cut out."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oip_asgi._core import raw
from oip_asgi._core.errors import InvalidRequest

# zeros and lengths that look like those of others are what could be cut at a wrong place
ELEMENTS = st.lists(
    st.one_of(
        st.binary(max_size=6),
        st.text("ab", max_size=9).map(str.encode),
        st.lists(st.sampled_from([0, 1, 4]), max_size=9).map(bytes),
        st.sampled_from([b"", b"x" * 255, b"x" * 256, b"x" * 257]),
    ),
    min_size=1,
    max_size=20,
)


def framed(elements: Sequence[bytes]) -> bytes:
    return b"".join(struct.pack("<I", len(element)) + element for element in elements)


def read(data: bytes, count: int) -> list[bytes]:
    return list(raw.from_raw(data, np.dtype(object), (count,)))


@given(ELEMENTS, st.sampled_from([8, 24, 300, 2**18]))
def test_elements_of_any_bytes_come_back(elements: list[bytes], window: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(raw, "_WINDOW", window)
        assert read(framed(elements), len(elements)) == elements


@given(ELEMENTS, st.integers(-2, 2), st.integers(0, 30), st.binary(max_size=4))
def test_both_ways_of_cutting_refuse_the_same(elements: list[bytes], more: int, cut: int, behind: bytes) -> None:
    data = framed(elements)
    data = data[: max(0, len(data) - cut)] + behind
    count = max(1, len(elements) + more)
    outcomes = []
    for is_slow in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            if is_slow:
                patch.setattr(raw, "_split_at_lengths", lambda window: None)
            try:
                outcomes.append(str(read(data, count)))
            except InvalidRequest as error:
                outcomes.append(str(error))
    assert outcomes[0] == outcomes[1]


def test_short_elements_without_zeros_are_cut_without_a_loop() -> None:
    elements = [b"element %d of many" % number for number in range(100)] + [b"x" * 255]
    data = framed(elements)
    assert raw._split_at_lengths(data) == (elements, len(data))
    # the last is not all there
    assert raw._split_at_lengths(framed([b"abc", b"abc"])[:-1]) == ([b"abc"], 7)
    for others in ([b"abc", b"a\0c"], [b"", b"abc"], [b"abc", b""], [b"abc", b"x" * 256]):
        assert raw._split_at_lengths(framed(others)) is None
