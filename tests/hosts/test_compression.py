"""Answers behind the gzip middleware of a host: what a client decodes is the same, and errors and binary data keep their headers."""

from __future__ import annotations

import gzip
from collections.abc import Iterator

import pytest
from django.test import override_settings
from fastapi import FastAPI
from starlette.middleware.gzip import GZipMiddleware

from oip_asgi import OIPApp
from tests.support.host_ways import configure_django, django_ways
from tests.support.ways import Answer, Request, Way, over_asgi
from tests.table.row import Row, table_server
from tests.table.rows import rows

configure_django()

CHANGED = ("content-encoding", "content-length", "vary", "etag")
"""The headers that a gzip middleware is free to write."""


@pytest.fixture(scope="module")
def hosts() -> Iterator[dict[str, Way]]:
    server, plain, app = table_server([]), FastAPI(), FastAPI()
    app.add_middleware(GZipMiddleware, minimum_size=0)
    for each in (plain, app):
        OIPApp(server).install(each)
    with override_settings(MIDDLEWARE=["django.middleware.gzip.GZipMiddleware"]), django_ways(server) as over_django:
        yield {"plain": over_asgi(plain, "/v2"), "FastAPI": over_asgi(app, "/v2"), **over_django}
    server.stop()


def decoded(answer: Answer) -> Answer:
    body = gzip.decompress(answer.body) if answer.headers.get("content-encoding") == "gzip" else answer.body
    return Answer(answer.status, {name: value for name, value in answer.headers.items() if name not in CHANGED}, body)


@pytest.mark.ci
@pytest.mark.parametrize("row", [row for row in rows() if row.status == 200][::5], ids=str)
def test_the_middleware_of_hosts_compresses_answers(row: Row, hosts: dict[str, Way]) -> None:
    request = Request(row.request.method, row.request.path, [*row.request.headers, ("accept-encoding", "gzip")], row.request.body)
    answers = {name: way(request) for name, way in hosts.items()}
    assert {name: decoded(answer) for name, answer in answers.items()} == dict.fromkeys(answers, decoded(answers["plain"]))
    assert "content-encoding" not in answers["plain"].headers
    if answers["plain"].body:
        assert answers["FastAPI"].headers["content-encoding"] == "gzip"
