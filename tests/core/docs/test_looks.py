"""How the page shows an answer: which view fits which outputs, and what the views are made from. Drawing is looked at in a browser."""

from __future__ import annotations

import base64
import io
import json
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

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


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Scripts:
    return Scripts(tmp_path_factory.mktemp("scripts"))


def output(name: str, datatype: str, *shape: int, data: Any = None) -> dict[str, Any]:
    size = math.prod(shape)
    filled = data if data is not None else ["text"] * size if datatype == "BYTES" else [0.5] * size
    return {"name": name, "datatype": datatype, "shape": list(shape), "data": filled}


def looks_of(scripts: Scripts, outputs: list[Any], inputs: list[Any] | None = None, **known: Any) -> list[Any]:
    found = scripts.value_of("looks.looksOf(outputs, known)", outputs=outputs, known={"sent": inputs or [], **known})
    assert isinstance(found, list)
    return found


def kinds_of(scripts: Scripts, *outputs: Any, **more: Any) -> list[str]:
    return [look["kind"] for look in looks_of(scripts, list(outputs), **more)]


def ramp(datatype: str, shape: tuple[int, ...], least: float, most: float) -> dict[str, Any]:
    return output("a", datatype, *shape, data=np.linspace(least, most, math.prod(shape)).tolist())


@pytest.mark.parametrize(
    ("tensor", "kind"),
    [
        (output("y", "FP32", 3), "table"),
        (output("y", "FP32", 3, 12), "table"),
        (output("y", "FP64"), "table"),
        (output("y", "BYTES", 2), "table"),
        (output("y", "BYTES", 1), "text"),
        (output("y", "FP32", 64), "curve"),
        (output("y", "FP32", 1, 64), "curve"),
        (output("y", "FP32", 2, 64), "heat"),
        (output("y", "FP32", 10, 10), "heat"),
        (output("y", "FP32", 0, 3), "empty"),
        (output("y", "FP32", 2, 3, 4, 5), "summary"),
        (output("y", "BYTES", 1, 2, 3), "summary"),
        (ramp("UINT8", (8, 8), 0, 255), "pixels"),
        (ramp("FP32", (28, 28), 0, 1), "pixels"),
        (ramp("FP32", (28, 28), -7, 300), "heat"),
        (ramp("FP32", (16, 20, 3), 0, 1), "pixels"),
        (ramp("FP32", (3, 16, 20), 0, 255), "pixels"),
        (ramp("FP32", (1, 3, 16, 20), -1, 1), "pixels"),
        (ramp("FP32", (16, 20, 3), -3, 4), "pixels"),
        (ramp("UINT8", (4, 16, 20, 3), 0, 255), "pixels"),
    ],
    ids=lambda value: f"{value['datatype']}{value['shape']}" if isinstance(value, dict) else value,
)
def test_the_view_of_one_output(scripts: Scripts, tensor: Any, kind: str) -> None:
    assert kinds_of(scripts, tensor) == [kind]


def test_rows_stand_beside_the_rows_that_were_sent(scripts: Scripts) -> None:
    sent = [output("age", "INT64", 2, data=[31, 42]), output("city", "BYTES", 2, 1, data=["Bern", None])]
    answered = [output("churn", "FP64", 2, data=[0.1, 0.9]), output("both", "FP32", 2, 2, data=[1, 2, 3, 4])]
    [table] = looks_of(scripts, answered, sent)
    assert (table["kind"], table["count"]) == ("table", 2)
    assert [(column["name"], column["values"], column.get("isInput", False)) for column in table["columns"]] == [
        ("churn", [0.1, 0.9], False),
        ("both 0", [1, 3], False),
        ("both 1", [2, 4], False),
        ("age", [31, 42], True),
        ("city", ["Bern", None], True),
    ]
    assert kinds_of(scripts, output("mean", "FP64", 3), inputs=sent) == ["vector"]  # three values for two rows are no rows
    [curve] = looks_of(scripts, [output("y", "FP64", 64)], [output("x", "FP64", 64)])
    assert curve["kind"] == "table"  # a value for each row


