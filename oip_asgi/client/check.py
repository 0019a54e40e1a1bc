"""Send a table of good and bad requests to a server of the protocol, and print what it answers wrongly.

python -m oip_asgi.client check http://127.0.0.1:8000/v2 --model double

It ends with 0 if nothing is wrong, with 1 if something is, and with 2 if the model cannot be asked. The
answer to a bad request is wrong if it is not 4xx with `{"error": text}`. The model runs with ones, `true` or
"a" as its inputs, unless --request names a good request.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from email.message import Message
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import quote, urlsplit

import numpy as np

from .. import (
    InferenceRequest,
    InferenceResponse,
    InvalidResponse,
    RequestOutput,
    Tensor,
    TensorSpec,
)
from . import Client

ENDED: Final = "cannot be checked"
ARGUMENTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "--model": {"required": True, "help": "the model that is called, many times"},
    "--request": {"type": Path, "help": "a file with a good request, as JSON with flat data"},
    "--strain": {"action": "store_true", "help": "also what has ended the processes of other servers"},
}
_LENGTH: Final = "inference-header-content-length"
_SECONDS: Final = 30
_KINDS: Final = {"text": str, "list": list}
_LITERAL: Final = "\ue000literal"
"""Stands in the JSON for text that `json` would not write."""

_WORDS_OF_KINDS: Final = {"i": ("integer", "number"), "u": ("integer", "number"), "f": ("float", "number")}
"""The words for datatypes of each kind of numpy's dtypes."""


class Row(NamedTuple):
    """A line of `checks.json`: what is sent, as a change of a good request, and what is expected.

    A change may have, in the order in which they are made:

    - `get`, a path that is asked instead, of which the answer `has` members; or `to`, another path for the
      request. `{model}` is that of the model.
    - `if`, the datatype, or a word for its kind, of the input that is changed; without it, the first one. The
      names of `_set_input` change that input.
    - `twice`, that input once more; `ask`, only the last output; `set` and `drop`, members by their paths,
      such as `inputs/0/name`.
    - `binary`, the request with binary data, and what is wrong with these (see `_write_binary`).
    - `body`: this text is sent, and not the request. `append`: this text is sent after it. `cut`: the last
      bytes are not sent, so many. `headers`: these are added.
    - `strain`: it is sent only with --strain.
    """

    section: str  # of the specification
    name: str
    expected: str  # "ok", "answered" by a response, "refused" by an error, "4xx"
    change: dict[str, Any]


Sent: TypeAlias = tuple[str, str, Mapping[str, str], bytes]
"""The method, path, headers and body of a request."""


class Answer(NamedTuple):
    """What the server says."""

    status: int
    headers: Message
    body: bytes


class NotTried(Exception):
    """A row does not fit the model; its text says why."""


def _need(fits: object, otherwise: str) -> None:
    if not fits:
        raise NotTried(otherwise)


