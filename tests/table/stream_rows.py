"""The table of streams: requests to `generate`, `generate_stream` and `infer_stream`, and what they are answered."""

from __future__ import annotations

import json
from typing import Any

from tests.table.json_rows import NO_MARK, OF_TENSORFLOW
from tests.table.row_classes import OF_PYDANTIC
from tests.table.stream_end_rows import end_rows
from tests.table.stream_models import HAS_PANDAS, MANY
from tests.table.stream_row import EVENTS, JSON, OIP_COUNT, OIP_PLAIN, OIP_WORDS, WORDS, StreamRow, flat, refused, streamed, tensor, whole

if HAS_PANDAS:
    import pandas as pd

ROUNDED = "9007199254740993 would be rounded, as a fraction or a missing value beside it makes FP64 of it: declare FP64, or write floats"
ONLY_A_STREAM = "answers with a stream: use infer_stream, generate_stream or generate over HTTP, ModelStreamInfer over gRPC"


def stream_rows() -> list[StreamRow]:
    return [
        *_models(),
        *end_rows(),
        *(_frames() if HAS_PANDAS else ()),
        *_requests(),
        *_flat_responses(),
        *_whole_responses(),
        *_failures(),
        *_rows(),
    ]


def _models() -> list[StreamRow]:
    to, be = flat("words", text_output="to"), flat("words", text_output="be")
    return [
        streamed("an event for each item", "words/generate_stream", WORDS, to, be),
        streamed("a def generator", "count/generate_stream", {"n": 3}, *(flat("count", output_0=number) for number in range(3))),
        streamed("one item", "words/generate_stream", {"text_input": "to"}, to),
        streamed("no item", "yields%20nothing/generate_stream", {"x": 1}),
        streamed("a plain model", "plain/generate_stream", {"x": 4}, flat("plain", output_0=8)),
        StreamRow("a plain model, once", "plain/generate", {"x": 4}, 200, flat("plain", output_0=8)),
        StreamRow("one item, once", "words/generate", {"text_input": "to"}, 200, to),
        refused("several items, once", "words/generate", WORDS, "model 'words' answered more than once: use generate_stream"),
        refused(
            "no item, once",
            "yields%20nothing/generate",
            {"x": 1},
            "model 'yields nothing' answered nothing: generate_stream takes any number of responses",
            500,
        ),
        refused("infer on a stream", "words/infer", OIP_WORDS, f"model 'words' {ONLY_A_STREAM}"),
        streamed("a version", "versioned/versions/7/generate_stream", {"x": 1}, flat("versioned", model_version="7", output_0=1)),
        StreamRow("no version asked for", "versioned/generate", {"x": 1}, 200, flat("versioned", model_version="7", output_0=1)),
    ]


