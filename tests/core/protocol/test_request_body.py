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