class Good:
    """A good request to a model, and its changes."""

    def __init__(self, path: str, request: dict[str, Any], metadata: dict[str, Any]) -> None:
        self.path = path
        self.request = request
        self.declared: dict[str, list[int]] = {
            item["name"]: item.get("shape", []) for item in metadata.get("inputs") or ()
        }
        self.outputs = [str(output["name"]) for output in metadata.get("outputs") or ()]

    def change(self, row: Row, *, has_binary: bool) -> Sent:
        change = row.change
        if "get" in change:
            return "GET", change["get"].replace("{model}", self.path), {}, b""
        path = change.get("to", "{model}/infer").replace("{model}", self.path)
        document: dict[str, Any] = json.loads(json.dumps(self.request))
        self._set(document, change)
        if "binary" in change:
            _need(has_binary, "the server's extensions have no binary_tensor_data")
            return "POST", path, *_write_binary(document, change["binary"])
        literal = change.get("literal", "[" * change.get("deep", 0) + "]" * change.get("deep", 0))
        text = change.get(
            "body", json.dumps(document).replace(json.dumps(_LITERAL), literal) + change.get("append", "")
        )
        body = text.encode(errors="surrogateescape")
        headers = {"Content-Type": "application/json", **change.get("headers", {})}
        return "POST", path, headers, body[: len(body) - change.get("cut", 0)]

    def _set(self, document: dict[str, Any], change: dict[str, Any]) -> None:
        """Make the changes that a row of `checks.json` names, in their order here. Raises NotTried where one
        does not fit the model."""
        fitting = [
            each
            for each in document["inputs"]
            if change.get("if", each["datatype"])
            in (each["datatype"], *_WORDS_OF_KINDS.get(_find_dtype(each["datatype"]).kind, ()))
        ]
        _need(fitting, f"no {change['if']} input" if "if" in change else "no input")
        first = fitting[0]
        self._set_input(first, change)
        if "twice" in change:
            document["inputs"].append(first)
        if "ask" in change:
            _need(self.outputs, "the metadata names no output")
            document["outputs"] = [{"name": self.outputs[-1]}]
        for path, value in change.get("set", {}).items():
            holder, last = _find(document, path)
            _need(not isinstance(holder, list) or last < len(holder), "the first input has no dimension")
            holder[last] = value
        if "drop" in change:
            holder, last = _find(document, change["drop"])
            del holder[last]

    def _set_input(self, first: dict[str, Any], change: dict[str, Any]) -> None:
        """The changes of the first input of the right kind."""
        data, shape, datatype = first["data"], first["shape"], first["datatype"]
        _need(data or not change.keys() & {"first", "literal", "beyond"}, "the first input is empty")
        _need(len(data) >= 3 or "ragged" not in change, "the first input has fewer than three elements")
        changes: Mapping[str, Callable[[Any], dict[str, Any]]] = {
            "ragged": lambda _: {"data": [data[:1], data[1:]]},
            "nested": lambda _: {"data": np.array(data, object).reshape(shape).tolist()},
            "fixed": lambda _: self._add_to_fixed(first),
            "lower": lambda _: {"datatype": datatype.lower()},
            "other": lambda _: {"datatype": "INT16" if datatype != "INT16" else "INT32"},
            "elements": lambda more: {"data": data[:-1] if more < 0 else [*data, *(data[-1:] or [1])]},
            "deep": lambda _: {"data": _LITERAL},
            "literal": lambda _: {"data": [_LITERAL, *data[1:]]},
            "first": lambda value: {"data": [value, *data[1:]]},
            "beyond": lambda side: {"data": [_find_beyond(datatype, side), *data[1:]]},
        }
        for name in changes.keys() & change.keys():
            first.update(changes[name](change[name]))

    def _add_to_fixed(self, first: dict[str, Any]) -> dict[str, Any]:
        """One element more along the first fixed dimension."""
        fixed = [axis for axis, size in enumerate(self.declared.get(first["name"], ())) if size > 0]
        _need(fixed, "the first input has no fixed dimension")
        array = np.array(first["data"], object).reshape(first["shape"])
        array = np.concatenate([array, array.take([0], fixed[0])], fixed[0])
        return {"shape": list(array.shape), "data": array.ravel().tolist()}


def _find_beyond(datatype: str, side: int) -> int:
    limits = np.iinfo(_find_dtype(datatype))
    return int(limits.max) + 1 if side > 0 else int(limits.min) - 1


def _find(document: Any, path: str) -> tuple[Any, Any]:
    """The object or list that holds what a path names, and its name or index there."""
    *parents, last = [int(name) if name.isdigit() else name for name in path.split("/")]
    for name in parents:
        document = document[name]
    return document, last


def _find_dtype(datatype: str) -> np.dtype[Any]:
    """That of numpy. Raises ValueError if there is no such datatype."""
    return TensorSpec("x", datatype, []).dtype  # type: ignore[arg-type]


def _write_binary(document: dict[str, Any], change: dict[str, Any]) -> tuple[dict[str, str], bytes]:
    """A binary request, and what is wrong with it: its header, its bytes, or the size of its last input."""
    tensors = [
        Tensor(each["name"], np.array(each["data"], _find_dtype(each["datatype"])).reshape(each["shape"]))
        for each in document["inputs"]
    ]
    outputs = [RequestOutput(output["name"]) for output in document.get("outputs", ())]
    parameters = {"binary_data_output": change.get("outputs", True)}
    headers, body = InferenceRequest(tensors, parameters=parameters, outputs=outputs).to_http(binary=True)
    length = int(headers.pop(_LENGTH.title()))
    sent, parts = json.loads(body[:length]), body[length:]
    last = sent["inputs"][-1]
    size = change.get("size", 0)
    last["parameters"]["binary_data_size"] = (
        size if isinstance(size, str) else last["parameters"]["binary_data_size"] + size
    )
    if "data" in change:
        last["data"] = document["inputs"][-1]["data"]
    text = json.dumps(sent).encode()
    extra = change.get("bytes", 0)
    header = change.get("header", str(len(text)))
    headers |= {} if header is None else {_LENGTH: header}
    return headers, text + (parts + b"\0" * extra if extra >= 0 else parts[:extra])


