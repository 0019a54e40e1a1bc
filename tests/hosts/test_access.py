"""`authorize=` and the rules for browsers in every host: the same tables as over bare ASGI and WSGI."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from oip_asgi import Access
from tests.support.host_ways import host_ways
from tests.support.ways import Request
from tests.table.test_access import INFER, MODELS, SPELLINGS, USERS, ask, judge, judge_later, make_server, spell
from tests.table.test_browsers import CHANGES, FOREIGN, HOST, OWN
from tests.table.test_browsers import make_server as make_own_server


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


def test_foreign_pages_change_nothing_in_any_host() -> None:
    with host_ways(make_own_server([])) as ways:
        for name, way in ways.items():
            for path in CHANGES:
                for headers in FOREIGN.values():
                    assert way(Request("POST", path, [HOST, ("content-type", "text/plain"), *headers], b"{}")).status == 403, (name, path)
            for headers in OWN.values():
                assert way(Request("POST", "/repository/models/kept/load", [HOST, *headers], b"{}")).status == 200, (name, headers)
