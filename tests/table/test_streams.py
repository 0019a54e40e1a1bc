"""The table of streams through every adapter: the same status, headers and bytes from each of them."""

from __future__ import annotations

import pytest

from tests.support.ways import Request, Way, ways_into
from tests.table.stream_models import stream_server
from tests.table.stream_row import EVENTS, StreamRow
from tests.table.stream_rows import stream_rows


@pytest.fixture(scope="module")
def ways() -> dict[str, Way]:
    return ways_into(stream_server())


@pytest.mark.parametrize("row", stream_rows(), ids=str)
def test_every_adapter_answers_alike(row: StreamRow, ways: dict[str, Way]) -> None:
    answers = {name: way(row.request) for name, way in ways.items()}
    first = next(iter(answers.values()))
    assert answers == dict.fromkeys(answers, first)
    assert (first.status, first.headers["content-type"]) == (row.status, row.kind)
    assert first.body == row.body
    assert ("content-length" in first.headers) == (row.kind != EVENTS)


@pytest.mark.parametrize("action", ["generate", "generate_stream", "infer_stream"])
@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT"])
def test_only_post_is_allowed(action: str, method: str, ways: dict[str, Way]) -> None:
    answers = {name: way(Request(method, f"/models/words/{action}")) for name, way in ways.items()}
    first = next(iter(answers.values()))
    assert answers == dict.fromkeys(answers, first)
    assert (first.status, first.headers["allow"]) == (405, "POST")