def _requests() -> list[StreamRow]:
    two, grid = flat("plain", output_0=2), flat("grid", output_0=[1.0, 2.0, 3.0, 4.0])
    expected = "expected a scalar or a list of FP32"
    misspelled = "unknown input '{}': expected 'n', 'start'; did you mean 'start'?"
    return [
        StreamRow("an id", "plain/generate", {"x": 1, "id": "a"}, 200, {"id": "a", **flat("plain", output_0=2)}),
        refused("an id that is no string", "plain/generate", {"x": 1, "id": 1}, "id is 1: expected a string"),
        StreamRow("parameters of any name", "plain/generate", {"x": 1, "a": "b", "c": 1.5, "d": True, "e": 2}, 200, two),
        StreamRow("inputs among parameters", "plain/generate", {"parameters": {"x": 1, "a": 1}}, 200, flat("plain", output_0=2)),
        refused(
            "an input twice",
            "plain/generate",
            {"x": 1, "parameters": {"x": 1}},
            "input 'x' is there twice: in the object itself and in its parameters",
        ),
        refused("a misspelled input", "words/generate", {"text_inpt": "to"}, "unknown input 'text_inpt': expected 'text_input'"),
        refused("its letters", "plain/generate", {"X": [1]}, "unknown input 'X': expected 'x'"),
        refused("a misspelled optional input", "count/generate", {"n": 1, "strt": 5}, misspelled.format("strt")),
        refused("among parameters", "count/generate", {"n": 1, "parameters": {"Start": 5}}, misspelled.format("Start")),
        StreamRow("like an input that is there", "count/generate", {"n": 1, "start": 5, "stars": 1}, 200, flat("count", output_0=5)),
        refused("parameters that are no object", "plain/generate", {"x": 1, "parameters": []}, "parameters: expected an object"),
        *(
            refused(
                f"a parameter that is {what}",
                "plain/generate",
                {"x": 1, "stop": value},
                f"parameter 'stop' is {what}: expected a string, a number, true or false; for a list, the model has to "
                "declare an input 'stop'",
            )
            for what, value in (("null", None), ("a list", ["a"]), ("an object", {}))
        ),
        *(row for action in ("generate", "generate_stream") for row in _scalars(action)),
        StreamRow("a list for a declared input", "stops/generate", {"stop": ["a", "b"]}, 200, flat("stops", output_0=["a", "b"])),
        StreamRow("an empty list", "stops/generate", {"stop": []}, 200, flat("stops", output_0=[])),
        StreamRow("whole numbers beside others", "plain/generate", b'{"x": [1, 2.5]}', 200, flat("plain", output_0=[2.0, 5.0])),
        refused("a larger one beside NaN", "plain/generate", b'{"x": [NaN, 9007199254740993]}', f"input 'x': {ROUNDED}"),
        StreamRow("a result with a larger one", "rounds/generate", {}, 500, {"error": "model 'rounds' failed: see the server's log"}),
        StreamRow("an input called inputs", "inputs/generate", {"inputs": [True]}, 200, flat("inputs", output_0=True)),
        StreamRow("flat for three dimensions", "grid/generate", {"grid": [1, 2, 3, 4]}, 200, grid),
        StreamRow("nested as declared", "grid/generate", {"grid": [[[1, 2], [3, 4]]]}, 200, grid),
        StreamRow("null for a number", "grid/generate", b'{"grid": [[[1], [null]]]}', 200, flat("grid", output_0=[1.0, None])),
        refused("uneven", "grid/generate", {"grid": [1, 2, 3]}, "input 'grid' has shape [3]: expected [-1, 2, -1]"),
        refused(
            "nested otherwise",
            "grid/generate",
            {"grid": [[1, 2]]},
            "input 'grid' has shape [1, 2]: expected [-1, 2, -1]",
        ),
        refused(
            "null for an input",
            "grid/generate",
            {"grid": None},
            f"input 'grid': data is null: {expected}; for a missing number, write [null]; if it has a default, leave it out",
        ),
        refused(
            "an object for an input",
            "grid/generate",
            {"grid": {}},
            f"input 'grid': data is an object: {expected}",
        ),
        refused("no such input", "words/generate_stream", {"x": 1}, "missing input 'text_input': expected 'text_input', but got no inputs"),
        refused("no object", "plain/generate", [1], "the body: expected object, got array"),
        refused(
            "instances",
            "plain/generate",
            {"instances": [[1, 2]]},
            f"parameter 'instances' is a list: expected a string, a number, true or false; {OF_TENSORFLOW}",
        ),
        refused(
            "inputs by name",
            "plain/generate",
            {"inputs": {"x": [[1, 2]]}},
            f"parameter 'inputs' is an object: expected a string, a number, true or false; {OF_TENSORFLOW}",
        ),
        refused(
            "a byte order mark",
            "plain/generate",
            b'\xef\xbb\xbf{"x": 1}',
            f"the body is not valid JSON: JSON is malformed: invalid character (byte 0); {NO_MARK}",
        ),
        refused(
            "a form",
            "plain/generate",
            b'--a\r\nContent-Disposition: form-data; name="x"\r\n\r\n1\r\n--a--\r\n',
            "the body is not valid JSON: JSON is malformed: invalid character (byte 1); it looks like multipart/form-data, which "
            "curl -F and HTML forms send: send JSON",
        ),
        refused(
            "a dict as Python prints it",
            "plain/generate",
            b"{'x': 1}",
            "the body is not valid JSON: JSON is malformed: object keys must be strings (byte 1); it looks like a dict as "
            "Python prints it: send what json.dumps makes of it",
        ),
        refused("no body", "plain/generate", b"", "the body is empty: expected a JSON object with a member for each input"),
        refused(
            "binary data",
            "plain/generate",
            b'{"x": 1}',
            "a flat object has no binary data: leave Inference-Header-Content-Length out, or send inputs",
            headers=(("Inference-Header-Content-Length", "8"),),
        ),
    ]


