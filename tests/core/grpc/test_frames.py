"""Frames, split over chunks in every way: the same messages come out, and the same errors."""

from __future__ import annotations

import gzip
import struct

import pytest

from oip_asgi import InferenceError
from tests.support.inside.grpc import FrameReader
from tests.support.inside.values import Buffer


def frame(message: bytes, *, is_compressed: bool = False) -> bytes:
    return struct.pack(">BI", is_compressed, len(message)) + message


def read(body: bytes, size: int, **options: object) -> list[bytes]:
    reader = FrameReader(1000, "gzip", **options)  # type: ignore[arg-type]
    messages: list[Buffer] = []
    for start in range(0, len(body), size):
        reader.feed(body[start : start + size])
        messages += reader.take()
    return [bytes(message) for message in messages + reader.finish()]


MESSAGES = [b"", b"a", b"", bytes(range(256)), b"compressed" * 20, b"end"]
BODY = b"".join(
    frame(gzip.compress(message), is_compressed=True) if message.startswith(b"compressed") else frame(message) for message in MESSAGES
)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6, 7, 11, 100, 261, len(BODY) - 1, len(BODY)])
def test_messages_come_out_however_they_are_split(size: int) -> None:
    assert read(BODY, size) == MESSAGES


@pytest.mark.parametrize("message", [b"", b"a", b"compressed"])
@pytest.mark.parametrize("size", [1, 5, 100])
def test_one_message(message: bytes, size: int) -> None:
    assert read(frame(message), size, most=1) == [message]
    assert read(frame(gzip.compress(message), is_compressed=True), size, most=1) == [message]


@pytest.mark.parametrize("size", [1, 5, 10_000])
@pytest.mark.parametrize(
    ("body", "status"),
    [
        (frame(b"a") + frame(b"b"), 501),
        (frame(bytes(1001)), 413),
        (frame(gzip.compress(bytes(1001)), is_compressed=True), 413),
        (frame(b"abc")[:-1], 400),
        (frame(b"abc")[:4], 400),
        (b"\x02" + frame(b"abc")[1:], 400),
        (frame(b"no gzip", is_compressed=True), 400),
    ],
    ids=["two", "large", "large when decoded", "cut off", "cut off head", "flag", "corrupt"],
)
def test_what_is_wrong(body: bytes, status: int, size: int) -> None:
    with pytest.raises(InferenceError) as refused:
        read(body, size, most=1)
    assert refused.value.status == status


def test_a_length_is_not_believed_before_the_bytes_are_there() -> None:
    reader = FrameReader(None)
    reader.feed(struct.pack(">BI", 0, 2**32 - 1) + b"abc")  # no 4 GiB are taken
    with pytest.raises(InferenceError, match="ended within a message"):
        reader.finish()
