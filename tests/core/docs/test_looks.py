"""How the page shows an answer: which view fits which outputs, and what the views are made from. Drawing is looked at in a browser."""

from __future__ import annotations

import base64
import io
import json
import math
from typing import Any

import numpy as np
import pytest

from oip_asgi import InferenceServer, OIPApp
from tests.support.node import Scripts, needs_node
from tests.support.ways import Request, over_asgi

pytestmark = needs_node

HEADS = {
    "image/png": b"\x89PNG\r\n\x1a\n",
    "image/jpeg": b"\xff\xd8\xff\xe0",
    "image/gif": b"GIF89a",
    "image/webp": b"RIFF\x10\x00\x00\x00WEBP",
}


def output(name: str, datatype: str, *shape: int, data: Any = None) -> dict[str, Any]:
    size = math.prod(shape)
    filled = data if data is not None else ["text"] * size if datatype == "BYTES" else [0.5] * size
    return {"name": name, "datatype": datatype, "shape": list(shape), "data": filled}


def asked(*outputs: Any, sent: Any = (), **known: Any) -> tuple[Any, Any]:
    """Outputs, and what is known beside them."""
    return outputs, {"sent": sent, **known}


def all_looks(scripts: Scripts, *each: tuple[Any, Any]) -> list[Any]:
    return scripts.values_of("looks.looksOf(given[0], given[1])", each)


def kinds_of(scripts: Scripts, *each: tuple[Any, Any]) -> list[list[str]]:
    return [[look["kind"] for look in looks] for looks in all_looks(scripts, *each)]


def ramp(datatype: str, shape: tuple[int, ...], least: float, most: float) -> dict[str, Any]:
    return output("a", datatype, *shape, data=np.linspace(least, most, math.prod(shape)).tolist())


