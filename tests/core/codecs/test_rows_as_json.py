"""Rows that come and leave as JSON objects: with and without columns in between, each request has the same answer."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, TypedDict
from uuid import UUID

import msgspec
import numpy as np
import pydantic
import pytest
from msgspec import Meta

from oip_asgi import InferenceServer, OIPApp, ResponseCache
from tests.support.ways import Answer, Request, over_asgi


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


@dataclasses.dataclass
class Entry:
    at: datetime
    weights: list[float]
    note: str | None


class Score(msgspec.Struct):
    label: str
    value: float
    count: int = 0


class Known(Score):
    more: int = 1


class Tagged(msgspec.Struct, tag="t", omit_defaults=True):
    value: float = 1.0


@dataclasses.dataclass
class Doubled:
    value: float

    def __post_init__(self) -> None:
        self.value *= 2


@dataclasses.dataclass
class Plain:
    value: float
    label: str


@dataclasses.dataclass
class Dated:
    since: date | None
    note: str | None


@dataclasses.dataclass
class Named:
    id: int


ADA = {"age": 3, "fee": 1.5, "city": "Ulm", "isNew": True, "plan": "free", "kind": 1}


def served(function: Callable[[Any], Any], takes: Any, gives: Any, **options: Any) -> Callable[..., Answer]:
    def model(rows: Any) -> Any:
        return function(rows)

    model.__annotations__ = {"rows": takes, "return": gives}
    server = InferenceServer()
    server.register("m", model, **options)
    return lambda body, *headers: over_asgi(OIPApp(server), "")(
        Request("POST", "/models/m/generate", headers, body if isinstance(body, bytes) else json.dumps(body).encode())
    )


def answer(function: Callable[[Any], Any], takes: Any, gives: Any, body: Any) -> tuple[int, Any]:
    """The status and the document, which are the same with a cache: that makes columns of the rows, and rows of columns."""
    one = served(function, takes, gives)(body)
    other = served(function, takes, gives, cache=ResponseCache(1 << 20))(body)
    assert (one.status, one.body) == (other.status, other.body)
    return one.status, json.loads(one.body)


def test_a_date_that_is_missing_is_null_also_in_an_answer() -> None:
    rows: list[dict[str, str | None]] = [{"since": "2024-02-29", "note": "NaT"}, {"since": None, "note": None}]
    assert answer(lambda rows: rows, list[Dated], list[Dated], rows) == (200, rows)
    for row in rows:
        assert answer(lambda rows: rows, list[Dated], list[Dated], row) == (200, {"model_name": "m", **row})
        assert answer(lambda one: one, Dated, Dated, row) == (200, {"model_name": "m", **row})


@pytest.mark.parametrize(
    ("more", "came"),
    [
        ({}, {}),
        ({"city": 'a":b\\ :, \u00fc\u2028\U0001f600'}, {}),
        ({"fee": 7}, {"fee": 7.0}),
        ({"fee": 2**53 + 1}, {"fee": 2.0**53}),
        ({"fee": -0.0}, {}),
        ({"fee": 1e300}, {}),
        ({"age": 2**63 - 1, "kind": 2, "plan": "paid", "isNew": False}, {}),
    ],
)
def test_a_row_comes_back(more: dict[str, Any], came: dict[str, Any]) -> None:
    row, same = {**ADA, **more}, {**ADA, **more, **came}
    seen: list[Any] = []

    def note(rows: list[Any]) -> list[Any]:
        seen.extend(rows)
        return rows

    assert answer(note, list[Customer], list[Customer], [row, ADA]) == (200, [same, ADA])
    assert answer(lambda rows: rows, list[Customer], list[Customer], row) == (200, {"model_name": "m", **same})
    assert answer(lambda one: one, Customer, Customer, row) == (200, {"model_name": "m", **same})
    assert {type(each) for each in seen} == {Customer}
    assert [math.copysign(1, each["fee"]) for each in answer(lambda rows: rows, list[Customer], list[Customer], [row])[1]] == [
        math.copysign(1, same["fee"])
    ]


@pytest.mark.parametrize(
    ("text", "status", "error"),
    [
        (b'[{"age" :1,"age":2,"fee":1,"city":"","isNew":true,"plan":"free","kind":1}]', 400, "'age' is there twice"),
        (b'[{"age":1,"age":2,"fee":1,"city":"","isNew":true,"plan":"free","kind":1}]', 400, "'age' is there twice"),
        (b'{"age":1,"age":2,"fee":1,"city":"","isNew":true,"plan":"free","kind":1}', 400, "'age' is there twice"),
        (b'[{"age":1,"fee":1,"city":"","isNew":true,"plan":"free","kind":1,"a":[[1]]}]', 400, "rows[0]: unknown member 'a'"),
        (b'[{"age":1,"fee":1,"city":"","isNew":true,"plan":"free"}]', 400, "rows[0]: missing 'kind'"),
        (b'[{"age":-1,"fee":1,"city":"","isNew":true,"plan":"free","kind":1}]', 400, "rows[0].age: expected int >= 0, got -1"),
        (b'[{"age":1,"fee":NaN,"city":"","isNew":true,"plan":"free","kind":1}]', 400, "rows[0].fee: NaN"),
        (b'[{"age":1,"fee":1,"city":"\\ud800","isNew":true,"plan":"free","kind":1}]', 400, "the body is not valid JSON"),
        (b'[{"age":1,"fee":1,"city":"\xff","isNew":true,"plan":"free","kind":1}]', 400, "the JSON is not valid UTF-8"),
        (b'{"age":1,"fee":1,"city":"","isNew":true,"plan":"free","kind":1},{}', 400, "the body is not valid JSON"),
        (b"[" * 200, 400, "the JSON is nested more than 100 deep"),
        (b"", 400, "the body is empty"),
    ],
)
def test_what_is_no_row_is_refused(text: bytes, status: int, error: str) -> None:
    came, document = answer(lambda rows: rows, list[Customer], list[Customer], text)
    assert (came, document["error"][: len(error)]) == (status, error)


class Fees(pydantic.BaseModel):
    n: int
    fee: float
    maybe: float | None = None


@dataclasses.dataclass
class PlainFees:
    n: int
    fee: float
    maybe: float | None = None


@pytest.mark.parametrize("cls", [Fees, PlainFees])
def test_null_is_refused_where_a_class_does_not_take_none(cls: type) -> None:
    def model(rows: list[Any]) -> list[str]:
        return [str((row.fee, row.maybe)) for row in rows]

    beside: tuple[dict[str, Any], ...] = {}, {"maybe": None}, {"id": "a"}, {"maybe": math.inf}, {"parameters": {}}
    for body in ([{"n": 1, "fee": None}], *({"n": 1, "fee": None, **more} for more in beside)):
        status, document = answer(model, list[cls], list[str], body)  # type: ignore[valid-type]
        assert (status, document["error"].startswith("rows[0].fee: ")) == (400, True), document
    for number in (1, 1.0):  # which is a whole number in a column
        row = {"n": number, "fee": 2, "maybe": None}
        assert answer(model, list[cls], list[str], row) == (200, {"model_name": "m", "output_0": "(2.0, None)"})  # type: ignore[valid-type]


def test_null_is_no_list_of_a_row() -> None:
    def model(rows: list[Any]) -> list[str]:
        return [str(row.fees) for row in rows]

    cls = dataclasses.make_dataclass("Lists", [("fees", list[float])])
    assert answer(model, list[cls], list[str], {"fees": None}) == (400, {"error": "rows[0].fees: expected a value, got None"})  # type: ignore[valid-type]


class Converted(pydantic.BaseModel):
    n: int
    exact: int = pydantic.Field(7, strict=True)


@pytest.mark.parametrize("value", ["41", True])
def test_pydantic_converts_what_is_not_strict(value: Any) -> None:
    for body in ({"n": value}, [{"n": value}]):
        status, document = answer(lambda rows: [row.n for row in rows], list[Converted], list[int], body)
        assert (status, document["output_0"] if isinstance(document, dict) else document[0]["output_0"]) == (200, int(value))
        more = [{"n": 1, "exact": value}] if isinstance(body, list) else {"n": 1, "exact": value}
        assert answer(lambda rows: [row.n for row in rows], list[Converted], list[int], more)[0] == 400


def test_rows_have_no_binary_data() -> None:
    ask, header = served(lambda rows: rows, list[Customer], list[Customer]), ("Inference-Header-Content-Length", "2")
    for body in (b"[]" + json.dumps(ADA).encode(), [ADA], ADA):
        refused = ask(body, header)
        assert (refused.status, json.loads(refused.body)["error"]) == (
            400,
            "a flat object has no binary data: leave Inference-Header-Content-Length out, or send inputs",
        )


def test_an_object_with_a_limit_of_values_has_it_as_rows_too() -> None:
    ask = served(lambda rows: rows[:1], list[Plain], list[Plain])
    assert ask([{"value": 1.0, "label": ","}] * 50_000).status == 200
    refused = ask([{"value": 1.0, "label": ","}] * 50_001)
    assert (refused.status, refused.body) == (400, b'{"error":"the object has more than 100000 values: use infer"}')


def test_dates_lists_and_missing_values_come_as_objects() -> None:
    seen: list[Any] = []
    rows = [{"at": "2024-02-29T12:30:00", "weights": [1, 2.5], "note": None}, {"at": "2024-02-29T00:00:01", "weights": [0, 1], "note": ":"}]

    def note(came: list[Entry]) -> list[float]:
        seen.append(came)
        return [each.weights[0] for each in came]

    assert answer(note, list[Entry], list[float], rows) == (200, [{"output_0": 1.0}, {"output_0": 0.0}])
    assert (
        seen[0]
        == seen[1]
        == [Entry(datetime(2024, 2, 29, 12, 30), [1.0, 2.5], None), Entry(datetime(2024, 2, 29, 0, 0, 1), [0.0, 1.0], ":")]
    )


class Counts(pydantic.BaseModel):
    n: int
    maybe: int | None = None
    each: list[int] = []


class TypedCounts(TypedDict, total=False):
    n: int
    maybe: int | None
    each: list[int]


@dataclasses.dataclass
class PlainCounts:
    n: int


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**30])
@pytest.mark.parametrize("cls", [Counts, TypedCounts, PlainCounts])
def test_a_whole_number_that_no_column_holds_is_refused_without_columns_too(cls: type, number: int) -> None:
    rows: list[dict[str, Any]] = [{"n": 1}, {"n": number}]
    if cls is not PlainCounts:
        rows = [*rows, {"n": 1, "maybe": number}, {"n": 1, "maybe": None}, {"n": 1, "each": [number]}]
    ask = served(lambda _: [1.0], list[cls], list[float])  # type: ignore[valid-type]
    assert [ask([row]).status for row in rows] == [400 if str(number) in str(row) else 200 for row in rows]
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


class Moments(pydantic.BaseModel):
    at: datetime
    maybe: datetime | None = None
    each: list[datetime] = []


LEAP = datetime(2024, 2, 29)


class Moment(msgspec.Struct):
    at: datetime


@pytest.mark.parametrize("cls", [Moment, Moments])
def test_a_date_finer_than_microseconds_is_refused_without_columns_too(cls: type) -> None:
    text = "2024-02-29T12:30:00.1234567"
    rows: list[dict[str, Any]] = [{"at": text[:-1]}, {"at": f"{text[:-1]}000Z"}, {"at": text}, {"at": f"{text[:-1]}001Z"}]
    if cls is Moments:
        rows = [*rows, {"at": text[:-1], "maybe": text}, {"at": text[:-1], "maybe": None}, {"at": text[:-1], "each": [text]}]
    for body in (rows, [[each] for each in rows]):
        ask = served(lambda _: [1.0], list[cls], list[float])  # type: ignore[valid-type]
        assert [ask(each).status for each in body] == [400 if "67" in str(each) or "001" in str(each) else 200 for each in rows]
    expected = "rows[1].at: expected an ISO 8601 date and time, to the microsecond at most, got '2024-02-29T12:30:00.1234567'"
    assert answer(lambda _: [1.0], list[cls], list[float], [rows[0], rows[2]]) == (400, {"error": expected})  # type: ignore[valid-type]


def test_dates_among_json_texts_are_read_as_those_of_any_column() -> None:
    server, seen = InferenceServer(), []

    def note(rows: list[Moments]) -> list[float]:
        seen.extend(rows)
        return [1.0]

    server.register("m", note)
    ask = over_asgi(OIPApp(server), "")
    texts = {"datatype": "BYTES", "shape": [1], "parameters": {"content_type": "pd_json"}}

    def send(at: str, maybe: str) -> Answer:
        inputs = [{"name": "at", "data": [at], **texts}, {"name": "maybe", "data": [maybe], **texts}]
        return ask(Request("POST", "/models/m/infer", (), json.dumps({"inputs": inputs}).encode()))

    assert send('"20240229"', "null").status == 200
    assert send('"2024-02-29"', '"2024-02-29"').status == 200
    assert [(each.at, each.maybe) for each in seen] == [(LEAP, None), (LEAP, LEAP)]
    refused = send('"2024-02-29"', '"2024-02-29T12:30:00.1234567"')
    assert refused.status == 400
    assert b"a datetime.datetime has microseconds at most, but this is finer" in refused.body


def test_texts_beside_other_json_values_are_dates_too() -> None:
    seen: list[Any] = []

    def note(rows: list[Moments]) -> list[float]:
        seen.extend(rows)
        return [1.0] * len(rows)

    server = InferenceServer()
    server.register("m", note)
    ask = over_asgi(OIPApp(server), "")

    def send(*texts: str) -> Answer:
        tensor = {"name": "at", "datatype": "BYTES", "shape": [len(texts)], "parameters": {"content_type": "pd_json"}, "data": texts}
        return ask(Request("POST", "/models/m/infer", (), json.dumps({"inputs": [tensor]}).encode()))

    assert send("0", '"20240229"').status == 200
    assert [each.at.replace(tzinfo=None) for each in seen] == [datetime(1970, 1, 1), LEAP]
    for text in ('"2024"', '"2024-02-29T12:30:00.1234567"'):
        refused = send("0", text)
        assert (refused.status, b"element 1 is" in refused.body) == (400, True)
    refused = send("null", '"20240229"')
    assert (refused.status, b"rows[0].at" in refused.body) == (400, True)


TEXTS = [
    *("20240229", "2024-02-29", "2024-02-29T00:00", "2024-02-29 12:30:00.5+01:00", "20240229T123000Z", "2024-02-29T12:30:00.123456000"),
    *("2024", "0", "1709164800", "1709164800.5", "-1", "soon", "", "2024-02-30", "NaT"),
    *("2024-02-29t12:30:00", "2024-02-29T12:30:00z", "2024-02-29T12:30:00.1234560000", "2024-02-29T12:30:00.1234567"),
]


@dataclasses.dataclass
class Days:
    at: datetime
    maybe: datetime | None


class Day(msgspec.Struct):
    at: date


class DayOfPydantic(pydantic.BaseModel):
    at: date


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize(
    ("cls", "name", "more"),
    [
        (Moments, "at", {}),
        (Moments, "maybe", {"at": "2024-02-29"}),
        (Moment, "at", {}),
        (Days, "at", {"maybe": "2024-02-29"}),
        (Days, "maybe", {"at": "2024-02-29"}),
        (Day, "at", {}),
        (DayOfPydantic, "at", {}),
    ],
)
def test_a_text_is_the_same_date_in_a_list_in_one_object_and_in_infer(cls: Any, name: str, more: dict[str, str], text: str) -> None:
    seen: list[Any] = []

    def note(rows: list[Any]) -> list[float]:
        seen.append(getattr(rows[0], name))
        return [1.0]

    note.__annotations__ = {"rows": list[cls], "return": list[float]}
    server = InferenceServer()
    server.register("m", note)
    ask = over_asgi(OIPApp(server), "")
    row = {**more, name: text}
    inputs = [{"name": each, "datatype": "BYTES", "shape": [1], "data": [value]} for each, value in row.items()]
    infer, in_list, one = (
        ask(Request("POST", f"/models/m/{path}", (), json.dumps(body).encode()))
        for path, body in (("infer", {"inputs": inputs}), ("generate", [row]), ("generate", row))
    )
    assert {infer.status, in_list.status, one.status} in ({200}, {400})
    assert len(seen) == (3 if infer.status == 200 else 0)
    assert all(each == seen[0] for each in seen)
    if infer.status == 400:
        assert f"rows[0].{name}: " in json.loads(in_list.body)["error"]


def test_a_text_that_is_no_date_is_told_with_its_row_and_field() -> None:
    seen: list[Any] = []

    def note(rows: list[Any]) -> list[float]:
        seen.extend(rows)
        return [1.0] * len(rows)

    expected = "expected an ISO 8601 date and time, to the microsecond at most, got '2024'"
    ask = served(note, list[Moments], list[float])
    rows: list[dict[str, Any]] = [{"at": 0, "maybe": None}, {"at": "20240229", "each": ["20240229", 0]}]
    for wrong, where in (({"at": "2024"}, "at"), ({"at": 0, "each": ["20240229", "2024"]}, "each")):
        refused = ask([*rows, wrong])
        assert (refused.status, json.loads(refused.body)) == (400, {"error": f"rows[2].{where}: {expected}"})
    assert ask(rows).status == 200
    assert [each.at.replace(tzinfo=None) for each in seen] == [datetime(1970, 1, 1), LEAP]
    assert [each.replace(tzinfo=None) for each in seen[1].each] == [LEAP, datetime(1970, 1, 1)]


@pytest.mark.parametrize(
    ("cls", "result", "expected"),
    [
        (Score, Score("a", 5), {"label": "a", "value": 5.0, "count": 0}),
        (Score, Score("a", math.nan), {"label": "a", "value": None, "count": 0}),
        (Score, Score("a", math.inf), {"label": "a", "value": "Infinity", "count": 0}),
        (Score, Score("a", 1.0, 2**63), None),
        (Score, Score("a", 1.0, 2**64), None),
        (Score, Score("a", 1.0, -(2**63)), {"label": "a", "value": 1.0, "count": -(2**63)}),
        (Score, Score("a", 1.0, -(2**63) - 1), None),
        (Score, Score("a", 1.0, True), None),
        (Score, Score(1, 1.0), None),  # type: ignore[arg-type]
        (Score, Score(b"a", 1.0), None),  # type: ignore[arg-type]
        (Score, Score(UUID(int=1), 1.0), None),  # type: ignore[arg-type]
        (Score, Score(date(2024, 2, 29), 1.0), None),  # type: ignore[arg-type]
        (Score, Score(Decimal("1.5"), 1.0), None),  # type: ignore[arg-type]
        (Score, Score(msgspec.Raw(b'"a"'), 1.0), None),  # type: ignore[arg-type]
        (Score, Score(Plan.FREE, 1.0), {"label": "free", "value": 1.0, "count": 0}),  # type: ignore[arg-type]
        (Score, Score("\ud800", 1.0), None),
        (Score, Score(np.str_("a"), np.float32(0.5), np.int8(1)), {"label": "a", "value": 0.5, "count": 1}),  # type: ignore[arg-type]
        (Score, Known("a", 1.0), {"label": "a", "value": 1.0, "count": 0}),
        (Score, Plain(1.0, "a"), None),
        (Tagged, Tagged(1.0), {"value": 1.0}),
        (Doubled, Doubled(1.0), {"value": 2.0}),
        (Plain, Plain(1, "\u2028"), {"value": 1.0, "label": "\u2028"}),
        (Named, Named(1), {"id": 1}),
    ],
)
def test_a_result_is_the_same(cls: Any, result: Any, expected: Any) -> None:
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


ODD: list[Any] = [
    *(0, 1, -1, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 2**64, 10**400, True, 1.5, 1.0, -0.0, 1e308, math.nan, math.inf, -math.inf),
    *("", "a", "\u00e9\u2028", "\ud800", b"a", bytearray(b"a"), None, [], [1], (1.0,), {}, {"a": 1}, object(), 1j, Plan.FREE),
    *(
        datetime(2024, 2, 29),
        date(2024, 2, 29),
        Decimal(1),
        Decimal("1.5"),
        UUID(int=1),
        msgspec.UNSET,
        msgspec.Raw(b"1"),
        msgspec.Raw(b'"a"'),
    ),
    *(np.float32(0.1), np.float64(2.5), np.int64(3), np.bool_(True), np.str_("a"), np.array(2), np.array([1]), frozenset[int]()),
]


@pytest.mark.parametrize("name", Score.__struct_fields__)
def test_whatever_stands_in_a_field_of_a_result_is_the_same(name: str) -> None:
    for value in ODD:
        result = Score("a", 1.0)
        setattr(result, name, value)
        answer(lambda _, result=result: [result], list[Score], list[Score], [{"label": "", "value": 0, "count": 1}])  # type: ignore[misc]