def test_scores_with_labels_are_sorted(scripts: Scripts) -> None:
    labels = {"species": ["cat", "dog", "owl"]}
    [look] = looks_of(scripts, [output("species", "FP32", 1, 3, data=[0.1, 0.7, 0.2])], labels=labels)
    assert look["rows"] == [[["dog", 0.7], ["owl", 0.2], ["cat", 0.1]]]
    assert kinds_of(scripts, output("species", "FP32", 3), labels=labels) == ["scores"]
    [other] = looks_of(scripts, [output("species", "FP32", 2)], labels=labels)
    assert other["kind"] == "table"
    letters = [chr(code) for code in range(ord("a"), ord("m") + 1)]  # too many for a table
    [wide] = looks_of(scripts, [output("letter", "FP32", 2, 13, data=[*range(13), *range(13, 0, -1)])], labels={"letter": letters})
    assert [row[0] for row in wide["rows"]] == [["m", 12], ["a", 13]]


@pytest.mark.parametrize("count", [2, 7, 30])
@pytest.mark.parametrize("width", [2, 3, 12])
def test_several_rows_of_scores_are_a_table_with_a_column_for_each_label(scripts: Scripts, count: int, width: int) -> None:
    labels = [f"class {place}" for place in range(width)]
    image = output("image", "FP32", count, 64)  # of what was sent no table is made
    scores = np.random.default_rng(count).dirichlet(np.ones(width), count)
    [look] = looks_of(scripts, [output("y", "FP64", count, width, data=scores.ravel().tolist())], [image], labels={"y": labels})
    assert (look["kind"], look["count"], [column["name"] for column in look["columns"]]) == ("table", count, labels)
    assert np.array_equal(np.transpose([column["values"] for column in look["columns"]]), scores)
    assert all(column["isShare"] for column in look["columns"])
    marked = np.transpose([column["areLargest"] for column in look["columns"]])
    assert np.array_equal(marked.argmax(1), scores.argmax(1))
    assert marked.sum() == count


@pytest.mark.parametrize(
    ("rows", "are_shares", "largest"),
    [
        ([[0.5, 0.5], [0.25, 0.75]], True, [0, 1]),  # of equal ones the first, as argmax
        ([[0.4, 0.6], [0.2, 0.9]], False, [1, 1]),  # of two answers, not of one
        ([[-3.5, 2], [1, "-Infinity"]], False, [1, 0]),
        ([[3.5, "Infinity"], [1, 0.5]], False, [1, 0]),
        ([["NaN", 0.1], [0.7, 0.3], [None, None]], True, [1, 0, None]),
        ([["NaN", 0.1], [None, -3]], False, [1, 1]),
    ],
)
def test_the_largest_score_of_each_row_is_marked(scripts: Scripts, rows: list[Any], are_shares: bool, largest: list[int | None]) -> None:
    data = [score for row in rows for score in row]
    [look] = looks_of(scripts, [output("y", "FP64", len(rows), 2, data=data)], labels={"y": ["no", "yes"]})
    columns = look["columns"]
    marked = [[place for place, column in enumerate(columns) if column["areLargest"][row]] for row in range(len(rows))]
    assert marked == [[] if place is None else [place] for place in largest]
    assert [column["isShare"] for column in columns] == [are_shares, are_shares]


@pytest.mark.parametrize(
    "tensor",
    [output("y", "BYTES", 2, 2), output("y", "BOOL", 2, 2, data=[True, False] * 2), output("y", "FP32", 2, 3), output("y", "FP32", 2)],
    ids=lambda tensor: f"{tensor['datatype']}{tensor['shape']}",
)
def test_what_is_no_rows_of_scores_has_no_mark(scripts: Scripts, tensor: Any) -> None:
    looks = looks_of(scripts, [tensor], labels={"y": ["no", "yes"]})
    assert not any("areLargest" in column for look in looks for column in look.get("columns", []))


@pytest.mark.parametrize(("media_type", "head"), HEADS.items())
def test_bytes_of_a_picture_are_a_picture(scripts: Scripts, media_type: str, head: bytes) -> None:
    body = head + bytes(range(40))
    encoded = base64.b64encode(body).decode()
    [look] = looks_of(scripts, [output("image", "BYTES", 1, data=[encoded])])
    assert look["kind"] == "pictures"
    [picture] = look["pictures"]
    assert picture["type"] == media_type
    assert bytes(picture["bytes"].values()) == body


