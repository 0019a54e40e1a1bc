"""Compressed answers: which coding a request gets, and what else the answer says. Compressed requests are in the table."""

from __future__ import annotations

import gzip
import json
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from oip_asgi import InferenceServer, OIPApp, OIPMiddleware, OIPWSGIApp, OIPWSGIMiddleware
from oip_asgi._core.body import Body
from oip_asgi._core.codings import Decoder, preferred
from oip_asgi._core.errors import InferenceError, TooLarge
from tests.support.ways import Answer, Request, Way, other_asgi_app, other_wsgi_app, over_asgi, over_wsgi

BODY = b'{"inputs":[{"name":"x","shape":[4],"datatype":"FP32","data":[1,2,3,4]}]}'
BINARY = BODY[:-1] + b',"parameters":{"binary_data_output":true}}'
PLAIN = b'{"model_name":"m","outputs":[{"name":"output_0","shape":[4],"datatype":"FP32","data":[1.0,2.0,3.0,4.0]}]}'


@pytest.fixture
def server() -> InferenceServer:
    server = InferenceServer("compressing", "1")
    server.register("m", lambda x: x)
    return server


makers: list[Callable[[InferenceServer], Way]] = [
    lambda server: over_asgi(OIPApp(server, compress_responses=True), ""),
    lambda server: over_asgi(OIPMiddleware(other_asgi_app, server, "/", compress_responses=True), ""),
    lambda server: over_wsgi(OIPWSGIApp(server, compress_responses=True), ""),
    lambda server: over_wsgi(OIPWSGIMiddleware(other_wsgi_app, server, "/", compress_responses=True), ""),
]
ways = pytest.mark.parametrize("make", makers, ids=["OIPApp", "OIPMiddleware", "OIPWSGIApp", "OIPWSGIMiddleware"])


def ask(way: Way, accept: str | None, body: bytes = BODY) -> Answer:
    headers = [] if accept is None else [("accept-encoding", accept)]
    return way(Request("POST", "/models/m/infer", headers, body))


@ways
def test_gzip_and_deflate(server: InferenceServer, make: Callable[[InferenceServer], Way]) -> None:
    way = make(server)
    for coding, decode in (("gzip", gzip.decompress), ("deflate", zlib.decompress)):
        answer = ask(way, coding)
        assert answer.status == 200
        assert decode(answer.body) == PLAIN
        assert answer.headers["content-encoding"] == coding
        assert answer.headers["content-length"] == str(len(answer.body))
        assert answer.headers["vary"] == "Accept-Encoding"
        assert answer.headers["content-type"] == "application/json"


@ways
def test_the_inference_header_counts_the_plain_json(server: InferenceServer, make: Callable[[InferenceServer], Way]) -> None:
    answer = ask(make(server), "gzip", BINARY)
    plain = gzip.decompress(answer.body)
    length = int(answer.headers["inference-header-content-length"])
    assert json.loads(plain[:length])["outputs"][0]["parameters"] == {"binary_data_size": 16}
    assert plain[length:] == np.array([1, 2, 3, 4], "<f4").tobytes()


@ways
def test_what_is_left_as_it_is(server: InferenceServer, make: Callable[[InferenceServer], Way]) -> None:
    way = make(server)
    for accept in (None, "", "identity", "br", "gzip;q=0", "gzip;q=1e999"):
        answer = ask(way, accept)
        assert (answer.status, answer.body) == (200, PLAIN)
        assert answer.headers["vary"] == "Accept-Encoding"
        assert "content-encoding" not in answer.headers
    bad = ask(way, "gzip", b"{")  # clients read an error's text without looking for a coding
    assert bad.status == 400
    assert "error" in json.loads(bad.body)
    assert {"vary", "content-encoding"}.isdisjoint(bad.headers)


def test_nobody_compresses_unasked(server: InferenceServer) -> None:
    for way in (over_asgi(OIPApp(server), ""), over_wsgi(OIPWSGIApp(server), "")):
        answer = ask(way, "gzip")
        assert (answer.body, "vary" in answer.headers) == (PLAIN, False)


@pytest.mark.parametrize(
    ("accept", "coding"),
    [
        ("gzip", "gzip"),
        ("GZIP", "gzip"),
        ("x-gzip", "gzip"),
        ("deflate", "deflate"),
        ("gzip, deflate", "gzip"),
        ("deflate, gzip", "gzip"),
        ("gzip;q=0.5, deflate", "deflate"),
        ("gzip;q=0.5, deflate;q=0.501", "deflate"),
        ("gzip ; q=1.000", "gzip"),
        ("gzip;Q=1", "gzip"),
        ("*", "gzip"),
        ("*;q=0", None),
        ("gzip;q=0, *", "deflate"),
        ("br, *;q=0.1", "gzip"),
        ("identity;q=0.5, gzip", "gzip"),
        ("identity, gzip;q=0.5", None),
        ("identity, gzip", "gzip"),
        ("", None),
        (",,;;=,", None),
        ("gzip;q", None),
        ("gzip;q=", None),
        ("gzip;q=1e999", None),
        ("gzip;q=-1", None),
        ("gzip;q=2", None),
        ("gzip;q=nan", None),
        ("gzip;q=inf", None),
        ("gzip;q=0x1", None),
        ("gzip;q=1.0000", None),
        ("gzip;q=٣", None),
        ("gzip;q=1;q=1", None),
        ("gzip;level=9", None),
        ("gzip;q=" + "9" * 100_000, None),
        ("gzip," * 10_000, "gzip"),
    ],
)
def test_the_preferred_coding(accept: str, coding: str | None) -> None:
    assert preferred(accept) == coding


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
            assert body.wanted(size) == min(size, len(data) - start)
            body.feed(data[start : start + size])
        assert body.wanted(size) == 0
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