def _scalars(action: str) -> list[StreamRow]:
    """Scalars beside declared inputs, which a flat object has in itself or among its parameters."""
    path, kind = f"scaled/{action}", EVENTS if action == "generate_stream" else JSON

    def answered(name: str, send: Any, output: int) -> StreamRow:
        document = flat("scaled", output_0=output)
        return StreamRow(f"{name}, {action}", path, send, 200, document if kind == JSON else [document], kind)

    expected = "'factor', 'offset'"
    return [
        answered("scalars left out", {"x": 1}, 2),
        answered("scalars", {"x": 1, "factor": 3, "parameters": {"offset": 4}}, 7),
        answered(
            "scalars beside the protocol's own", {"x": 1, "factor": 3, "id": None, "priority": 1, "parameters": {"sequence_id": 1}}, 3
        ),
        answered("a scalar as a list", {"x": 1, "factor": [3]}, 3),
        refused(
            f"a misspelled scalar, {action}",
            path,
            {"x": 1, "fctor": 3},
            "unknown input 'fctor': expected 'factor', 'offset', 'x'; did you mean 'factor'?",
        ),
        refused(f"a scalar that is far from any, {action}", path, {"x": 1, "shift": 3}, f"unknown parameter 'shift': expected {expected}"),
        refused(
            f"the same among parameters, {action}",
            path,
            {"x": 1, "parameters": {"oset": 3}},
            f"unknown parameter 'oset': expected {expected}; did you mean 'offset'?",
        ),
    ]


def _dates() -> list[StreamRow]:
    here = "column 'day' cannot be datetime64[ns, Asia/Tokyo], as its pd_dtype says"
    without = f"{here}: its dates have no offset from UTC: send each with its own, such as 2026-01-31T09:30:00+01:00, or Z for UTC itself"
    having = (
        "column 'day' cannot be datetime64[ns], as its pd_dtype says: its dates have an offset from UTC, such as Z: send them without one, "
        "in the time zone that the model expects"
    )
    tokyo, missing = ["2026-03-02T00:00:00+09:00", "2026-03-01T15:00:00Z"], "NaT"
    return [
        refused("a date without a zone", "zoned/generate", {"day": "2026-03-02"}, without),
        refused("dates without a zone", "zoned/infer", {"inputs": [tensor("day", ["2026-03-02", missing], "BYTES")]}, without),
        refused("a date with a zone too many", "not%20zoned/generate", {"day": "2026-03-02T00Z"}, having),
        refused("dates with a zone too many", "not%20zoned/infer", {"inputs": [tensor("day", tokyo, "BYTES")]}, having),
        StreamRow("no date for a zone", "zoned/generate", {"day": None}, 200, flat("zoned", output_0=missing)),
    ]


