"""Send a table of good and bad requests to a server of the protocol, and print what it answers wrongly.

python -m oip_asgi.client check http://127.0.0.1:8000/v2 --model double

Without --model, it takes the only one that the server has.

It ends with 0 if nothing is wrong, with 1 if something is, and with 2 if the model cannot be asked. The
answer to a bad request is wrong if it is not 4xx with `{"error": text}`. The model runs with ones, `true` or
"a" as its inputs, unless --request names a good request.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from .._io import finish
from .._models.registry import path_of
from .._protocol.datatypes import DTYPES, Buffer, dtype_of
from .._protocol.errors import ErrorResponse, InferenceError, InvalidRequest, InvalidResponse, list_names
from .._protocol.schemas import RequestOutput
from .._protocol.tensors import InferenceRequest, Tensor
from .._rest.body import HEADER_LENGTH
from .._rest.client import LENGTH_NAME, read_document, read_response
from . import _questions as questions
from ._arguments import describe, make_parser
from ._http import HTTPLink
from ._questions import MAX_BODY_BYTES, HTTPAnswer, HTTPRequest
from ._senders import ConnectionFailed

_KINDS: Final = {"text": str, "list": list}
_LITERAL: Final = "\ue000literal"
"""Stands in the JSON for text that `json` would not write."""

_WORDS_OF_KINDS: Final = {"i": ("integer", "number"), "u": ("integer", "number"), "f": ("float", "number")}
"""The words for datatypes of each kind of numpy's dtypes."""


class Row(NamedTuple):
    """What is sent, as a change of a good request, and what is expected: "ok", "answered" by a response,
    "refused" by an error, "4xx"."""

    section: str
    name: str
    expected: str
    change: dict[str, Any]


class NotTried(Exception):
    """A row does not fit the model; its text says why."""


class Good:
    """A good request to a model, and its changes."""

    def __init__(self, path: str, request: dict[str, Any], metadata: dict[str, Any]) -> None:
        self.path = path
        self.request = request
        self.declared: dict[str, list[int]] = {
            item["name"]: item["shape"] for item in metadata.get("inputs") or ()
        }
        self.outputs = [str(output["name"]) for output in metadata.get("outputs") or ()]

    def change(self, row: Row, *, has_binary: bool) -> HTTPRequest:
        change = row.change
        if "get" in change:
            return HTTPRequest("GET", change["get"].replace("{model}", self.path), [], [])
        path = change.get("to", "{model}/infer").replace("{model}", self.path)
        document: dict[str, Any] = json.loads(json.dumps(self.request))
        self._set(document, change)
        headers = list(change.get("headers", {}).items())
        if "binary" in change:
            if not has_binary:
                raise NotTried("the server's extensions have no binary_tensor_data")
            headers, body = _write_binary(document, change["binary"])
            return HTTPRequest("POST", path, headers, body)
        literal = change.get("literal", "[" * change.get("deep", 0) + "]" * change.get("deep", 0))
        text = change.get(
            "body", json.dumps(document).replace(json.dumps(_LITERAL), literal) + change.get("append", "")
        )
        body = text.encode(errors="surrogateescape")
        return HTTPRequest(
            "POST",
            path,
            [("Content-Type", "application/json"), *headers],
            [body[: len(body) - change.get("cut", 0)]],
        )

    def _set(self, document: dict[str, Any], change: dict[str, Any]) -> None:
        """Make the changes that a row of `checks.json` names, in their order here. Raises NotTried where one
        does not fit the model."""
        types = [(each, each["datatype"]) for each in document["inputs"]]
        first = next(
            (
                each
                for each, of in types
                if change.get("if", of) in (of, *_WORDS_OF_KINDS.get(dtype_of(of).kind, ()))
            ),
            None,
        )
        if first is None:
            raise NotTried(f"no {change['if']} input" if "if" in change else "no input")
        self._set_input(first, change)
        if "twice" in change:
            document["inputs"].append(first)
        if "ask" in change:
            if not self.outputs:
                raise NotTried("the metadata names no output")
            document["outputs"] = [{"name": self.outputs[-1]}]
        for path, value in change.get("set", {}).items():
            holder, last = _find(document, path)
            if isinstance(holder, list) and last >= len(holder):
                raise NotTried("the first input has no dimension")
            holder[last] = value
        if "drop" in change:
            holder, last = _find(document, change["drop"])
            del holder[last]

    def _set_input(self, first: dict[str, Any], change: dict[str, Any]) -> None:
        """The changes of the first input of the right kind."""
        data, shape = first["data"], first["shape"]
        if any(name in change for name in ("first", "literal", "beyond")) and not data:
            raise NotTried("the first input is empty")
        if "ragged" in change:
            if len(data) < 3:
                raise NotTried("the first input has fewer than three elements")
            first["data"] = [data[:1], data[1:]]
        if "nested" in change:
            first["data"] = np.array(data, object).reshape(shape).tolist()
        if "fixed" in change:
            axis = next(
                (axis for axis, size in enumerate(self.declared.get(first["name"], ())) if size > 0), None
            )
            if axis is None:
                raise NotTried("the first input has no fixed dimension")
            array = np.array(data, object).reshape(shape)
            array = np.concatenate([array, array.take([0], axis)], axis)
            first["shape"], first["data"] = list(array.shape), array.ravel().tolist()
        if "lower" in change:
            first["datatype"] = first["datatype"].lower()
        if "other" in change:
            first["datatype"] = "INT16" if first["datatype"] != "INT16" else "INT32"
        if "elements" in change:
            first["data"] = data[:-1] if change["elements"] < 0 else [*data, *(data[-1:] or [1])]
        if "deep" in change:
            first["data"] = _LITERAL
        if "literal" in change:
            data[0] = _LITERAL
        if "first" in change:
            data[0] = change["first"]
        if "beyond" in change:
            limits = np.iinfo(dtype_of(first["datatype"]))
            data[0] = int(limits.max) + 1 if change["beyond"] > 0 else int(limits.min) - 1


