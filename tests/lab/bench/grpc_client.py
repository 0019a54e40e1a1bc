"""One call of a gRPC row by grpcio, whose answer is looked at before h2load sends many. It knows no messages."""

from __future__ import annotations

from typing import Any, Final

import grpc

from .rows import Answer, Row, WrongAnswer

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


def _channel(port: int) -> grpc.Channel:
    return grpc.insecure_channel(f"127.0.0.1:{port}", options=OPTIONS)
