"""Bodies, piece by piece: what they become, and what they cost.

Compressed requests of all kinds, whole and in chunks, and bodies that end early are in tests/table/body_rows.py; those that something of
the host has read before, in taken_rows.py.
"""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oip_asgi import InferenceError
from tests.support.inside.values import Body, Decoder, TooLarge

MIB = 2**20


def test_a_bomb_costs_no_more_than_the_limit() -> None:
    limit = 2_000_000
    bomb = gzip.compress(bytes(50 * limit), 9)
    tracemalloc.start()
    body = Body(len(bomb), limit, "gzip")
    with pytest.raises(TooLarge):
        body.feed(bomb)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 3 * limit


def test_pieces_are_small_and_gzip_members_few_whatever_comes_in() -> None:
    decoder = Decoder("deflate")
    pieces: list[Any] = list(decoder.feed(zlib.compress(bytes(10_000_001))))
    decoder.finish()
    assert max(map(len, pieces)) <= 2**18
    assert sum(map(len, pieces)) == 10_000_001
    with pytest.raises(InferenceError, match="more than 10000 members"):
        list(Decoder("gzip").feed(gzip.compress(b"") * 10_001))


def assert_is_aligned(body: Any, head: int) -> None:
    address: int = np.frombuffer(body, np.uint8).__array_interface__["data"][0]
    assert (address + head) % 16 == 0


@given(st.lists(st.binary(max_size=300), max_size=12), st.integers(0, 40), st.booleans())
def test_chunks_become_the_body_with_the_tensors_aligned(chunks: list[bytes], head: int, is_announced: bool) -> None:
    whole = b"".join(chunks)
    body = Body(len(whole) if is_announced else None, None, json_length=head)
    for chunk in chunks:
        body.feed(chunk)
    finished = body.finish()
    assert bytes(finished) == whole
    if isinstance(finished, memoryview):
        assert_is_aligned(finished, head)


@pytest.mark.parametrize("size", [MIB + 1, 4 * MIB, 4 * MIB + 1, 9 * MIB])
def test_a_long_body_is_what_came_and_no_announced_one_is_believed_at_once(size: int) -> None:
    whole = np.random.default_rng(0).bytes(size)
    for piece, announced in ((2**16, None), (MIB - 1, size), (5 * MIB, None), (5 * MIB, size)):
        body = Body(announced, None, json_length=13)
        for start in range(0, size, piece):
            body.feed(whole[start : start + piece])
        finished = body.finish()
        assert bytes(finished) == whole
        if piece < size:
            assert_is_aligned(finished, 13)
    tracemalloc.start()
    try:
        body = Body(100 * size, None)
        body.feed(b"a" * 1000)
        body.feed(b"b" * 1000)
        assert tracemalloc.get_traced_memory()[1] < MIB
    finally:
        tracemalloc.stop()