def judge(row: Row, answer: Answer, good: Good) -> Iterator[str]:
    document: Any = None
    with suppress(ValueError):
        document = json.loads(answer.body)
    members = document if isinstance(document, dict) else {}
    if row.expected in ("refused", "4xx"):
        text = members.get("error")
        if not 400 <= answer.status <= 499:
            yield f"answered {answer.status}{'' if text is None else f' {text!r:.100}'}, expected 4xx"
        elif not isinstance(text, str) and row.expected == "refused":
            yield f'{answer.status}, but the body is not {{"error": text}}: {answer.body[:80]!r}'
        return
    if row.expected == "ok":
        if answer.status >= 300 or (answer.body and document is None):
            told = answer.headers.get("location") or answer.body[:80]
            yield f"answered {answer.status} {told!r}, expected JSON"
        for name, kind in row.change.get("has", {}).items():
            if not isinstance(members.get(name), _KINDS[kind]):
                yield f"{name} is not a {kind}"
        return
    try:
        response = InferenceResponse.from_http(answer.headers.items(), answer.body, answer.status)
    except InvalidResponse as error:
        yield str(error)
        return
    sent = row.change.get("set", {}).get("id")
    if response.id != sent:
        yield f"the id is {response.id!r}, expected {'none' if sent is None else repr(sent)}"
    if not response.model_name:
        yield "model_name is missing"
    names = [tensor.name for tensor in response.outputs]
    expected = good.outputs[-1:] if "ask" in row.change else good.outputs
    if expected and sorted(names) != sorted(expected):
        yield f"the outputs are {names}, expected {expected}"
    wants_binary = row.change.get("binary", {"outputs": False}).get("outputs", True)
    if wants_binary is not (_LENGTH in answer.headers):
        yield "the outputs are not binary" if wants_binary else "the outputs are binary"


_OF_CONTENT_TYPE: Final = {"datetime": "2026-01-31", "base64": "YQ==", "pd_json": "null"}
"""A text that can be read with each of these content types."""


def make_good(metadata: dict[str, Any]) -> dict[str, Any]:
    inputs = []
    for item in metadata.get("inputs") or ():
        # other servers may not say it
        shape = [1 if size < 0 else size for size in item.get("shape", [])]
        value: Any = {"BOOL": True, "BYTES": "a"}.get(item["datatype"], 1)
        value = _OF_CONTENT_TYPE.get(str((item.get("parameters") or {}).get("content_type")), value)
        _find_dtype(item["datatype"])
        if math.prod(shape) > 1_000_000:
            raise ValueError(
                f"the input {item['name']!r} of {item['datatype']} {shape} cannot be made: give "
                "--request FILE"
            )
        inputs.append(
            {
                "name": item["name"],
                "shape": shape,
                "datatype": item["datatype"],
                "data": [value] * math.prod(shape),
            }
        )
    if not inputs:
        raise ValueError(
            "the metadata names no input: give --request FILE, with a request as JSON with flat data"
        )
    return {"inputs": inputs}


def exchange(
    url: str, headers: Mapping[str, str], method: str, path: str, own: Mapping[str, str], body: bytes
) -> Answer:
    """Send a request as it is, over a connection of its own. Raises OSError or HTTPException if there is no
    answer."""
    parts = urlsplit(url)
    connect = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    with closing(connect(parts.netloc, timeout=_SECONDS)) as connection:
        connection.request(method, parts.path.rstrip("/") + path, body or None, {**headers, **own})
        answer = connection.getresponse()
        return Answer(answer.status, answer.headers, answer.read())


def run(options: argparse.Namespace) -> int:
    headers = dict(options.header)
    if urlsplit(options.url).scheme not in ("http", "https"):
        raise ValueError(f"{options.url}: expected an address of http or https")
    request = None if options.request is None else json.loads(options.request.read_bytes())
    with Client(options.url, headers=headers, timeout=_SECONDS) as client:
        metadata, server = client.model_metadata(options.model, options.version), dict[str, Any]()
        with suppress(InvalidResponse):  # a row tells of it
            server = client.metadata()
    version = "" if options.version is None else f"/versions/{quote(options.version, safe='')}"
    good = Good(f"/models/{quote(options.model, safe='')}{version}", request or make_good(metadata), metadata)
    rows = [Row(*each) for each in json.loads(files(__package__).joinpath("checks.json").read_text())]
    write = partial(print, flush=True)
    wrong, tried, section = 0, 0, ""
    not_tried: dict[str, list[str]] = {}
    for row in rows:
        try:
            is_tried = options.strain or not row.change.get("strain")
            _need(is_tried, "it has ended processes of other servers: give --strain")
            sent = good.change(row, has_binary="binary_tensor_data" in server.get("extensions", ()))
        except NotTried as reason:
            not_tried.setdefault(str(reason), []).append(row.name)
            continue
        tried += 1
        try:
            answer = exchange(options.url, headers, *sent)
            faults = list(judge(row, answer, good))
            if row.name == "a good request" and answer.status >= 300:
                raise ValueError(
                    f"a good request is refused, so the others cannot be sent: {faults[0]}: name a model "
                    "that answers infer, or write a request that it takes to a file, and give --request "
                    f"FILE; this one was {json.dumps(good.request):.300}"
                )
        except (OSError, HTTPException) as error:
            faults = [f"no answer: {options.url}: {error}"]
        wrong += bool(faults)
        for text in faults:
            if section != row.section:
                section = row.section
                write(section)
            write(f"  {row.name}: {text}")
    for text, names in not_tried.items():
        write(f"not tried, as {text}: {', '.join(names)}")
    write(
        f"{server.get('name')} {server.get('version')}, model {options.model}: "
        f"{wrong} of {tried} answers are wrong"
    )
    return int(wrong > 0)