def _find(document: Any, path: str) -> tuple[Any, Any]:
    """The object or list that holds what a path names, and its name or index there."""
    *parents, last = [int(name) if name.isdigit() else name for name in path.split("/")]
    for name in parents:
        document = document[name]
    return document, last


def _write_binary(
    document: dict[str, Any], change: dict[str, Any]
) -> tuple[list[tuple[str, str]], list[Buffer]]:
    """A binary request, and what is wrong with it: its header, its bytes, or the size of its last input."""
    tensors: list[Tensor] = []
    for item in document["inputs"]:
        data = [each.encode() for each in item["data"]] if item["datatype"] == "BYTES" else item["data"]
        tensors.append(
            Tensor(item["name"], np.array(data, dtype_of(item["datatype"])).reshape(item["shape"]))
        )
    outputs = [RequestOutput(output["name"]) for output in document.get("outputs", ())]
    request = InferenceRequest(
        tensors, parameters={"binary_data_output": change.get("outputs", True)}, outputs=outputs
    )
    written = questions.write_inference(questions.Inference("", None, request))
    sent, parts = json.loads(bytes(written.body[0])), b"".join(written.body[1:])
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
    headers = [
        ("Content-Type", "application/octet-stream"),
        *([] if header is None else [(HEADER_LENGTH, header)]),
    ]
    return headers, [text, parts + b"\0" * extra if extra >= 0 else parts[:extra]]


def judge(row: Row, answer: HTTPAnswer, good: Good) -> Iterator[str]:
    if row.expected in ("refused", "4xx"):
        document = _read_error(answer)
        if not 400 <= answer.status <= 499:
            yield f"answered {answer.status}{'' if document is None else f' {document!r:.100}'}, expected 4xx"
        elif document is None and row.expected == "refused":
            yield f'{answer.status}, but the body is not {{"error": text}}: {bytes(answer.body[:80])!r}'
        return
    try:
        if row.expected == "ok":
            document = read_document(answer.headers, answer.body, answer.status)
            for name, kind in row.change.get("has", {}).items():
                if not isinstance(document, dict) or not isinstance(document.get(name), _KINDS[kind]):
                    yield f"{name} is not a {kind}"
            return
        response = read_response(answer.headers, answer.body, answer.status)
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
    if wants_binary is not (LENGTH_NAME in answer.headers):
        yield "the outputs are not binary" if wants_binary else "the outputs are binary"


def _read_error(answer: HTTPAnswer) -> str | None:
    try:
        document = json.loads(bytes(answer.body))
    except ValueError:
        return None
    return (
        document["error"] if isinstance(document, dict) and isinstance(document.get("error"), str) else None
    )


_OF_CONTENT_TYPE: Final = {"datetime": "2026-01-31", "base64": "YQ==", "pd_json": "null"}
"""A text that can be read with each of these content types."""


