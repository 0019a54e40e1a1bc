"""Compressed requests, piece by piece: what they cost. Compressed requests of all kinds are in the table."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from typing import Any

import pytest

from oip_asgi import InferenceError
from tests.support.inside.values import Body, Decoder, TooLarge

BODY = b'{"inputs":[{"name":"x","shape":[4],"datatype":"FP32","data":[1,2,3,4]}]}'


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_a_body_in_pieces(size: int) -> None:
    bare = zlib.compressobj(wbits=-15)
    for coding, data in (
        ("gzip", gzip.compress(BODY * 50) + gzip.compress(BODY)),
        ("deflate", zlib.compress(BODY * 51)),
        ("deflate", bare.compress(BODY * 51) + bare.flush()),
    ):
        body = Body(len(data), None, coding)  # type: ignore[arg-type]
        for start in range(0, len(data), size):
            assert body.count_next(size) == min(size, len(data) - start)
            body.feed(data[start : start + size])
        assert body.count_next(size) == 0
        assert bytes(body.finish()) == BODY * 51


@pytest.mark.slow
def test_a_bomb_costs_no_more_than_the_limit() -> None:
    bomb = gzip.compress(bytes(500_000_000), 9)
    limit = 10_000_000
    tracemalloc.start()
    body = Body(len(bomb), limit, "gzip")
    with pytest.raises(TooLarge):
        body.feed(bomb)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 3 * limit


def test_more_gzip_members_than_anybody_needs_are_refused() -> None:
    decoder = Decoder("gzip")
    with pytest.raises(InferenceError, match="more than 10000 members"):
        for _ in decoder.feed(gzip.compress(b"") * 10_001):
            pass


def test_pieces_are_small_whatever_comes_in() -> None:
    decoder = Decoder("deflate")
    pieces: list[Any] = list(decoder.feed(zlib.compress(bytes(10_000_001))))
    decoder.finish()
    assert max(map(len, pieces)) <= 2**18
    assert sum(map(len, pieces)) == 10_000_001


@pytest.mark.parametrize(
    ("length", "is_chunked", "received", "cut_off", "end", "end_if_taken"),
    [
        (4, False, 4, False, "whole", "whole"),
        (4, False, 4, True, "cut off", "whole"),
        (4, False, 3, False, "cut off", "taken"),
        (4, False, 3, True, "cut off", "taken"),
        (4, False, 0, False, "cut off", "taken"),
        (4, False, 5, False, "cut off", "cut off"),
        (4, False, 5, True, "cut off", "cut off"),
        (0, False, 0, False, "whole", "whole"),
        (None, True, 0, False, "whole", "whole"),
        (None, True, 3, False, "whole", "whole"),
        (None, True, 0, True, "cut off", "taken"),
        (None, True, 3, True, "cut off", "whole"),
        (None, False, 0, True, "cut off", "whole"),
        (None, False, 0, False, "whole", "whole"),
    ],
)
def test_what_the_end_of_a_body_means(
    length: int | None, is_chunked: bool, received: int, cut_off: bool, end: str, end_if_taken: str
) -> None:
    """Without and with something of the application that may have read the body before."""
    readers: list[tuple[Any, str]] = [(None, end), (lambda: ("a middleware", "code"), end_if_taken)]
    for taken_by, expected in readers:
        body = Body(length, None, is_chunked=is_chunked)
        body.feed(b"x" * received)
        if expected == "whole":
            assert bytes(body.finish(cut_off=cut_off, taken_by=taken_by)) == b"x" * received
        else:
            with pytest.raises(InferenceError) as refused:
                body.finish(cut_off=cut_off, taken_by=taken_by)
            assert refused.value.status == {"cut off": 400, "taken": 500}[expected]