@pytest.mark.parametrize("text", ["R0lGODdh", "text", "iVBORw0KGgo is how they begin.  ", "", "/9j/"])
def test_texts_are_no_pictures(scripts: Scripts, text: str) -> None:
    assert kinds_of(scripts, output("y", "BYTES", 1, data=[text])) == ["text"]


def pixels_of(scripts: Scripts, array: NDArray[Any]) -> Any:
    outputs = [output("a", "UINT8" if array.dtype == np.uint8 else "FP32", *array.shape, data=array.ravel().tolist())]
    asked = "pictures.pixelsOf(look.pictures[0], look)"
    [look] = looks_of(scripts, outputs)
    bytes_of_pixels = np.array([*scripts.value_of(asked, look=look).values()], np.uint8)
    return bytes_of_pixels.reshape(look["height"], look["width"], 4)


def test_the_pixels_of_arrays(scripts: Scripts) -> None:
    picture = np.random.default_rng(0).integers(0, 256, (9, 11, 3), np.uint8)
    for array in (picture, picture.transpose(2, 0, 1), picture / np.float32(255), picture.astype(np.float32)):
        pixels = pixels_of(scripts, array)
        assert np.array_equal(pixels[..., :3], picture)
        assert (pixels[..., 3] == 255).all()
    gray = pixels_of(scripts, picture[..., 0])
    assert all(np.array_equal(gray[..., part], picture[..., 0]) for part in range(3))
    stretched = pixels_of(scripts, picture.astype(np.float32) * 2 - 100)
    assert (stretched[..., :3].min(), stretched[..., :3].max()) == (0, 255)


def test_the_bytes_of_tensors_are_read(scripts: Scripts) -> None:
    arrays: dict[str, Any] = {
        "BOOL": [True, False], "UINT8": [0, 255], "UINT16": [1, 65535], "UINT32": [2, 4294967295], "INT8": [-128, 127], "INT16": [-2, 2],
        "INT32": [-3, 3], "FP16": [0.5, -1.25], "FP32": [1.5, -0.25], "FP64": [0.1, -1e300],
    }  # fmt: skip
    dtypes = {"BOOL": "?", "FP16": "f2", "FP32": "f4", "FP64": "f8"}
    for datatype, values in arrays.items():
        dtype = dtypes.get(datatype, datatype.lower())
        sent = [*np.array(values, dtype).tobytes()]
        assert scripts.value_of("tensors.elementsOf(datatype, Uint8Array.from(sent))", datatype=datatype, sent=sent) == values
    long = [*np.array([2**63 - 1, -5], "<i8").tobytes()]
    written = "tensors.elementsOf('INT64', Uint8Array.from(sent)).map(tensors.writtenOf)"
    assert scripts.value_of(written, sent=long) == [str(2**63 - 1), "-5"]
    halves = np.array([0, 1, 0x3C00, 0x7BFF, 0x8001, 0xC000], np.uint16)
    expected = halves.view(np.float16).astype(float).tolist()
    assert scripts.value_of("halves.map(tensors.half)", halves=halves.tolist()) == expected


def test_an_answer_with_bytes_behind_its_json(scripts: Scripts) -> None:
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


