"""Fixtures of the tests of gRPC."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.grpc_demo import demo_server
from tests.support.grpc_ways import SERVINGS, Client, Serving


@pytest.fixture(scope="module", params=SERVINGS)
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    with SERVINGS[request.param](demo_server()) as address:
        yield Client(address)


@pytest.fixture(params=SERVINGS)
def serving(request: pytest.FixtureRequest) -> Serving:
    return SERVINGS[request.param]
