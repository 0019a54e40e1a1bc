"""The client of the gRPC rows: bytes over one channel, with as many calls at once as the row has connections. It knows no messages."""

from __future__ import annotations

import time
from queue import SimpleQueue
from typing import Any, Final

import grpc

from .rows import Answer, LoadFailed, Row, WrongAnswer

OPTIONS: Final = [("grpc.max_receive_message_length", -1)]

PATIENCE: Final = 60
"""Seconds after which a server counts as hung."""


def wait_until_ready(port: int) -> None:
    """Wait for a server that was just started."""
    with _channel(port) as channel:
        grpc.channel_ready_future(channel).result(PATIENCE)


def ask(port: int, row: Row) -> Answer:
    """One answer.

    Raises:
        WrongAnswer: The call did not succeed.
    """
    with _channel(port) as channel:
        method: Any = channel.unary_unary(row.path)
        call = method.future(row.body, timeout=PATIENCE)
        if call.code() is not grpc.StatusCode.OK:
            raise WrongAnswer(f"{call.code().name} {call.details()}")
        return Answer(200, {}, call.result())


def latencies(port: int, row: Row, calls: int, seconds: float, least: int) -> tuple[list[float], float]:
    """How long each call took, and all together, in seconds.

    Raises:
        LoadFailed: A call did not succeed.
    """
    ended: SimpleQueue[tuple[float, Any]] = SimpleQueue()
    took: list[float] = []
    with _channel(port) as channel:
        method: Any = channel.unary_unary(row.path)

        def begin() -> None:
            began = time.perf_counter()
            method.future(row.body, timeout=PATIENCE).add_done_callback(lambda call: ended.put((time.perf_counter() - began, call)))

        start = time.perf_counter()
        for _ in range(calls):
            begin()
        while (passed := time.perf_counter() - start) < seconds or len(took) < least:
            seconds_of_call, call = ended.get()
            if call.code() is not grpc.StatusCode.OK:
                raise LoadFailed(f"{row.name}: {call.code().name} {call.details()}")
            took.append(seconds_of_call)
            begin()
    return took, passed


def _channel(port: int) -> grpc.Channel:
    return grpc.insecure_channel(f"127.0.0.1:{port}", options=OPTIONS)