@pytest.mark.parametrize(
    ("declared", "names"),
    [([-1, 3], ["a", "b", "c"]), ([2, 3], ["a", "b", "c"]), ([-1, -1], ["y"]), ([-1], ["y"]), (None, ["y"])],
)
def test_a_flat_answer_has_the_shape_that_is_declared(scripts: Scripts, declared: list[int] | None, names: list[str]) -> None:
    shapes = {} if declared is None else {"y": declared}
    [look] = looks_of(scripts, [output("y", "FP64", 6)], labels={"y": ["a", "b", "c"]}, declared=shapes)
    assert (look["kind"], look["count"], [column["name"] for column in look["columns"]]) == ("table", 6 // len(names), names)


def test_a_list_of_flat_answers_is_rows(scripts: Scripts) -> None:
    outputs = scripts.value_of("tensors.outputsOf(text)", text=json.dumps([{"y": 1.5, "word": "a"}, {"y": 2.5, "word": "b"}]))
    assert [(each["name"], each["shape"], each["data"]) for each in outputs] == [("y", [2], [1.5, 2.5]), ("word", [2], ["a", "b"])]


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_events_are_read_in_pieces_of_any_length(scripts: Scripts, size: int) -> None:
    text = 'data: {"a": 1}\n\ndata:two\ndata: lines\n\n: a comment\n\ndata: {"b": "é"}\r\n\r\ndata: not yet'
    pieces = [text[place : place + size] for place in range(0, len(text), size)]
    asked = "(() => { const reader = new events.EventReader(); return pieces.flatMap((piece) => reader.read(piece)); })()"
    assert scripts.value_of(asked, pieces=pieces) == ['{"a": 1}', "two\nlines", '{"b": "é"}']


def test_a_table_is_copied_as_it_is_written_in_files(scripts: Scripts) -> None:
    columns = [{"name": "a,b", "values": ['say "x"', "1,5", None]}, {"name": "n", "values": [1, 2.5, True]}]
    copied = scripts.value_of("figures.separated(columns, 3, ',')", columns=columns)
    assert copied == '"a,b",n\n"say ""x""",1\n"1,5",2.5\n,true\n'
    pandas = pytest.importorskip("pandas")
    assert pandas.read_csv(io.StringIO(copied)).shape == (3, 2)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (3, "3"), (12345678901, "12345678901"), (0.5, "0.5"), (1 / 3, "0.333333"), (-1234.56789, "-1234.57"), (1.5e-9, "1.5e-9"),
        (246913578.0, "246913578"), (12345678.9, "12345678.9"), (1234567.891, "1234567.9"), (123456.789, "123456.8"),
    ],
)  # fmt: skip
def test_numbers_beside_a_drawing_are_short(scripts: Scripts, number: float, text: str) -> None:
    assert scripts.value_of("words.short(number)", number=number) == text


@pytest.mark.parametrize(
    ("tensor", "rows_sent", "declared", "kind"),
    [
        (output("mean", "FP32", 3), None, [3], "vector"),
        (output("mean", "FP32", 3), None, [-1], "table"),
        (output("mean", "FP32", 3), None, None, "table"),
        (output("words", "BYTES", 3), None, [3], "vector"),
        (output("mean", "FP32", 3), 1, None, "vector"),
        (output("mean", "FP32", 3), 1, [-1], "vector"),
        (output("mean", "FP32", 3), 3, [3], "vector"),
        (output("mean", "FP32", 3), 3, [-1], "table"),
        (output("mean", "FP32", 1), None, [1], "table"),
        (output("mean", "FP32", 2, 2), 1, [2, 2], "table"),
        (output("mean", "FP32", 40), None, [40], "curve"),
    ],
)
def test_a_vector_that_is_not_of_the_rows_is_no_column(scripts: Scripts, tensor: Any, rows_sent: Any, declared: Any, kind: str) -> None:
    sent = [output("x", "FP32", rows_sent)] if rows_sent else []
    assert kinds_of(scripts, tensor, inputs=sent, declared={tensor["name"]: declared} if declared else {}) == [kind]


def test_a_vector_of_a_declared_length_is_no_rows_that_were_sent(scripts: Scripts) -> None:
    sent = {**output("x", "INT32", 3), "declared": [3]}
    assert kinds_of(scripts, output("y", "INT32", 3), inputs=[sent], declared={"y": [3]}) == ["vector"]
    [table] = looks_of(scripts, [output("y", "INT32", 3)], [{**sent, "declared": [-1]}], declared={"y": [-1]})
    assert [column["name"] for column in table["columns"]] == ["y", "x"]


@pytest.mark.parametrize(
    ("datatype", "value", "text"),
    [
        ("FP64", 246913578.0, "246913578"),
        ("FP64", 1234567890123.0, "1234567890123"),
        ("FP64", 1 / 3, "0.3333333333333333"),
        ("FP64", float(np.float32(0.1)), "0.10000000149011612"),
        ("FP32", float(np.float32(0.1)), "0.1"),
        ("FP32", float(np.float32(1 / 3)), "0.33333334"),
        ("FP32", 16777216.0, "16777216"),
        ("FP32", float(np.float32(123456.789)), "123456.79"),
        ("FP32", 0.123456789012, "0.123456789012"),  # was sent, and is no number of 32 bits
        ("FP32", "NaN", "NaN"),
        ("FP32", None, ""),
    ],
)
def test_a_number_of_an_answer_has_all_its_digits(scripts: Scripts, datatype: str, value: Any, text: str) -> None:
    assert scripts.value_of("tensors.digitsOf(value, datatype)", value=value, datatype=datatype) == text
