"""The examples in public docstrings are run, and each name that users write first has one."""

from __future__ import annotations

import doctest
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from django.urls import include, path
from fastapi import Depends, FastAPI, Security
from fastapi.security import APIKeyHeader
from flask import Flask, abort, request
from starlette.applications import Starlette
from werkzeug.exceptions import NotFound
from werkzeug.middleware.dispatcher import DispatcherMiddleware

import oip_asgi
from oip_asgi.django import urls
from oip_asgi.flask import blueprint
from oip_asgi.mlserver import register_folder
from oip_asgi.specs import specs_of
from tests.support.host_ways import configure_django

configure_django()

NAMES: dict[str, Any] = {name: getattr(oip_asgi, name) for name in oip_asgi.__all__}
OTHERS: dict[str, Any] = {"urls": urls, "blueprint": blueprint, "specs_of": specs_of, "register_folder": register_folder}
GLOBALS: dict[str, Any] = {
    "APIKeyHeader": APIKeyHeader,
    "Depends": Depends,
    "FastAPI": FastAPI,
    "Security": Security,
    "Starlette": Starlette,
    "DispatcherMiddleware": DispatcherMiddleware,
    "NotFound": NotFound,
    "Flask": Flask,
    "abort": abort,
    "request": request,
    "include": include,
    "path": path,
    "np": np,
    "npt": npt,
}
FIRST = [
    *("InferenceServer", "InferenceServer.register", "InferenceServer.model", "OIPApp", "OIPApp.install", "OIPMiddleware", "OIPWSGIApp"),
    *("OIPWSGIMiddleware", "TensorSpec", "InferenceError", "InferenceRequest", "ResponseCache", "SharedMemory", *OTHERS),
]


def find_examples() -> dict[str, doctest.DocTest]:
    finder, found = doctest.DocTestFinder(exclude_empty=True), {}
    for name, value in (NAMES | OTHERS).items():
        for test in finder.find(value, name, module=False, globs={**NAMES, **OTHERS, **GLOBALS}):
            if test.examples:
                found[test.name] = test
    return found


EXAMPLES = find_examples()


def test_each_of_the_first_names_has_an_example() -> None:
    assert [name for name in FIRST if name not in EXAMPLES] == []


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_works(name: str) -> None:
    if name == "specs_of":
        pytest.importorskip("pandas")
    printed: list[str] = []
    results = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(EXAMPLES[name], out=printed.append)
    assert results.failed == 0, "".join(printed)