def _frames() -> list[StreamRow]:
    bern = {"city": "Bern", "age": 3}
    strings = pd.Series(["Bern"]).dtype  # "str" in pandas 3
    one = [f"city {strings}: ['Bern']", "age int64: [3]"]
    return [
        StreamRow("the keys are the columns of a frame", "frame/generate", bern, 200, flat("frame", y=[*one, "{}"])),
        streamed("the same as a stream", "frame/generate_stream", bern, flat("frame", y=[*one, "{}"])),
        StreamRow(
            "columns of several rows",
            "frame/generate",
            {"city": ["Bern", "Oslo"], "hot": [True, False], "age": [3.5, 4]},
            200,
            flat("frame", y=[f"city {strings}: ['Bern', 'Oslo']", "hot bool: [True, False]", "age float64: [3.5, 4.0]", "{}"]),
        ),
        StreamRow(
            "parameters beside the columns of a frame",
            "frame/generate",
            {**bern, "id": "7", "sequence_id": 5, "parameters": {"beam": 2}},
            200,
            {"id": "7", **flat("frame", y=[*one, "{'sequence_id': 5, 'beam': 2}"])},
        ),
        StreamRow(
            "a frame beside other inputs",
            "frame%20and%20n/generate",
            {"a": [1, 2], "n": 3, "b": [10, 20], "scale": 0.5},
            200,
            flat("frame and n", output_0=[16.5, 33.0]),
        ),
        StreamRow("a declared frame", "declared%20frame/generate", {"a": [1, 2]}, 200, flat("declared frame", output_0=[1, 2])),
        StreamRow(
            "missing values that are answered",
            "found/generate",
            {"key": [2, 3, 1]},
            200,
            {**flat("found", **{"city": ['a "b"', None, "Bonn"], "n": [2, None, 1], "is": [True, None, False]}), "content_type": "pd"},
        ),
        StreamRow("texts that are no JSON", "no%20JSON/generate", {}, 200, flat("no JSON", y=["1, 2", "["])),
        StreamRow(
            "only a missing value",
            "found/generate",
            {"key": 3},
            200,
            {**flat("found", **{"city": None, "n": None, "is": None}), "content_type": "pd"},
        ),
        refused(
            "a column called id", "identified/generate", {"id": "a"}, "input 'id' has the name of another member of the object: use infer"
        ),
        refused("an unknown column", "declared%20frame/generate", {"a": [1, 2], "b": 3}, "unknown input 'b': expected 'a'"),
        refused(
            "a misspelled column",
            "missing/generate",
            {"age": 3, "Citty": "Bonn", "born": None},
            "unknown input 'Citty': expected 'age', 'born', 'city'; did you mean 'city'?",
        ),
        StreamRow(
            "parameters beside a declared frame",
            "declared%20frame/generate",
            {"a": [1, 2], "sequence_id": 5, "parameters": {"b": 3}},
            200,
            flat("declared frame", output_0=[1, 2]),
        ),
        StreamRow(
            "a declared frame beside a context",
            "parameters%20of%20a%20frame/generate",
            {"a": 1, "beam": 2},
            200,
            flat("parameters of a frame", output_0="{'beam': 2}"),
        ),
        StreamRow(
            "missing values of a declared frame",
            "missing/generate",
            {"age": None, "city": None, "born": None},
            200,
            flat("missing", age=None, city="missing", year=None),
        ),
        StreamRow(
            "missing values among others",
            "missing/generate",
            {"age": [1, None], "city": ["Bonn", None], "born": ["2026-01-31", None]},
            200,
            flat("missing", age=[1.0, None], city=["Bonn", "missing"], year=[2026.0, None]),
        ),
        *_dates(),
        refused(
            "more columns than a frame may have that is not declared",
            "frame/generate",
            dict.fromkeys(map(str, range(MANY)), 1),
            f"the request has {MANY} columns: expected {MANY - 1} at most, as the model does not declare them",
        ),
        refused(
            "the same in tensors",
            "frame/infer",
            {"inputs": [tensor(str(place), [1], "INT64") for place in range(MANY)]},
            f"the request has {MANY} columns: expected {MANY - 1} at most, as the model does not declare them",
        ),
        StreamRow(
            "as many columns as a frame may have that is not declared",
            "frame%20and%20n/generate",
            {"n": 2, **dict.fromkeys(map(str, range(MANY - 2)), 1)},
            200,
            flat("frame and n", output_0=2.0 * (MANY - 2)),
        ),
        StreamRow(
            "more columns, as they are declared",
            "wide/generate",
            dict.fromkeys(map(str, range(MANY)), 1),
            200,
            flat("wide", output_0=MANY),
        ),
        refused(
            "columns of different lengths",
            "frame/generate",
            {"a": [1, 2], "b": [1]},
            "column 'b' has 1 rows, but 'a' has 2: expected as many in each",
        ),
        StreamRow("a column that is null", "frame/generate", {"a": None}, 200, flat("frame", y=["a object: [None]", "{}"])),
        refused("a column that is an object", "frame/generate", {"a": {}}, "input 'a': data is an object: expected a scalar or a list"),
        refused(
            "a column twice",
            "frame/generate",
            {"a": 1, "parameters": {"a": 2}},
            "input 'a' is there twice: in the object itself and in its parameters",
        ),
    ]


