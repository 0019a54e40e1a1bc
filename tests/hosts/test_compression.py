"""Rows of the table through the hosts that have `compress_responses` themselves: the same as from the application itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from oip_asgi import OIPApp
from tests.support.host_ways import compressing_ways
from tests.support.ways import Request, Way, over_asgi
from tests.table.row import Row, table_server
from tests.table.rows import rows


@pytest.fixture(scope="module")
def itself() -> Way:
    return over_asgi(OIPApp(table_server([]), compress_responses=True), "")


@pytest.fixture(scope="module")
def hosts() -> Iterator[dict[str, Way]]:
    with compressing_ways(table_server([])) as ways:
        yield ways


@pytest.mark.parametrize("coding", ["gzip", "deflate", "identity"])
@pytest.mark.parametrize("row", rows()[::10], ids=str)
def test_every_host_compresses_alike(row: Row, coding: str, itself: Way, hosts: dict[str, Way]) -> None:
    request = Request(row.request.method, row.request.path, [*row.request.headers, ("accept-encoding", coding)], row.request.body)
    expected = itself(request)
    assert expected.status == row.status
    assert expected.headers.get("content-encoding", "identity") == (coding if row.status == 200 else "identity")
    answers = {name: way(request) for name, way in hosts.items()}
    assert answers == dict.fromkeys(answers, expected)
