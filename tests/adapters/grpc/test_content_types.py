"""Content types over gRPC: the cases and the wire vectors of REST's tests, as typed contents and as raw ones, to a kind of server each.

A model receives the same values as over REST, the same answers come back, and what REST refuses is refused with the same words.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from oip_asgi import InferenceRequest, InferenceServer, OIPApp
from tests.support.asking import error
from tests.support.content_types import assert_same, http, make_server
from tests.support.grpc_ways import Client, awaiting, blocking
from tests.support.ways import over_asgi
from tests.table.codec_vectors import VECTORS, Vector
from tests.table.codec_vectors import assert_same as assert_same_value
from tests.table.content_types import BAD, CASES, Bad, Case
from tests.table.test_grpc import assert_same_inference, message_of, response_of


@pytest.fixture(scope="module")
def seen() -> list[Any]:
    return []


@pytest.fixture(scope="module")
def server(seen: list[Any]) -> InferenceServer:
    return make_server(seen)


@pytest.fixture(scope="module", params=["typed", "raw"])
def form(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(scope="module")
def client(form: str, server: InferenceServer) -> Iterator[Client]:
    with (blocking if form == "typed" else awaiting)(server) as address:
        yield Client(address)


@pytest.mark.parametrize("name", CASES)
def test_a_model_receives_what_it_receives_over_rest(
    name: str, form: str, client: Client, server: InferenceServer, seen: list[Any]
) -> None:
    case: Case = CASES[name]
    seen.clear()
    response = client.ask("ModelInfer", message_of(case.model, case.request, form))
    over_rest = over_asgi(OIPApp(server), "")(http(case.model, case.request, binary=True))
    assert len(seen) == 2
    for value in seen:
        assert_same(value, case.value)
    assert_same_inference(over_rest, response)


@pytest.mark.parametrize("name", BAD)
def test_what_rest_refuses_is_refused(name: str, form: str, client: Client, server: InferenceServer) -> None:
    bad: Bad = BAD[name]
    code, text = client.refusal("ModelInfer", message_of(bad.model, bad.request, form))
    over_rest = over_asgi(OIPApp(server), "")(http(bad.model, bad.request, binary=True))
    assert (code, text) == ("INVALID_ARGUMENT", error(over_rest)[1])


@pytest.mark.parametrize("name", VECTORS)
def test_a_vector_in_both_directions(name: str, form: str, client: Client, seen: list[Any]) -> None:
    vector: Vector = VECTORS[name]
    request = vector.encode(vector.value)
    seen.clear()
    response = response_of(client.ask("ModelInfer", message_of("whole", request, form)))
    [as_received] = seen
    assert_same_value(vector.decode(as_received), vector.value)
    assert_same_value(vector.decode(InferenceRequest(response.outputs, parameters=request.parameters)), vector.value)
