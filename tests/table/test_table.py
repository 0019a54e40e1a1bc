"""The table of requests through every way in: the same status, headers and bytes from each of them."""

from __future__ import annotations

import json

import pytest

from oip_asgi import OIPApp
from tests.support.ways import Way, over_asgi, ways_into
from tests.table.row import Row, table_server
from tests.table.rows import rows

ROWS = rows()


@pytest.fixture(scope="module")
def calls() -> list[str]:
    return []


@pytest.fixture(scope="module")
def ways(calls: list[str]) -> dict[str, Way]:
    observed = table_server(calls)
    observed.observe(lambda _: None)  # so that all objects of a request are made, also of one that says nothing but arrays
    return {**ways_into(table_server(calls)), "OIPApp, observed": over_asgi(OIPApp(observed), "")}


def test_the_table_is_large() -> None:
    assert len(ROWS) >= 250
    assert sum(row.status >= 400 for row in ROWS) >= 150


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_every_way_in_answers_alike(row: Row, ways: dict[str, Way], calls: list[str]) -> None:
    before = len(calls)
    # a bare GET /v2 is answered by Starlette itself, with a redirect, before a mounted application sees it
    answers = {name: way(row.request) for name, way in ways.items() if row.request.path or name != "Starlette mount"}
    first = next(iter(answers.values()))
    assert answers == dict.fromkeys(answers, first)
    assert first.status == row.status, first.body
    if row.request.method != "HEAD":
        assert first.headers["content-length"] == str(len(first.body))
    assert set(row.headers) <= set(first.headers.items())
    if row.status == 200:
        assert first.body == row.body
    else:
        assert_is_error(row, first.headers["content-type"], first.body)
        assert len(calls) == before, "a bad request reached the model"


def assert_is_error(row: Row, content_type: str, body: bytes) -> None:
    assert content_type == "application/json"
    if row.request.method == "HEAD":
        assert body == b""
        return
    document = json.loads(body)
    assert list(document) == ["error"]
    for part in row.text:
        assert part in document["error"]
    assert "secret" not in document["error"]
