"""Rows that come and leave as JSON objects, with and without columns in between, and as lists: each request has the same answer."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
from collections.abc import Callable
from datetime import date, datetime
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import numpy as np
import pydantic
import pytest
from msgspec import Meta

from oip_asgi import InferenceError, InferenceServer, ResponseCache
from tests.support.asking import exactly, get
from tests.support.row_server import generate, list_of, of_dataclasses, of_msgspec, of_pydantic, pd_json, post, serve_rows
from tests.support.ways import Answer


class Plan(enum.Enum):
    FREE = "free"
    PAID = "paid"


class Customer(msgspec.Struct, rename={"is_new": "isNew"}):
    age: Annotated[int, Meta(ge=0)]
    fee: float
    city: str
    is_new: bool
    plan: Plan
    kind: Literal[1, 2]


Entry = of_dataclasses("Entry", at=datetime, weights=list[float], note=str | None)
Tagged: Any = msgspec.defstruct("Tagged", [("value", float, 1.0)], tag="t", omit_defaults=True)
Plain = of_dataclasses("Plain", value=float, label=str)
Dated = of_dataclasses("Dated", since=date | None, note=str | None)
Named = of_dataclasses("Named", id=int)
FEES = {"n": int, "fee": float, "maybe": (float | None, None)}
COUNTS = {"n": int, "maybe": (int | None, None), "each": (list[int], [])}
Moments = of_pydantic("Moments", at=datetime, maybe=(datetime | None, None), each=(list[datetime], []))
Moment = of_msgspec("Moment", at=datetime)
Days = of_dataclasses("Days", at=datetime, maybe=datetime | None)
DAYS = [make("Day", at=date) for make in (of_msgspec, of_pydantic)]
LISTS = {"scores": list[float], "tags": list[str]}
Lists = of_dataclasses("Lists", **LISTS)
Converted = of_pydantic("Converted", n=int, exact=(int, pydantic.Field(7, strict=True)))


class Score(msgspec.Struct):
    label: str
    value: float
    count: int = 0


class Known(Score):
    more: int = 1


Wide, WideOfPydantic = (make("Wide", **{f"f{index}": (int | None, None) for index in range(30)}) for make in (of_msgspec, of_pydantic))


ADA = {"age": 3, "fee": 1.5, "city": "Ulm", "isNew": True, "plan": "free", "kind": 1}


def answer(function: Callable[[Any], Any], takes: Any, gives: Any, body: Any) -> tuple[int, Any]:
    """The status and the document, which are the same with a cache: that makes columns of the rows, and rows of columns."""
    one = post(serve_rows(takes, gives, function), "generate", body)
    other = post(serve_rows(takes, gives, function, cache=ResponseCache(1 << 20)), "generate", body)
    assert (one.status, one.body) == (other.status, other.body)
    return one.status, json.loads(one.body)


def same(rows: Any) -> Any:
    return rows


def test_a_date_that_is_missing_is_null_also_in_an_answer() -> None:
    rows: list[dict[str, str | None]] = [{"since": "2024-02-29", "note": "NaT"}, {"since": None, "note": None}]
    assert answer(same, list_of(Dated), list_of(Dated), rows) == (200, rows)
    for row in rows:
        assert answer(same, list_of(Dated), list_of(Dated), row) == (200, {"model_name": "m", **row})
        assert answer(same, Dated, Dated, row) == (200, {"model_name": "m", **row})


def test_a_row_comes_back() -> None:
    cases: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({}, {}),
        ({"city": 'a":b\\ :, \u00fc\u2028\U0001f600'}, {}),
        ({"fee": 7}, {"fee": 7.0}),
        ({"fee": 2**53 + 1}, {"fee": 2.0**53}),
        *(({"fee": fee}, {}) for fee in (-0.0, 1e300)),
        ({"age": 2**63 - 1, "kind": 2, "plan": "paid", "isNew": False}, {}),
    ]
    seen: list[Any] = []

    def note(rows: list[Any]) -> list[Any]:
        seen.extend(rows)
        return rows

    for more, came in cases:
        row, back = {**ADA, **more}, {**ADA, **more, **came}
        status, found = answer(note, list[Customer], list[Customer], [row, ADA])
        assert (status, found) == (200, [back, ADA])
        assert math.copysign(1, found[0]["fee"]) == math.copysign(1, back["fee"])
        assert answer(same, list[Customer], list[Customer], row) == (200, {"model_name": "m", **back})
        assert answer(same, Customer, Customer, row) == (200, {"model_name": "m", **back})
    assert {type(each) for each in seen} == {Customer}


def test_what_is_no_row_is_refused() -> None:
    fields = b'"fee":1,"city":"","isNew":true,"plan":"free","kind":1'
    for text, error in (
        (b'[{"age" :1,"age":2,%b}]' % fields, "'age' is there twice"),
        (b'{"age":1,"age":2,%b}' % fields, "'age' is there twice"),
        (b'[{"age":1,%b,"a":[[1]]}]' % fields, "rows[0]: unknown member 'a'"),
        (b'[{"age":1,%b}]' % fields.replace(b'"fee":1', b'"fee":NaN'), "rows[0].fee: NaN"),
        (b'[{"age":1,%b}]' % fields.replace(b'""', b'"\\ud800"'), "the body is not valid JSON"),
        (b'[{"age":1,%b}]' % fields.replace(b'""', b'"\xff"'), "the JSON is not valid UTF-8"),
        (b'{"age":1,%b},{}' % fields, "the body is not valid JSON"),
        (b"[" * 200, "the JSON is nested more than 100 deep"),
        (b"", "the body is empty"),
    ):
        status, document = answer(same, list[Customer], list[Customer], text)
        assert (status, document["error"][: len(error)]) == (400, error)


@pytest.mark.parametrize("cls", [make("Fees", **FEES) for make in (of_pydantic, of_dataclasses)])
def test_null_is_refused_where_a_class_does_not_take_none(cls: type) -> None:
    def model(rows: list[Any]) -> list[str]:
        return [str((row.fee, row.maybe)) for row in rows]

    beside: tuple[dict[str, Any], ...] = {}, {"maybe": None}, {"id": "a"}, {"maybe": math.inf}, {"parameters": {}}
    for body in ([{"n": 1, "fee": None}], *({"n": 1, "fee": None, **more} for more in beside)):
        status, document = answer(model, list[cls], list[str], body)  # type: ignore[valid-type]
        assert (status, document["error"].startswith("rows[0].fee: ")) == (400, True), document
    row = {"n": 1, "fee": 2, "maybe": None}
    assert answer(model, list[cls], list[str], row) == (200, {"model_name": "m", "output_0": "(2.0, None)"})  # type: ignore[valid-type]


@pytest.mark.parametrize("body", [{"n": 1.0}, [{"n": 1.0}]])
def test_one_object_is_a_row_of_which_the_class_decides_as_in_a_list(body: Any) -> None:
    expected = (400, {"error": "rows[0].n: expected int, got 1.0"})
    assert answer(same, list_of(of_dataclasses("Counted", n=int)), Any, body) == expected


def test_null_is_no_list_of_a_row() -> None:
    def model(rows: list[Any]) -> list[str]:
        return [str(row.fees) for row in rows]

    cls = list_of(of_dataclasses("Lists", fees=list[float]))
    for body in ({"fees": None}, [{"fees": None}]):
        assert answer(model, cls, list[str], body) == (400, {"error": "rows[0].fees: expected array, got None"})
    for fees in (None, [None], [1.5, None]):
        expected = (400, {"error": "rows[0].fees: expected a value, got null"})
        assert answer(model, cls, list[str], {"fees": fees, "id": "a"}) == expected


def show_lists(rows: list[Any]) -> list[str]:
    return [f"{row.scores} {row.tags}" for row in rows]


@pytest.mark.parametrize("make", [of_dataclasses, of_msgspec, of_pydantic])
def test_one_object_is_a_row_unless_a_value_has_a_list_too_many(make: Any) -> None:
    only, named = list_of(make("Lists", **LISTS)), list_of(make("Named", name=str, **LISTS))
    for scores, tags in (([], []), ([1.5], []), ([1.5, 2.5], ["a"])):
        row, shown = {"scores": scores, "tags": tags}, {"model_name": "m", "output_0": f"{scores} {tags}"}
        for cls, whole in ((only, row), (named, {"name": "a", **row})):
            assert answer(show_lists, cls, list[str], whole) == (200, shown)
            assert answer(show_lists, cls, list[str], {**whole, "id": "a"}) == (200, {"id": "a", **shown})
            assert answer(show_lists, cls, list[str], [whole]) == (200, [{"output_0": shown["output_0"]}])
            columns = {name: [value] for name, value in whole.items()}
            assert answer(show_lists, cls, list[str], columns) == (200, shown)
    later = {"scores": [[1.5], None], "tags": [[], []]}  # columns: the null is in the second row
    status, document = answer(show_lists, only, list[str], later)
    assert (status, "rows[0]" in document["error"]) == (400, False)
    two = {"scores": [[1.5], [2.5]], "tags": [[], []]}
    assert answer(show_lists, only, list[str], two) == (200, {"model_name": "m", "output_0": ["[1.5] []", "[2.5] []"]})
    none: dict[str, Any] = {"name": [], "scores": [], "tags": []}
    assert answer(show_lists, named, list[str], none) == (200, {"model_name": "m", "output_0": []})


@pytest.mark.parametrize("wrong", [{"scores": [None]}, {"scores": ["NaN"]}, {"counts": [1.0]}, {"flags": [1]}, {"counts": 1}])
def test_a_class_decides_what_stands_in_the_lists_of_one_object(wrong: dict[str, Any]) -> None:
    cls = list_of(of_dataclasses("Lists", scores=list[float], counts=list[int], flags=list[bool]))
    row = {"scores": [1.5], "counts": [1], "flags": [True], **wrong}
    status, document = answer(lambda rows: [1.0], cls, list[float], row)
    assert (status, document["error"].startswith(f"rows[0].{next(iter(wrong))}")) == (400, True)
    assert answer(lambda rows: [1.0], cls, list[float], [row]) == (status, document)


@pytest.mark.parametrize("value", ["41", True])
def test_pydantic_converts_what_is_not_strict(value: Any) -> None:
    for body in ({"n": value}, [{"n": value}]):
        status, document = answer(lambda rows: [row.n for row in rows], list_of(Converted), list[int], body)
        assert (status, document["output_0"] if isinstance(document, dict) else document[0]["output_0"]) == (200, int(value))
        more = [{"n": 1, "exact": value}] if isinstance(body, list) else {"n": 1, "exact": value}
        assert answer(lambda rows: [row.n for row in rows], list_of(Converted), list[int], more)[0] == 400


def test_rows_have_no_binary_data() -> None:
    server = serve_rows(list[Customer], list[Customer])
    for body in (b"[]" + json.dumps(ADA).encode(), [ADA], ADA):
        refused = post(server, "generate", body, [("Inference-Header-Content-Length", "2")])
        assert (refused.status, b"a flat object has no binary data" in refused.body) == (400, True)


def test_how_many_values_there_may_be() -> None:
    """Fields that are left to their defaults count too."""
    too_wide = "the rows have more than 100000 values, as each has 30 fields: use infer"
    cases: list[tuple[Any, dict[str, Any], int, str]] = [
        (Plain, {"value": 1.0, "label": ","}, 50_000, "the object has more than 100000 values: use infer"),
        (Wide, {}, 3_333, too_wide),
        (WideOfPydantic, {}, 3_333, too_wide),
    ]
    for cls, row, most, error in cases:
        server = serve_rows(list_of(cls), list[float], lambda rows: [1.0])
        assert post(server, "generate", [row] * most).status == 200
        refused = post(server, "generate", [row] * (most + 1))
        assert (refused.status, json.loads(refused.body)) == (400, {"error": error})


def test_columns_left_to_defaults_of_very_many_rows_are_refused() -> None:
    server = serve_rows(list_of(Wide), list[float], lambda rows: [float(len(rows))])
    columns = {f"f{index}": np.zeros(3_334, np.int64) for index in range(3)}
    assert server.infer_sync("m", columns)["output_0"] == [3_334]
    assert server.infer_sync("m", {"f0": np.zeros(3_333, np.int64)})["output_0"] == [3_333]
    text = "3334 rows of Wide have 30 fields, of which 2 came: send more of their columns, or fewer rows"
    with pytest.raises(InferenceError, match=exactly(text)):
        server.infer_sync("m", {"f0": columns["f0"], "f1": columns["f1"]})


class TypedCounts(TypedDict, total=False):
    n: int
    maybe: int | None
    each: list[int]


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**30])
@pytest.mark.parametrize("cls", [of_pydantic("Counts", **COUNTS), TypedCounts, of_dataclasses("Counts", n=int)])
def test_a_whole_number_that_no_column_holds_is_refused_without_columns_too(cls: type, number: int) -> None:
    rows: list[dict[str, Any]] = [{"n": 1}, {"n": number}]
    if not dataclasses.is_dataclass(cls):
        rows = [*rows, {"n": 1, "maybe": number}, {"n": 1, "maybe": None}, {"n": 1, "each": [number]}]
    server = serve_rows(list[cls], list[float], lambda _: [1.0])  # type: ignore[valid-type]
    assert [post(server, "generate", [row]).status for row in rows] == [400 if str(number) in str(row) else 200 for row in rows]
    expected = f"rows[1].n: {number} is out of range for INT64: expected {-(2**63)} to {2**63 - 1}"
    assert answer(lambda _: [1.0], list[cls], list[float], rows[:2]) == (400, {"error": expected})  # type: ignore[valid-type]
    assert answer(lambda _: [1.0], list[cls], list[float], rows[1])[0] == 400  # type: ignore[valid-type]


class Color(enum.Enum):
    RED = 1


class Colors(pydantic.BaseModel):
    color: Annotated[int, pydantic.AfterValidator(lambda value: Color(value))]


@pytest.mark.parametrize("row", [{"color": 1}, [{"color": 1}]])
def test_what_a_validator_makes_of_a_whole_number_is_its_own(row: Any) -> None:
    told = answer(lambda rows: [row.color.name for row in rows], list[Colors], list[str], row)
    assert told == (200, [{"output_0": "RED"}] if isinstance(row, list) else {"model_name": "m", "output_0": "RED"})


LEAP = datetime(2024, 2, 29)


def note_moments() -> tuple[InferenceServer, list[Any]]:
    seen: list[Any] = []

    def note(rows: Any) -> list[float]:
        seen.extend((each.at.replace(tzinfo=None), each.maybe) for each in rows)
        return [1.0] * len(rows)

    return serve_rows(list_of(Moments), list[float], note), seen


def test_dates_among_json_texts_are_read_as_those_of_any_column() -> None:
    server, seen = note_moments()

    def send(at: list[str], maybe: str) -> Answer:
        return post(server, "infer", {"inputs": [pd_json("at", *at), pd_json("maybe", *[maybe] * len(at))]})

    assert send(['"20240229"'], "null").status == 200
    assert send(['"2024-02-29"'], '"2024-02-29"').status == 200
    assert send(["0", '"20240229"'], "null").status == 200
    assert seen == [(LEAP, None), (LEAP, LEAP), (datetime(1970, 1, 1), None), (LEAP, None)]
    finer = '"2024-02-29T12:30:00.1234567"'
    for at, maybe, text in (
        (['"2024-02-29"'], finer, b"to the microsecond at most"),
        (["0", '"2024"'], "null", b"element 1 is"),
        (["0", finer], "null", b"element 1 is"),
        (["null", '"20240229"'], "null", b"rows[0].at"),
    ):
        refused = send(at, maybe)
        assert (refused.status, text in refused.body) == (400, True)


TEXTS = [
    *("20240229", "2024-02-29", "2024-02-29T00:00", "2024-02-29 12:30:00.5+01:00", "20240229T123000Z", "2024-02-29T12:30:00.123456000"),
    *("2024", "0", "1709164800", "1709164800.5", "-1", "soon", "", "2024-02-30", "NaT"),
    *("2024-02-29t12:30:00", "2024-02-29T12:30:00z", "2024-02-29T12:30:00.1234560000", "2024-02-29T12:30:00.1234567"),
]


@pytest.mark.parametrize(
    ("cls", "name", "more"),
    [
        (Moments, "at", {}),
        (Moments, "maybe", {"at": "2024-02-29"}),
        (Moment, "at", {}),
        (Days, "at", {"maybe": "2024-02-29"}),
        (Days, "maybe", {"at": "2024-02-29"}),
        *((day, "at", {}) for day in DAYS),
    ],
)
def test_a_text_is_the_same_date_in_a_list_in_one_object_and_in_infer(cls: Any, name: str, more: dict[str, str]) -> None:
    seen: list[Any] = []

    def note(rows: list[Any]) -> list[float]:
        seen.append(getattr(rows[0], name))
        return [1.0]

    server = serve_rows(list[cls], list[float], note)
    for text in TEXTS:
        row = {**more, name: text}
        inputs = [{"name": each, "datatype": "BYTES", "shape": [1], "data": [value]} for each, value in row.items()]
        asked: list[tuple[str, Any]] = [("infer", {"inputs": inputs}), ("generate", [row]), ("generate", row)]
        answers = [post(server, *each) for each in asked]
        status = answers[0].status
        assert [each.status for each in answers] == [status] * 3, text
        assert len(seen) == (3 if status == 200 else 0), text
        assert all(each == seen[0] for each in seen), text
        assert status == 200 or f"rows[0].{name}: " in json.loads(answers[1].body)["error"]
        seen.clear()


def test_the_error_for_a_text_that_is_no_date_names_its_row_and_field() -> None:
    server, seen = note_moments()
    rows: list[dict[str, Any]] = [{"at": 0, "maybe": None}, {"at": "20240229", "each": ["20240229", 0]}]
    for wrong, where in (({"at": "2024"}, "at"), ({"at": 0, "each": ["20240229", "2024"]}, "each")):
        expected = f"rows[2].{where}: expected an ISO 8601 date and time, to the microsecond at most, got '2024'"
        refused = post(server, "generate", [*rows, wrong])
        assert (refused.status, json.loads(refused.body)) == (400, {"error": expected})
    assert post(server, "generate", rows).status == 200
    assert seen == [(datetime(1970, 1, 1), None), (LEAP, None)]


@pytest.mark.parametrize(
    ("cls", "result", "expected"),
    [
        (Score, Known("a", 1.0), {"label": "a", "value": 1.0, "count": 0}),
        (Score, Score(np.str_("a"), 0.5), {"label": "a", "value": 0.5, "count": 0}),
        (Score, Plain(1.0, "a"), None),
        (Tagged, Tagged(1.0), {"value": 1.0}),
        (Plain, Plain(1, "\u2028"), {"value": 1.0, "label": "\u2028"}),
        (Named, Named(1), {"id": 1}),
    ],
)
def test_a_result_is_the_same(cls: Any, result: Any, expected: Any) -> None:
    """What stands in its fields: WRONG and EQUAL of test_rows_leave.py."""
    status, document = answer(lambda _: [result], list[Score], list[cls], [{"label": "", "value": 0}])
    assert (status, document) == (200, [expected]) if expected is not None else status == 500
    status, document = answer(lambda _: result, Score, cls, {"label": "", "value": 0, "count": 1})
    if cls is Named:
        assert (status, document["error"][:24]) == (400, "the output 'id' has the ")
    else:
        assert (status, document) == (200, {"model_name": "m", **expected}) if expected is not None else status == 500


def test_a_result_of_another_number_of_rows() -> None:
    row = {"label": "a", "value": 1.0, "count": 1}
    both = {"label": ["a", "b"], "value": [1.0, 2.0], "count": [1, 0]}
    for number in (1, 3):
        assert answer(lambda _: [Score("a", 1, 1)] * 2, list[Score], list[Score], [row] * number) == (200, [row] * 2)
    assert answer(lambda _: [Score("a", 1, 1), Score("b", 2)], list[Score], list[Score], row) == (200, {"model_name": "m", **both})
    assert answer(lambda _: [], list[Score], list[Score], [row]) == (200, [])


def test_what_is_no_json_is_refused_in_a_list_too() -> None:
    for row, text in (
        (b'{"scores": [1.5], "tags": [NaN]}', "tags: NaN"),
        (b'{"scores": [1.5], "tags": ["a", Infinity]}', "tags: NaN"),
        (b'{"scores": [1e999], "tags": ["a"]}', "scores: number out of range"),
        (b'{"scores": [1, -1e999], "tags": ["a"]}', "scores: number out of range"),
    ):
        for body in (row, b"[%b]" % row, b'[{"scores": [1], "tags": ["a"]}, %b]' % row):
            status, document = answer(same, list_of(Lists), list_of(Lists), body)
            assert status == 400
            assert text in document["error"] or body == row


def test_pydantic_says_which_of_many_rows_is_wrong() -> None:
    status, document = answer(same, list_of(Converted), None, [{"n": 1}] * 2_500 + [{"n": "x"}])
    assert (status, document["error"].partition(",")[0]) == (400, "rows[2500].n: input should be a valid integer")


CODES = {"CH": 1}


@dataclasses.dataclass
class Place:
    country: str

    def __post_init__(self) -> None:
        self.code = CODES[self.country]


class PlaceOfMsgspec(msgspec.Struct):
    country: str

    def __post_init__(self) -> None:
        CODES[self.country]


class PlaceOfPydantic(pydantic.BaseModel):
    country: str

    @pydantic.field_validator("country")
    @classmethod
    def find_code(cls, value: str) -> str:
        return str(CODES[value])


BATCH: dict[str, Any] = {"max_batch_size": 4}


@pytest.mark.parametrize(
    ("cls", "options"), [(Place, {"cache": ResponseCache(1 << 20)}), (Place, BATCH), (PlaceOfMsgspec, {}), (PlaceOfPydantic, {})]
)
def test_what_a_class_raises_is_the_failure_of_the_model(cls: Any, options: Any, caplog: pytest.LogCaptureFixture) -> None:
    server = serve_rows(list[cls], list[float], lambda rows: [1.0] * len(rows), **options)
    server.observe(lambda _: None)
    column = {"name": "country", "datatype": "BYTES", "shape": [1], "data": ["XX"]}
    bodies: list[tuple[str, Any]] = [("infer", {"inputs": [column]}), ("generate", [{"country": "XX"}]), ("generate", {"country": "XX"})]
    for number, (path, body) in enumerate([*bodies, ("generate_stream", {"country": "XX"})], 1):
        answer = post(server, path, body)
        assert (answer.status, answer.body) == (500, b'{"error":"model \'m\' failed: see the server\'s log"}')
        stats = get(server, "/models/m/stats")[1]["model_stats"][0]["inference_stats"]
        assert (stats["success"]["count"], stats["fail"]["count"]) == (0, number)
    assert {record.getMessage().splitlines()[0] for record in caplog.records} == {"model 'm' failed on a request"}
    assert generate(server, [{"country": "CH"}]) == [{"output_0": 1.0}]
    server.stop()


@dataclasses.dataclass
class FieldsOfLists:
    counts: list[int]
    flags: list[bool]
    shares: list[float]
    names: list[str]
    share: float | None = None
    day: date | None = None


def _show_lists(rows: list[FieldsOfLists]) -> list[str]:
    return [repr(dataclasses.astuple(row)) for row in rows]


FITTING: dict[str, Any] = {"counts": [[1]], "flags": [[True]], "shares": [[0.5]], "names": [["a"]]}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("counts", [each]) for each in ([1.5], [True], ["3"], [None], [2**63])),
        *(("flags", [each]) for each in (["false"], [2], [1.0], [None])),
        *(("shares", [each]) for each in (["1.5"], [True])),
        *(("names", [each]) for each in ([1], [None])),
        ("counts", [[1], [1, 2]]),
    ],
)
def test_a_list_for_a_field_of_rows_is_not_converted(name: str, value: list[Any]) -> None:
    """As by the other ways in: neither lists of lists nor a None make texts, booleans and fractions something else."""
    server = InferenceServer()
    server.register("m", _show_lists)
    with pytest.raises(InferenceError) as refused:
        server.infer_sync("m", {**{each: there * len(value) for each, there in FITTING.items()}, name: value})
    assert (refused.value.status, name in str(refused.value)) == (400, True)


def test_what_fits_a_field_of_rows_is_taken_beside_none() -> None:
    server = InferenceServer()
    server.register("m", _show_lists)
    inputs = {**{each: there * 2 for each, there in FITTING.items()}, "share": [1.5, None], "day": ["2026-01-31", None]}
    rows = ["([1], [True], [0.5], ['a'], 1.5, datetime.date(2026, 1, 31))", "([1], [True], [0.5], ['a'], None, None)"]
    assert server.infer_sync("m", inputs)["output_0"].tolist() == [row.encode() for row in rows]
