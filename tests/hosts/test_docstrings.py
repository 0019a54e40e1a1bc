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
OF_HOSTS: Any = (APIKeyHeader, Depends, FastAPI, Security, Starlette, DispatcherMiddleware, NotFound, Flask, abort, include)
GLOBALS = {**NAMES, **OTHERS, **{each.__name__: each for each in OF_HOSTS}, "request": request, "path": path, "np": np, "npt": npt}
FIRST = [
    *("InferenceServer", "InferenceServer.register", "InferenceServer.model", "OIPApp", "OIPApp.install", "OIPMiddleware", "OIPWSGIApp"),
    *("OIPWSGIMiddleware", "TensorSpec", "InferenceError", "InferenceRequest", "ResponseCache", "SharedMemory", *OTHERS),
]
FINDER = doctest.DocTestFinder(exclude_empty=True)
FOUND = [test for name, value in (NAMES | OTHERS).items() for test in FINDER.find(value, name, module=False, globs=GLOBALS)]
EXAMPLES = {test.name: test for test in FOUND if test.examples}


def test_each_of_the_first_names_has_an_example() -> None:
    assert [name for name in FIRST if name not in EXAMPLES] == []


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_works(name: str) -> None:
    if name == "specs_of":
        pytest.importorskip("pandas")
    printed: list[str] = []
    results = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(EXAMPLES[name], out=printed.append)
    assert results.failed == 0, "".join(printed)
