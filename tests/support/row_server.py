"""A server with the one model "m", which takes and gives rows of classes, and what asks it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pydantic

from oip_asgi import InferenceServer, OIPApp
from tests.support.ways import Answer, Headers, Request, over_asgi


def serve_rows(takes: Any, gives: Any = None, function: Callable[[Any], Any] = lambda rows: rows, **options: Any) -> InferenceServer:
    """A server whose model is annotated with these types; without one for its result where `gives` is None."""

    def model(rows: Any) -> Any:
        return function(rows)

    model.__annotations__ = {"rows": takes, **({} if gives is None else {"return": gives})}
    server = InferenceServer()
    server.register("m", model, **options)
    return server


def list_of(cls: Any) -> Any:
    """The annotation of a list of a class that one of these functions has made, which mypy takes for no type."""
    return list.__class_getitem__(cls)


def of_msgspec(name: str, /, **fields: Any) -> Any:
    """A class with these fields, each of which is its type, or its type and its default."""
    return msgspec.defstruct(name, _fields(fields, msgspec.field))


def of_dataclasses(name: str, /, **fields: Any) -> Any:
    return dataclasses.make_dataclass(name, _fields(fields, dataclasses.field))


def of_pydantic(name: str, /, **fields: Any) -> Any:
    made: Any = {each: kind if type(kind) is tuple else (kind, ...) for each, kind in fields.items()}
    return pydantic.create_model(name, **made)


def _fields(fields: dict[str, Any], make: Any) -> list[Any]:
    made = [(name, *kind) if type(kind) is tuple else (name, kind) for name, kind in fields.items()]
    return [(*each[:-1], make(default_factory=each[-1].copy)) if type(each[-1]) is list else each for each in made]


def post(server: InferenceServer, action: str, body: Any, headers: Headers = ()) -> Answer:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return over_asgi(OIPApp(server), "")(Request("POST", f"/models/m/{action}", headers, data))


def generate(server: InferenceServer, body: Any) -> Any:
    """What is answered to JSON objects, which must succeed."""
    answer = post(server, "generate", body)
    assert answer.status == 200, answer.body
    return json.loads(answer.body)


def pd_json(name: str, *texts: str) -> dict[str, Any]:
    """A column of JSON texts."""
    return {"name": name, "datatype": "BYTES", "shape": [len(texts)], "parameters": {"content_type": "pd_json"}, "data": texts}