def make_good(metadata: dict[str, Any]) -> dict[str, Any]:
    inputs = []
    for item in metadata.get("inputs") or ():
        shape = [1 if size < 0 else size for size in item["shape"]]
        value: Any = {"BOOL": True, "BYTES": "a"}.get(item["datatype"], 1)
        value = _OF_CONTENT_TYPE.get(str((item.get("parameters") or {}).get("content_type")), value)
        if item["datatype"] not in DTYPES or math.prod(shape) > 1_000_000:
            raise InvalidRequest(
                f"the input {item['name']!r} of {item['datatype']} {item['shape']} cannot be made: give "
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
        raise InvalidRequest(
            "the metadata names no input: give --request FILE, with a request as JSON with flat data"
        )
    return {"inputs": inputs}


def find_only(link: HTTPLink) -> str:
    """The name of the only model. Servers of other kinds have the repository's index, or `GET models`, or
    none of both."""
    names: list[str] = []
    for question in (questions.MODELS, questions.INDEX):
        try:
            answer: list[Any] = finish(link.ask(question, None))
            names = list(
                dict.fromkeys(str(each["name"] if isinstance(each, dict) else each) for each in answer)
            )
            break
        except InvalidResponse as error:
            # --model would not help
            if isinstance(error, ErrorResponse) and error.response_status in (401, 403):
                raise
    if len(names) != 1:
        raise InvalidRequest(
            f"the server has {list_names(names) if names else 'no list of its models'}: name one with --model"
        )
    return names[0]


def check(
    link: HTTPLink,
    model: str,
    version: str | None,
    request: dict[str, Any] | None,
    *,
    strain: bool,
    write: Callable[[str], object],
) -> int:
    """Send all rows, and write what is wrong by section. Returns what the command ends with."""
    metadata = finish(link.ask(questions.ask_of(model, version, questions.MODEL_METADATA), None))
    server: dict[str, Any] = {}
    with suppress(InvalidResponse):  # a row tells of it
        server = finish(link.ask(questions.METADATA, None))
    good = Good(path_of(model, version), request or make_good(metadata), metadata)
    rows = [Row(*each) for each in json.loads(files(__package__).joinpath("checks.json").read_text())]
    wrong, tried, section = 0, 0, ""
    not_tried: dict[str, list[str]] = {}
    for row in rows:
        try:
            if row.change.get("strain") and not strain:
                raise NotTried("it has ended processes of other servers: give --strain")
            sent = good.change(row, has_binary="binary_tensor_data" in server.get("extensions", ()))
        except NotTried as reason:
            not_tried.setdefault(str(reason), []).append(row.name)
            continue
        tried += 1
        try:
            answer = finish(link.exchange(sent, None, MAX_BODY_BYTES))
            faults = list(judge(row, answer, good))
            if row.name == "a good request" and answer.status >= 300:
                raise InvalidRequest(
                    f"a good request is refused, so the others cannot be sent: {faults[0]}: name a model "
                    "that answers infer, or write a "
                    "request that it takes to a file, and give --request FILE; this one was "
                    f"{json.dumps(good.request):.300}"
                )
        except ConnectionFailed as error:
            faults = [f"no answer: {error}"]
        wrong += bool(faults)
        for text in faults:
            if section != row.section:
                section = row.section
                write(section)
            write(f"  {row.name}: {text}")
    for text, names in not_tried.items():
        write(f"not tried, as {text}: {', '.join(names)}")
    write(
        f"{server.get('name')} {server.get('version')}, model {model}: {wrong} of {tried} answers are wrong"
    )
    return int(wrong > 0)


def main(arguments: list[str] | None = None) -> int:
    parser = make_parser("python -m oip_asgi.client check", __doc__)
    parser.add_argument("--model", help="the model that is called, many times; without it, the only one")
    parser.add_argument("--request", type=Path, help="a file with a good request, as JSON with flat data")
    parser.add_argument(
        "--strain", action="store_true", help="also what has ended the processes of other servers"
    )
    options = parser.parse_args(arguments)
    headers = dict(options.header)
    link = HTTPLink(options.url, headers, 30, None, blocks=True)
    try:
        request = None if options.request is None else json.loads(options.request.read_bytes())
        return check(
            link,
            options.model or find_only(link),
            options.version,
            request,
            strain=options.strain,
            write=partial(print, flush=True),
        )
    except (InferenceError, OSError, ValueError) as error:
        print(f"cannot be checked: {describe(error)}", file=sys.stderr)  # noqa: T201
        return 2
    finally:
        finish(link.close())


if __name__ == "__main__":
    sys.exit(main())