def _flat_responses() -> list[StreamRow]:
    return [
        streamed(
            "scalars and lists",
            "lists/generate_stream",
            {"n": 3},
            flat("lists", output_0=[]),
            flat("lists", output_0=0),
            flat("lists", output_0=[0, 1]),
        ),
        StreamRow("parameters of the response", "parameters/generate", {}, 200, flat("parameters", y=1.0, seen=True)),
        refused(
            "bytes that are not UTF-8",
            "bytes/generate",
            {},
            "output 'output_0': BYTES element 0 is b'\\xff', which is not UTF-8 and cannot be a JSON string: use infer, with binary data",
        ),
        refused(
            "a clash of names", "clash/generate", {}, "the output 'model_name' has the name of another member: use infer or infer_stream"
        ),
    ]


def _whole_responses() -> list[StreamRow]:
    # a list of strings that the annotation makes one says so, as infer does
    said = {"parameters": {"content_type": "str"}}
    to, be = (
        whole("words", {"name": "text_output", "shape": [1], "datatype": "BYTES", **said, "data": [word]}, id="7") for word in ("to", "be")
    )
    counted = [whole("count", tensor("output_0", [number], "INT64")) for number in range(2)]
    tripled = {**OIP_PLAIN, "parameters": {"factor": 3}}
    asked = {**OIP_PLAIN, "outputs": [{"name": "output_0", "parameters": {"binary_data": True}}]}
    binary = json.dumps({"inputs": [{"name": "x", "shape": [1], "datatype": "UINT8", "parameters": {"binary_data_size": 1}}]}).encode()
    return [
        streamed("infer_stream", "words/infer_stream", OIP_WORDS, to, be),
        streamed("infer_stream of a def generator", "count/infer_stream", OIP_COUNT, *counted),
        streamed("infer_stream of a plain model", "plain/infer_stream", OIP_PLAIN, whole("plain", tensor("output_0", [4], "INT64"))),
        streamed("inputs at generate_stream", "words/generate_stream", OIP_WORDS, to, be),
        streamed("a scalar at infer_stream", "scaled/infer_stream", tripled, whole("scaled", tensor("output_0", [6], "INT64"))),
        refused(
            "a misspelled scalar at infer_stream",
            "scaled/infer_stream",
            {**OIP_PLAIN, "parameters": {"factr": 3}},
            "unknown parameter 'factr': expected 'factor', 'offset'; did you mean 'factor'?",
        ),
        StreamRow("inputs at generate", "plain/generate", OIP_PLAIN, 200, whole("plain", tensor("output_0", [4], "INT64"))),
        streamed(
            "binary_data_output counts for nothing",
            "plain/infer_stream",
            {**OIP_PLAIN, "parameters": {"binary_data_output": True}},
            whole("plain", tensor("output_0", [4], "INT64")),
        ),
        streamed(
            "binary inputs",
            "plain/infer_stream",
            binary + b"\x05",
            whole("plain", tensor("output_0", [10], "UINT8")),
            headers=(("Inference-Header-Content-Length", str(len(binary))),),
        ),
        refused(
            "a binary output",
            "plain/infer_stream",
            asked,
            "requested output 'output_0' has binary_data: true, but this carries JSON: leave it out",
        ),
        refused(
            "a flat object at infer_stream",
            "words/infer_stream",
            WORDS,
            "the body: object missing required field inputs; a plain object is for generate or generate_stream",
        ),
    ]


def _failures() -> list[StreamRow]:
    teapot = "the teapot is short and stout"
    return [
        refused("a failure before the first item", "raises%20at%20once/generate_stream", {"x": 1}, teapot, 418),
        refused("the same at infer_stream", "raises%20at%20once/infer_stream", OIP_PLAIN, teapot, 418),
        refused("the same at generate", "raises%20at%20once/generate", {"x": 1}, teapot, 418),
        streamed(
            "a failure later",
            "raises%20later/generate_stream",
            {"x": 1},
            flat("raises later", output_0=1),
            {"error": "the teapot is empty"},
        ),
        refused("a failure later, once", "raises%20later/generate", {"x": 1}, "the teapot is empty", 418),
        refused(
            "no such model",
            "nowhere/versions/1/generate_stream",
            {"x": 1},
            "Request for unknown model: 'nowhere' is not found: expected 'words', 'count', 'lists', 'plain', 'grid', 'versioned', "
            f"'parameters', 'bytes', 'clash', 'stops' and {(23 if HAS_PANDAS else 12) + len(OF_PYDANTIC)} more",
            404,
        ),
    ]


