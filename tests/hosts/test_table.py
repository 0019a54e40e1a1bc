"""The table of requests through every host: the same status, headers and bytes as from the application itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from oip_asgi import OIPApp
from tests.support.host_ways import host_ways
from tests.support.ways import Way, over_asgi
from tests.table.row import Row, table_server
from tests.table.rows import rows

pytestmark = pytest.mark.ci


@pytest.fixture(scope="module")
def itself() -> Way:
    return over_asgi(OIPApp(table_server([])), "")


@pytest.fixture(scope="module")
def hosts() -> Iterator[dict[str, Way]]:
    with host_ways(table_server([])) as ways:
        yield ways


def reaches_us(host: str, row: Row) -> bool:
    if host == "FastAPI mount":
        return row.request.path != ""  # Starlette answers a bare GET /v2 itself, with a redirect
    if host == "Litestar mount":
        return "//" not in row.request.path  # Litestar takes doubled slashes out before it calls a mounted application
    return True


@pytest.mark.parametrize("row", rows(), ids=str)
def test_every_host_answers_alike(row: Row, itself: Way, hosts: dict[str, Way]) -> None:
    expected = itself(row.request)
    assert expected.status == row.status
    answers = {name: way(row.request) for name, way in hosts.items() if reaches_us(name, row)}
    assert answers == dict.fromkeys(answers, expected)
