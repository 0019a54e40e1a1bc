"""The corpus of good and bad requests, sent to Triton through this package: nothing bad is accepted or answered 5xx, and Triton lives.

`tox -e peers` installs Triton, and names its Python in TRITON_PYTHON. `python -m tests.lab.peers.alone` counts its answers without us.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from oip_asgi import InferenceServer, OIPApp
from oip_asgi.client import remote
from tests.lab.peers.asking import GRPCAsker, HTTPAsker, Triton, find_triton, judge_grpc, judge_http, running_triton
from tests.lab.peers.corpus import grpc_corpus, http_corpus
from tests.lab.peers.triton_models import models
from tests.support.grpc_ways import blocking
from tests.support.processes import get
from tests.support.threads import serving
from tests.table.row import MAX_BODY_BYTES, MAX_JSON_BYTES

OF_64_BITS = re.compile(rf"\bsequence_id\W+(is )?({2**63}|{2**64 - 1})$")
"""Rows that Triton takes over HTTP only: over gRPC it refuses this parameter above 63 bits, and says so to the client."""


@pytest.fixture(scope="module")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Triton]:
    python = find_triton()
    if python is None:
        pytest.skip("TRITON_PYTHON does not name the Python of an environment with pytriton: tox -e peers")
    with running_triton(python, tmp_path_factory.mktemp("peers") / "triton.log") as served:
        yield served


def server_before(triton: Triton, scheme: str) -> InferenceServer:
    """Our server with the models of Triton, asked over one of its transports. No model has a timeout: nothing but a request sets one."""
    server = InferenceServer("before Triton", max_body_bytes=MAX_BODY_BYTES, max_json_bytes=MAX_JSON_BYTES)
    for model in models():
        server.register(model, load=remote(f"{triton.served.url}/v2" if scheme == "http" else f"grpc://{triton.grpc}", model))
    return server


def test_the_corpus_is_large() -> None:
    statuses = Counter(row.status == 200 for row in http_corpus()), Counter(call.code == "OK" for call in grpc_corpus())
    assert [numbers[False] >= least for numbers, least in zip(statuses, (1500, 400), strict=True)] == [True, True], statuses
    assert [numbers[True] >= least for numbers, least in zip(statuses, (200, 25), strict=True)] == [True, True], statuses


@pytest.mark.parametrize("scheme", ["http", "grpc"])
def test_over_http(triton: Triton, scheme: str) -> None:
    expected = [replace(row, status=400) if scheme == "grpc" and OF_64_BITS.search(row.name) else row for row in http_corpus()]
    with serving(OIPApp(server_before(triton, scheme), path="/v2")) as port, HTTPAsker(port) as asker:
        # at the end the good ones again: the bad ones have broken nothing
        for row in (*expected, *(row for row in expected if row.status == 200)):
            wrong = judge_http(row, asker.ask(row.request))
            assert not wrong
        assert get(f"http://127.0.0.1:{port}/v2/health/ready").status_code == 200
    assert triton.is_alive()


@pytest.mark.parametrize("scheme", ["http", "grpc"])
def test_over_grpc(triton: Triton, scheme: str) -> None:
    with blocking(server_before(triton, scheme)) as address, GRPCAsker(address) as asker:
        for call in (*grpc_corpus(), *(call for call in grpc_corpus() if call.code == "OK")):
            wrong = judge_grpc(call, *asker.ask(call))
            assert not wrong
    assert triton.is_alive()