def _rows() -> list[StreamRow]:
    """Rows of a class: a plain object is one, and a list of them as many."""
    ada = {"age": 3, "plan": "free", "isNew": True}
    bob = {"age": 70, "plan": "paid", "isNew": False, "monthlyFee": 9.5, "since": "2024-02-29"}
    columns = {"age": [3], "plan": ["free"], "isNew": [True], "city": [None]}
    points = [{"x": 1.0, "y": 1.0}, {"x": 2.0, "y": 0.5}], [{"x": 2.0, "y": 2.0}, {"x": 4.0, "y": 1.0}]
    scores = [{"label": "leaves", "value": 0.3}, {"label": "stays", "value": 9.5}]
    churn, two_rows = "churn/generate", "the request has 2 rows: expected 1"
    unknown = "rows[1]: unknown member 'agee': expected 'age', 'plan', 'isNew', 'monthlyFee', 'city', 'since'"
    return [
        StreamRow("a row", churn, ada, 200, flat("churn", **scores[0])),
        StreamRow("rows", churn, [ada, bob], 200, scores),
        StreamRow("a list of one row", churn, [bob], 200, scores[1:]),
        StreamRow("rows as columns", churn, columns, 200, flat("churn", **scores[0])),
        StreamRow("missing values", churn, {**ada, "city": None, "monthlyFee": None, "since": None}, 200, flat("churn", **scores[0])),
        StreamRow("no rows", churn, [], 200, []),
        refused("a row that does not fit", churn, {**ada, "age": -1}, "rows[0].age: expected int >= 0, got -1"),
        refused("rows, one does not fit", churn, [ada, {**bob, "age": -1}], "rows[1].age: expected int >= 0, got -1"),
        refused("rows, one of another type", churn, [ada, {**bob, "age": "x"}], "rows[1].age: expected int, got 'x'"),
        refused("rows, one is not in the Enum", churn, [{**ada, "plan": 1}], "rows[0].plan: expected 'free' or 'paid', got 1"),
        refused("rows, one has another name", churn, [ada, {**bob, "agee": 1}], f"{unknown}; did you mean 'age'?"),
        refused(
            "rows, one has a name twice",
            churn,
            b'[{"age":1,"age":2,"plan":"free","isNew":true}]',
            "'age' is there twice: expected each name once",
        ),
        refused("rows, a number out of range", churn, b'[{"monthlyFee":1e400}]', "rows[0].monthlyFee: number out of range"),
        refused(
            "a row with a number out of range",
            churn,
            json.dumps(ada).encode()[:-1] + b',"monthlyFee":1e400}',
            'input \'monthlyFee\': data: number out of range: expected a number, null, "NaN", "Infinity" or "-Infinity" for FP64',
        ),
        refused("rows, not closed", churn, b'[{"age":1', "the body is not valid JSON: Input data was truncated"),
        refused("rows, one lacks a member", churn, [ada, {"age": 1, "plan": "free"}], "rows[1]: missing 'isNew'"),
        refused("rows, one is no object", churn, [ada, 1], "rows[1] is 1: expected an object"),
        refused("rows for a model of arrays", "plain/generate", [{"x": 1}], "the body: expected object, got array"),
        StreamRow("one row alone", "one%20row/generate", {"x": 2, "scale": 3}, 200, flat("one row", x=6.0, y=1.5)),
        refused("a list for one row", "one%20row/generate", [{"x": 2}, {"x": 1}], f"{two_rows}, as the model takes one Point"),
        streamed("a stream of a row", "points/generate_stream", {"x": 2}, *(flat("points", x=2.0 * n, y=0.5 * n) for n in (1, 2))),
        streamed("a stream of rows", "points/generate_stream", [{"x": 1, "y": 1}, {"x": 2}], *points),
    ]
