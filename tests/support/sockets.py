"""Reads answers of HTTP from sockets, for tests that write their requests as bytes: no client sends what they send."""

from __future__ import annotations

import socket
from http.client import HTTPResponse
from typing import NamedTuple


class Received(NamedTuple):
    status: int
    headers: dict[str, str]  # by names in lower case
    body: bytes


def read_answer(connection: socket.socket) -> Received:
    """The next answer. The connection stays open."""
    with HTTPResponse(connection) as response:
        response.begin()
        return Received(response.status, {name.lower(): value for name, value in response.getheaders()}, response.read())
