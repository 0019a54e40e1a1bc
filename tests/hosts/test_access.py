"""`authorize=` and the rules for browsers in every host: the same tables as over bare ASGI and WSGI."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from oip_asgi import Access, InferenceServer
from tests.support.host_ways import host_ways
from tests.support.ways import Request
from tests.table.test_access import INFER, MODELS, SPELLINGS, USERS, ask, judge, judge_later, make_server, spell
from tests.table.test_browsers import CHANGES, FOREIGN, HOST, OWN
from tests.table.test_browsers import make_server as make_own_server


@pytest.mark.ci
@pytest.mark.parametrize("authorize", [judge, judge_later], ids=["def", "async def"])
def test_no_host_has_a_hole(authorize: Callable[[Access], Any]) -> None:
    calls: list[str] = []
    with host_ways(make_server(authorize, calls)) as ways:
        for name, way in ways.items():
            for method, path, body in [spelling for spellings in SPELLINGS.values() for spelling in spellings]:
                for user in USERS[:2]:
                    refused = {ask(way, user, method, spell(path, model), body).body.replace(model.encode(), b"NAME") for model in MODELS}
                    assert len(refused) == 1, (name, user, method, path, refused)
                    assert method == "HEAD" or refused.pop().startswith(b'{"error":"not allowed: '), (name, path)
            assert not calls
            assert ask(way, "a user", "POST", "/models/opened/infer", INFER).status == 200
            assert calls.pop() == "opened"


def test_a_slow_question_loses_no_part_of_a_body_in_any_host() -> None:
    async def may(access: Access) -> bool:
        await asyncio.sleep(0.1)  # clients are watched after 30 milliseconds
        return access.model == "open"

    server, threads = InferenceServer(authorize=may), set[bool]()

    def add_up(x: Any) -> Any:
        threads.add(threading.current_thread().name.startswith("oip_asgi"))
        return x.sum()

    for model in ("open", "closed"):
        server.register(model, add_up)
    tensor = {"name": "x", "shape": [9000], "datatype": "FP32", "data": [1.5] * 9000}
    body = json.dumps({"inputs": [tensor]}).encode()
    assert len(body) > 2**15
    with host_ways(server) as ways:
        for name, way in ways.items():
            threads.clear()
            for coding, sent in (("identity", body), ("gzip", gzip.compress(body))):
                headers = [("content-encoding", coding)]
                answer = way(Request("POST", "/models/open/infer", headers, sent))
                assert (answer.status, json.loads(answer.body)["outputs"][0]["data"]) == (200, [13500.0]), name
                assert way(Request("POST", "/models/closed/infer", headers, sent)).status == 403, name
            if name in ("Flask blueprint", "Django, WSGI"):
                assert threads == {False}, name  # the thread of the request


def test_foreign_pages_change_nothing_in_any_host() -> None:
    with host_ways(make_own_server([])) as ways:
        for name, way in ways.items():
            for path in CHANGES:
                for headers in FOREIGN.values():
                    assert way(Request("POST", path, [HOST, ("content-type", "text/plain"), *headers], b"{}")).status == 403, (name, path)
            for headers in OWN.values():
                assert way(Request("POST", "/repository/models/kept/load", [HOST, *headers], b"{}")).status == 200, (name, headers)
