"""Rows of a class, sent and read by our clients, over HTTP and over gRPC."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

import pytest

from oip_asgi import InferenceError, InferenceServer, OIPApp
from oip_asgi.client import Client
from tests.support.threads import serving
from tests.table.row_classes import Customer, Plan, Point, Score, register_streams

ADA = Customer(3, Plan.FREE, True)
BOB = Customer(70, Plan.PAID, False, monthly_fee=9.5, city="Köln", since=date(2024, 2, 29))
SCORES = [Score("leaves", 0.3), Score("stays", 9.5)]


@pytest.fixture(scope="module")
def server() -> InferenceServer:
    server = InferenceServer()
    register_streams(server)
    return server


@pytest.fixture(scope="module", params=["HTTP", "gRPC"])
def client(request: pytest.FixtureRequest, server: InferenceServer) -> Iterator[Client]:
    if request.param == "HTTP":
        with serving(OIPApp(server, path="/v2")) as port, Client(f"http://127.0.0.1:{port}/v2") as client:
            yield client
        return
    grpc = pytest.importorskip("grpc")
    from concurrent.futures import ThreadPoolExecutor

    from oip_asgi.grpc import add_to_server

    running = grpc.server(ThreadPoolExecutor(4))
    add_to_server(server, running)
    port = running.add_insecure_port("127.0.0.1:0")
    running.start()
    try:
        with Client(f"grpc://127.0.0.1:{port}") as client:
            yield client
    finally:
        running.stop(None).wait(10)


def test_rows_are_sent_and_read(client: Client) -> None:
    assert client.infer("churn", [ADA, BOB]).rows(Score) == SCORES
    assert client.infer("churn", ADA).rows(Score) == SCORES[:1]
    assert client.infer("one row", Point(2.0), parameters={"scale": 2.0}).rows(Point) == [Point(4.0, 1.0)]


def test_a_row_that_does_not_fit_is_not_sent(client: Client) -> None:
    with pytest.raises(InferenceError, match=r"^rows\[1\].age: expected int >= 0, got -1$"):
        client.infer("churn", [ADA, Customer(-1, Plan.PAID, False)])


def test_a_row_of_columns_that_does_not_fit_is_named(client: Client) -> None:
    columns = {"age": [3, -1], "plan": ["free", "paid"], "isNew": [True, False]}
    with pytest.raises(InferenceError, match=r"rows\[1\].age: expected int >= 0, got -1"):
        client.infer("churn", columns)


def test_streams_of_rows(client: Client) -> None:
    streamed = [response.rows(Point) for response in client.stream("points", [Point(1.0), Point(2.0, 1.0)])]
    assert streamed == [[Point(1.0), Point(2.0, 1.0)], [Point(2.0, 1.0), Point(4.0, 2.0)]]
