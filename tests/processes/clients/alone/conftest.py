"""The server that these tests ask."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.processes import serving_module


@pytest.fixture(scope="module", params=["grpc", "grpc.aio"])
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    """ "127.0.0.1:port" of a server process."""
    with serving_module("tests.support.served_grpc", request.param) as (_, address):
        yield address
