"""Bodies, piece by piece: what they become, and what they cost. Compressed requests of all kinds are in the table."""

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
BODY = b'{"inputs":[{"name":"x","shape":[4],"datatype":"FP32","data":[1,2,3,4]}]}'


def test_a_compressed_body_in_pieces() -> None:
    bare = zlib.compressobj(wbits=-15)
    codings = [("gzip", gzip.compress(BODY * 50) + gzip.compress(BODY)), ("deflate", zlib.compress(BODY * 51))]
    for coding, data in (*codings, ("deflate", bare.compress(BODY * 51) + bare.flush())):
        for size in (1, 2, 3, 1000):
            body = Body(len(data), None, coding)  # type: ignore[arg-type]
            for start in range(0, len(data), size):
                assert body.count_next(size) == min(size, len(data) - start)
                body.feed(data[start : start + size])
            assert body.count_next(size) == 0
            assert bytes(body.finish()) == BODY * 51


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


ENDS: list[tuple[int | None, bool, int, bool, str, str]] = [
    (4, False, 4, False, "whole", "whole"),
    (4, False, 4, True, "cut off", "whole"),
    *((4, False, received, cut_off, "cut off", "taken") for received, cut_off in ((3, False), (3, True), (0, False))),
    *((4, False, 5, cut_off, "cut off", "cut off") for cut_off in (False, True)),
    (0, False, 0, False, "whole", "whole"),
    *((None, True, received, False, "whole", "whole") for received in (0, 3)),
    (None, True, 0, True, "cut off", "taken"),
    (None, True, 3, True, "cut off", "whole"),
    (None, False, 0, True, "cut off", "whole"),
    (None, False, 0, False, "whole", "whole"),
]
"""The length, whether it is chunked, how much came, whether it was cut off; what that means if nobody has read it, or somebody."""


def test_what_the_end_of_a_body_means() -> None:
    for length, is_chunked, received, cut_off, end, end_if_taken in ENDS:
        readers: list[tuple[Any, str]] = [(None, end), (lambda: ("a middleware", "code"), end_if_taken)]
        for taken_by, expected in readers:
            body = Body(length, None, is_chunked=is_chunked)
            body.feed(b"x" * received)
            if expected == "whole":
                assert bytes(body.finish(cut_off=cut_off, taken_by=taken_by)) == b"x" * received
                continue
            with pytest.raises(InferenceError) as refused:
                body.finish(cut_off=cut_off, taken_by=taken_by)
            assert refused.value.status == {"cut off": 400, "taken": 500}[expected]


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