MEAN = output("mean", "FP32", 3)
TWO_ROWS = [output("age", "INT64", 2, data=[31, 42]), output("city", "BYTES", 2, 1, data=["Bern", None])]
SPECIES = {"species": ["cat", "dog", "owl"]}
KINDS: dict[str, list[tuple[Any, Any]]] = {
    "table": [
        *(asked(output("y", "FP32", *shape)) for shape in [(3,), (3, 12)]),
        asked(output("y", "FP64")),
        asked(output("y", "BYTES", 2)),
        asked(output("y", "FP64", 64), sent=[output("x", "FP64", 64)]),  # a value for each row
        asked(output("species", "FP32", 2), labels=SPECIES),
        # of which none is a vector beside the rows
        *(asked(MEAN, declared=declared) for declared in [{"mean": [-1]}, {}]),
        asked(MEAN, sent=[output("x", "FP32", 3)], declared={"mean": [-1]}),
        asked(output("mean", "FP32", 1), declared={"mean": [1]}),
        asked(output("mean", "FP32", 2, 2), sent=[output("x", "FP32", 1)], declared={"mean": [2, 2]}),
    ],
    "vector": [
        asked(output("mean", "FP64", 3), sent=TWO_ROWS),  # three values for two rows are no rows
        *(asked(output(name, kind, 3), declared={name: [3]}) for name, kind in (("mean", "FP32"), ("words", "BYTES"))),
        *(asked(MEAN, sent=[output("x", "FP32", 1)], declared=declared) for declared in ({}, {"mean": [-1]})),
        asked(MEAN, sent=[output("x", "FP32", 3)], declared={"mean": [3]}),
        asked(output("y", "INT32", 3), sent=[{**output("x", "INT32", 3), "declared": [3]}], declared={"y": [3]}),
    ],
    "scores": [asked(output("species", "FP32", 3), labels=SPECIES)],
    "text": [asked(output("y", "BYTES", 1, data=[text])) for text in ("text", "R0lGODdh", "iVBORw0KGgo is how they begin.  ", "", "/9j/")],
    "curve": [
        *(asked(output("y", "FP32", *shape)) for shape in [(64,), (1, 64)]),
        asked(output("mean", "FP32", 40), declared={"mean": [40]}),
    ],
    "heat": [*(asked(output("y", "FP32", *shape)) for shape in [(2, 64), (10, 10)]), asked(ramp("FP32", (28, 28), -7, 300))],
    "empty": [asked(output("y", "FP32", 0, 3))],
    "summary": [asked(output("y", "FP32", 2, 3, 4, 5)), asked(output("y", "BYTES", 1, 2, 3))],
    "pixels": [
        *(asked(ramp("UINT8", shape, 0, 255)) for shape in [(8, 8), (4, 16, 20, 3)]),
        *(asked(ramp("FP32", shape, 0, 1)) for shape in [(28, 28), (16, 20, 3)]),
        asked(ramp("FP32", (3, 16, 20), 0, 255)),
        asked(ramp("FP32", (1, 3, 16, 20), -1, 1)),
        asked(ramp("FP32", (16, 20, 3), -3, 4)),
    ],
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_view_of_one_output(scripts: Scripts, kind: str) -> None:
    assert kinds_of(scripts, *KINDS[kind]) == [[kind]] * len(KINDS[kind])


def test_rows_stand_beside_the_rows_that_were_sent(scripts: Scripts) -> None:
    answered = [output("churn", "FP64", 2, data=[0.1, 0.9]), output("both", "FP32", 2, 2, data=[1, 2, 3, 4])]
    any_length = asked(output("y", "INT32", 3), sent=[{**output("x", "INT32", 3), "declared": [-1]}], declared={"y": [-1]})
    [table], [other] = all_looks(scripts, asked(*answered, sent=TWO_ROWS), any_length)
    assert (table["kind"], table["count"]) == ("table", 2)
    assert [(column["name"], column["values"], column.get("isInput", False)) for column in table["columns"]] == [
        ("churn", [0.1, 0.9], False),
        ("both 0", [1, 3], False),
        ("both 1", [2, 4], False),
        ("age", [31, 42], True),
        ("city", ["Bern", None], True),
    ]
    assert [column["name"] for column in other["columns"]] == ["y", "x"]


def test_scores_with_labels_are_sorted(scripts: Scripts) -> None:
    letters = [chr(code) for code in range(ord("a"), ord("m") + 1)]  # too many for a table
    several = output("letter", "FP32", 2, 13, data=[*range(13), *range(13, 0, -1)])
    one = output("species", "FP32", 1, 3, data=[0.1, 0.7, 0.2])
    [look], [wide] = all_looks(scripts, asked(one, labels=SPECIES), asked(several, labels={"letter": letters}))
    assert look["rows"] == [[["dog", 0.7], ["owl", 0.2], ["cat", 0.1]]]
    assert [row[0] for row in wide["rows"]] == [["m", 12], ["a", 13]]


def test_several_rows_of_scores_are_a_table_with_a_column_for_each_label(scripts: Scripts) -> None:
    for count, width in ((2, 12), (7, 3), (30, 2)):
        labels = [f"class {place}" for place in range(width)]
        image = output("image", "FP32", count, 64)  # of what was sent no table is made
        scores = np.random.default_rng(count).dirichlet(np.ones(width), count)
        tensor = output("y", "FP64", count, width, data=scores.ravel().tolist())
        [[look]] = all_looks(scripts, asked(tensor, sent=[image], labels={"y": labels}))
        assert (look["kind"], look["count"], [column["name"] for column in look["columns"]]) == ("table", count, labels)
        assert np.array_equal(np.transpose([column["values"] for column in look["columns"]]), scores)
        assert all(column["isShare"] for column in look["columns"])
        marked = np.transpose([column["areLargest"] for column in look["columns"]])
        assert np.array_equal(marked.argmax(1), scores.argmax(1))
        assert marked.sum() == count


MARKED: list[tuple[Any, bool, list[int | None]]] = [
    ([[0.5, 0.5], [0.25, 0.75]], True, [0, 1]),  # of equal ones the first, as argmax
    ([[0.4, 0.6], [0.2, 0.9]], False, [1, 1]),  # of two answers, not of one
    ([[-3.5, 2], [1, "-Infinity"]], False, [1, 0]),
    ([[3.5, "Infinity"], [1, 0.5]], False, [1, 0]),
    ([["NaN", 0.1], [0.7, 0.3], [None, None]], True, [1, 0, None]),
    ([["NaN", 0.1], [None, -3]], False, [1, 1]),
]


def test_the_largest_score_of_each_row_is_marked(scripts: Scripts) -> None:
    labels = {"y": ["no", "yes"]}
    tensors = [output("y", "FP64", len(rows), 2, data=[score for row in rows for score in row]) for rows, *_ in MARKED]
    for [look], (rows, are_shares, largest) in zip(
        all_looks(scripts, *(asked(each, labels=labels) for each in tensors)), MARKED, strict=True
    ):
        columns = look["columns"]
        marked = [[place for place, column in enumerate(columns) if column["areLargest"][row]] for row in range(len(rows))]
        assert marked == [[] if place is None else [place] for place in largest], rows
        assert [column["isShare"] for column in columns] == [are_shares, are_shares]
    others = [
        output("y", "BYTES", 2, 2),
        output("y", "BOOL", 2, 2, data=[True, False] * 2),
        output("y", "FP32", 2, 3),
        output("y", "FP32", 2),
    ]
    for looks in all_looks(scripts, *(asked(each, labels=labels) for each in others)):
        assert not any("areLargest" in column for look in looks for column in look.get("columns", []))


def test_bytes_of_a_picture_are_a_picture(scripts: Scripts) -> None:
    bodies = [head + bytes(range(40)) for head in HEADS.values()]
    encoded = [asked(output("image", "BYTES", 1, data=[base64.b64encode(body).decode()])) for body in bodies]
    for [look], media_type, body in zip(all_looks(scripts, *encoded), HEADS, bodies, strict=True):
        [picture] = look["pictures"]
        assert (look["kind"], picture["type"], bytes(picture["bytes"].values())) == ("pictures", media_type, body)


def test_the_pixels_of_arrays(scripts: Scripts) -> None:
    picture = np.random.default_rng(0).integers(0, 256, (9, 11, 3), np.uint8)
    same = [picture, picture.transpose(2, 0, 1), picture / np.float32(255), picture.astype(np.float32)]
    arrays = [*same, picture[..., 0], picture.astype(np.float32) * 2 - 100]
    outputs = [output("a", "UINT8" if each.dtype == np.uint8 else "FP32", *each.shape, data=each.ravel().tolist()) for each in arrays]
    found = "((look) => [look.height, look.width, figures.pixelsOf(look.pictures[0], look)])(looks.looksOf([given], { sent: [] })[0])"
    drawn = [
        np.array([*pixels.values()], np.uint8).reshape(height, width, 4) for height, width, pixels in scripts.values_of(found, outputs)
    ]
    *colored, gray, stretched = drawn
    assert all(np.array_equal(pixels[..., :3], picture) and (pixels[..., 3] == 255).all() for pixels in colored)
    assert all(np.array_equal(gray[..., part], picture[..., 0]) for part in range(3))
    assert (stretched[..., :3].min(), stretched[..., :3].max()) == (0, 255)


def test_the_bytes_of_tensors_are_read(scripts: Scripts) -> None:
    arrays: dict[str, Any] = {
        "BOOL": [True, False], "UINT8": [0, 255], "UINT16": [1, 65535], "UINT32": [2, 4294967295], "INT8": [-128, 127], "INT16": [-2, 2],
        "INT32": [-3, 3], "FP32": [1.5, -0.25], "FP64": [0.1, -1e300],
    }  # fmt: skip
    dtypes = {"BOOL": "?", "FP32": "f4", "FP64": "f8"}
    for datatype, values in arrays.items():
        dtype = dtypes.get(datatype, datatype.lower())
        sent = [*np.array(values, dtype).tobytes()]
        assert scripts.value_of("tensors.elementsOf(datatype, Uint8Array.from(sent))", datatype=datatype, sent=sent) == values
    long = [*np.array([2**63 - 1, -5], "<i8").tobytes()]
    written = "tensors.elementsOf('INT64', Uint8Array.from(sent)).map(tensors.writtenOf)"
    assert scripts.value_of(written, sent=long) == [str(2**63 - 1), "-5"]


def test_an_answer_with_bytes_after_its_json(scripts: Scripts) -> None:
    server = InferenceServer()

    @server.model("m")
    def model() -> dict[str, Any]:
        return {"number": np.array([1.5, 2.5], np.float32), "text": np.array([b"\xc3\xa9", b"\xff"], object)}

    body = json.dumps({"inputs": [], "parameters": {"binary_data_output": True}}).encode()
    answer = over_asgi(OIPApp(server), "")(Request("POST", "/models/m/infer", (), body))
    length = int(answer.headers["inference-header-content-length"])
    asked = "tensors.outputsOf(text, Uint8Array.from(bytes)).map(({ data }) => data.map(tensors.writtenOf))"
    text, behind = answer.body[:length].decode(), [*answer.body[length:]]
    assert scripts.value_of(asked, text=text, bytes=behind) == [["1.5", "2.5"], ["é", "1 byte"]]


def test_texts_of_json_are_what_they_stand_for(scripts: Scripts) -> None:
    texts = output("y", "BYTES", 5, data=["3", "null", '"a"', "[1]", "not"])
    dates = output("z", "BYTES", 2, data=["2021-03-01", "NaT"])
    answer = {"outputs": [{**texts, "parameters": {"content_type": "pd_json"}}, {**dates, "parameters": {"content_type": "datetime"}}]}
    read = scripts.value_of("tensors.outputsOf(text).map(({ data }) => data)", text=json.dumps(answer))
    assert read == [[3, None, "a", "[1]", "not"], ["2021-03-01", None]]


def test_flat_answers_are_outputs_too(scripts: Scripts) -> None:
    text = json.dumps({"model_name": "m", "model_version": "1", "y": [[1, 2], [3, 4]], "word": "a", "z": 1.5})
    outputs = scripts.value_of("tensors.outputsOf(text)", text=text)
    assert [(each["name"], each["shape"], each["datatype"]) for each in outputs] == [
        ("y", [2, 2], "FP64"), ("word", [], "BYTES"), ("z", [], "FP64"),
    ]  # fmt: skip


def test_a_flat_answer_has_the_shape_that_is_declared(scripts: Scripts) -> None:
    labels = {"y": ["a", "b", "c"]}
    shapes = ([-1, 3], [2, 3], [-1, -1], [-1], None)
    each = (asked(output("y", "FP64", 6), labels=labels, declared={"y": shape} if shape else {}) for shape in shapes)
    found = [(look["kind"], look["count"], [column["name"] for column in look["columns"]]) for [look] in all_looks(scripts, *each)]
    assert found == [("table", 2, ["a", "b", "c"])] * 2 + [("table", 6, ["y"])] * 3


def test_a_list_of_flat_answers_is_rows(scripts: Scripts) -> None:
    outputs = scripts.value_of("tensors.outputsOf(text)", text=json.dumps([{"y": 1.5, "word": "a"}, {"y": 2.5, "word": "b"}]))
    assert [(each["name"], each["shape"], each["data"]) for each in outputs] == [("y", [2], [1.5, 2.5]), ("word", [2], ["a", "b"])]


def test_events_are_read_in_pieces_of_any_length(scripts: Scripts) -> None:
    text = 'data: {"a": 1}\n\ndata:two\ndata: lines\n\n: a comment\n\ndata: {"b": "é"}\r\n\r\ndata: not yet'
    pieces = [[text[place : place + size] for place in range(0, len(text), size)] for size in (1, 3, 1000)]
    reading = "((reader) => given.flatMap((piece) => reader.read(piece)))(new answer.EventReader())"
    assert scripts.values_of(reading, pieces) == [['{"a": 1}', "two\nlines", '{"b": "é"}']] * 3


def test_a_table_is_copied_as_it_is_written_in_files(scripts: Scripts) -> None:
    columns = [{"name": "a,b", "values": ['say "x"', "1,5", None]}, {"name": "n", "values": [1, 2.5, True]}]
    copied = scripts.value_of("figures.separated(columns, 3, ',')", columns=columns)
    assert copied == '"a,b",n\n"say ""x""",1\n"1,5",2.5\n,true\n'
    pandas = pytest.importorskip("pandas")
    assert pandas.read_csv(io.StringIO(copied)).shape == (3, 2)
