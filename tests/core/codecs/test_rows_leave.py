"""Rows leave as they were checked: what a field of a result holds is what its class says, or the model's failure, by every way out."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import json
import math
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from typing import Annotated, Any, Literal, TypedDict
from uuid import UUID

import attrs
import msgspec
import numpy as np
import pandas as pd
import pydantic
import pytest

from oip_asgi import InferenceError, InferenceResponse, InferenceServer, InvalidResponse, ResponseCache, Tensor
from tests.support.asking import ask, error, exactly, get, outputs
from tests.support.row_server import generate, list_of, of_dataclasses, of_msgspec, of_pydantic, post, serve_rows


class Plan(enum.Enum):
    FREE = "free"


Asked = of_dataclasses("Asked", x=(float, 0.0))

FIELDS: dict[str, tuple[Any, Any]] = {
    "flag": (bool, True), "flags": (list[bool], [True]), "count": (int, 1), "maybe": (int | None, None), "share": (float, 0.5),
    "shares": (list[float], [0.5]), "label": (str, "a"), "raw": (bytes, b"a"), "day": (date, date(2024, 1, 2)),
    "moment": (datetime, datetime(2024, 1, 2)), "plan": (Plan, Plan.FREE), "level": (Literal["low", "high"], "low"),
}  # fmt: skip
OF_PYDANTIC, OF_MSGSPEC, OF_DATACLASSES = CLASSES = [make("Fields", **FIELDS) for make in (of_pydantic, of_msgspec, of_dataclasses)]


def served(gives: Any, function: Callable[[Any], Any], takes: Any = list_of(Asked), **options: Any) -> InferenceServer:
    return serve_rows(takes, gives, function, **options)


def with_value(cls: Any, name: str, value: Any) -> Any:
    row = cls()
    setattr(row, name, value)  # which no class checks by itself
    return row


WRONG: list[tuple[str, Any]] = [
    *(("flag", value) for value in ("false", "no", "0", 0, 1, None, np.int64(0))),
    *(("flags", value) for value in (["false"], [0], [None], "no")),
    *(("count", value) for value in ("3", 1.5, 2.0, True, None, 2**63, np.timedelta64(5, "ns"), np.datetime64(1, "ns"))),
    *(("maybe", value) for value in ("3", 1.5, True)),
    *(("share", value) for value in ("1.5", True, None, 2**53 + 1)),
    *(("shares", value) for value in (["1.5"], [1, 2**53 + 1], (2**53 + 1,), [None])),
    *(("label", value) for value in (1, b"a", None, date(2024, 1, 2), UUID(int=1), Decimal("1.5"), msgspec.Raw(b'"a"'))),
    *(("label", value) for value in ([], object(), "\ud800")),
    *(("raw", value) for value in ("/w==", None)),
    *(("day", value) for value in (datetime(2024, 1, 2), "2024-01-02", None)),
    *(("moment", value) for value in (date(2024, 1, 2), "2024-01-02T00:00:00.1234567", pd.NaT, pd.Timestamp(1), None)),
    *(("plan", value) for value in ("paid", 1)),
    *(("level", value) for value in ("middle", None)),
]


@pytest.mark.parametrize(
    ("cls", "options"),
    [*((cls, {}) for cls in CLASSES), (OF_MSGSPEC, {"cache": ResponseCache(1 << 20)}), (OF_MSGSPEC, {"max_batch_size": 4})],
)
def test_what_does_not_fit_its_field_is_never_sent(cls: Any, options: Any) -> None:
    server = served(list[cls], lambda rows: [with_value(cls, *WRONG[int(row.x)]) for row in rows], **options)
    sent = []
    for index, wrong in [*enumerate(WRONG)][:: 5 if options else 1]:
        answers = [
            post(server, "generate", [{"x": index}]),
            post(server, "generate_stream", {"x": index}),
            ask(server, "m", x=[float(index)]),
        ]
        sent += [(wrong, each) for each in answers if (each.status, b"see the server's log" in each.body) != (500, True)]
        with pytest.raises(InferenceError, match="see the server's log"):
            server.infer_sync("m", [Asked(index)])
    assert not sent


EQUAL: list[tuple[str, Any, Any]] = [
    ("flag", np.bool_(False), False),
    ("count", np.int64(3), 3),
    ("count", -(2**63), -(2**63)),
    ("share", math.nan, None),
    ("share", math.inf, "Infinity"),
    ("share", 5, 5.0),
    ("share", np.float32(0.5), 0.5),
    ("share", 2**53, 2.0**53),
    ("shares", [1, 2.5], [1.0, 2.5]),
    ("shares", np.array([1.0, 2.5]), [1.0, 2.5]),
    ("label", np.str_("b"), "b"),
    ("label", Plan.FREE, "free"),
    ("maybe", 2**53 + 1, 2**53 + 1),
    ("plan", Plan.FREE, "free"),
]


@pytest.mark.parametrize(("cls", "options"), [*((cls, {}) for cls in CLASSES), (OF_MSGSPEC, {"cache": ResponseCache(1 << 20)})])
def test_what_has_an_equal_is_sent_as_that(cls: Any, options: Any) -> None:
    server = served(list[cls], lambda rows: [with_value(cls, *EQUAL[int(row.x)][:2]) for row in rows], **options)
    for index, (name, _, sent) in enumerate(EQUAL):
        data = outputs(ask(server, "m", {"outputs": [{"name": name}]}, x=[float(index)]))[name]
        assert (name, data if name == "shares" else data[0]) == (name, sent)
        assert generate(server, [{"x": index}])[0][name] == sent


class Score(pydantic.BaseModel):
    value: float = pydantic.Field(serialization_alias="share")
    plan: Annotated[str, pydantic.PlainSerializer(str.upper)] = "free"
    each: list[Annotated[float, pydantic.PlainSerializer(lambda value: round(value, 1), return_type=float)]] = [1.25]
    when: datetime = datetime(2024, 1, 2, tzinfo=UTC)
    raw: bytes = b"a"
    count: int | None = None

    @pydantic.computed_field(alias="endOfDay")  # type: ignore[prop-decorator]
    @property
    def end_of_day(self) -> datetime:
        return self.when.replace(hour=23)

    @pydantic.field_serializer("value")
    def write_value(self, value: float) -> str:
        return f"{value:.2f}"


def test_pydantic_says_what_leaves() -> None:
    server = served(list[Score], lambda rows: [Score(value=0.256, raw=b"\xff") for _ in rows])
    specs = {spec["name"]: (spec["datatype"], spec["shape"]) for spec in get(server, "/models/m")[1]["outputs"]}
    texts = dict.fromkeys(("share", "plan", "when", "raw", "endOfDay"), ("BYTES", [-1]))
    assert specs == {**texts, "each": ("FP64", [-1, -1]), "count": ("INT64", [-1])}
    assert outputs(ask(server, "m", {"outputs": [{"name": name} for name in specs if name != "raw"]}, x=[1.0])) == {
        "share": ["0.26"],
        "plan": ["FREE"],
        "each": [1.2],
        "when": ["2024-01-02T00:00:00+00:00"],
        "count": ["null"],
        "endOfDay": ["2024-01-02T23:00:00+00:00"],
    }
    assert server.infer_sync("m", [Asked()])["raw"].tolist() == [b"\xff"]


def _compute(annotation: Any, value: Any) -> Any:
    return pydantic.computed_field(return_type=annotation)(property(lambda _: value))


class Computed(pydantic.BaseModel):
    plan = _compute(Plan, Plan.FREE)
    maybe = _compute(Plan | None, None)
    level = _compute(Literal["low"], "low")
    share = _compute(float | None, 0.5)
    each = _compute(list[int], [1, 2])
    euros = _compute(Decimal, Decimal("1.5"))
    code = _compute(UUID, UUID(int=1))
    choice = _compute(Literal["a", None], None)


def test_what_pydantic_computes_leaves_by_its_type() -> None:
    server = served(list[Computed], lambda rows: [Computed() for _ in rows])
    of_texts = {"euros": "1.5", "code": str(UUID(int=1)), "choice": None}
    row = {"plan": "free", "maybe": None, "level": "low", "share": 0.5, "each": [1, 2], **of_texts}
    assert generate(server, [{"x": 1.0}]) == [row]
    assert {name: data[0] for name, data in outputs(ask(server, "m", x=[1.0])).items()} == {
        **row,
        "maybe": "null",
        "each": 1,
        "choice": "null",
    }


def test_what_writes_a_text_is_called_once_for_each_row() -> None:
    called: list[float] = []

    class Noted(pydantic.BaseModel):
        value: float

        @pydantic.field_serializer("value")
        def write_value(self, value: float) -> str:
            called.append(value)
            return f"{value:.1f}"

    server = served(list[Noted], lambda rows: [Noted(value=number) for number, _ in enumerate(rows)])
    assert generate(server, [{}, {}]) == [{"value": "0.0"}, {"value": "1.0"}]
    assert called == [0.0, 1.0]


class Plain(pydantic.BaseModel):
    value: float
    account: str = pydantic.Field(default="internal", exclude=True)

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def percent(self) -> float:
        return self.value * 100

    @pydantic.field_serializer("value")
    def write_value(self, value: float) -> float:
        return round(value, 2)


def test_what_leaves_of_pydantic_is_alike_from_python_and_of_streams() -> None:
    """Over HTTP: the rows "as pydantic writes them" of tests/table/class_rows.py."""

    def once(rows: Any) -> Iterator[list[Plain]]:
        yield [Plain(value=0.256) for _ in rows]

    row = {"value": 0.26, "percent": 25.6}
    for options in ({"cache": ResponseCache(1 << 20)}, {"max_batch_size": 4}):
        server = served(list[Plain], lambda rows: [Plain(value=0.256) for _ in rows], **options)
        assert generate(server, [{}, {}]) == [row, row]
        [read] = server.infer_sync("m", [Asked()]).rows(Plain)
        assert (read.value, read.account) == (0.26, "internal")
    server = InferenceServer()
    once.__annotations__ = {"rows": list_of(Asked), "return": Iterator[list[Plain]]}
    server.register("m", once)
    answer = post(server, "generate_stream", {"x": 1.0})
    assert json.loads(answer.body.removeprefix(b"data: ")) == {"model_name": "m", **row}

    async def items() -> list[InferenceResponse]:
        return [response async for response in server.infer_stream("m", [Asked()])]

    [response] = asyncio.run(items())
    assert {tensor.name: tensor.array.tolist() for tensor in response.outputs} == {"value": [0.26], "percent": [25.6]}
    server = served(list[Plain], lambda rows: rows, takes=list[Plain])
    schemas = server.openapi()["components"]["schemas"]
    for action, names in (("Request", {"value", "account"}), ("Response", {"value", "percent"})):
        assert set(schemas[f"OipGenerate{action}Row_m"]["properties"]) == names
        assert names < set(schemas[f"OipGenerate{action}Columns_m"]["properties"])


class Scaled(pydantic.BaseModel):
    share: float
    names: str = "a,b"

    @pydantic.field_validator("share")
    @classmethod
    def read_percent(cls, value: float) -> float:
        return value / 100

    @pydantic.field_validator("names", mode="before")
    @classmethod
    def read_names(cls, value: Any) -> str:
        return "+".join(value.split(","))


def _repeat(row: Any, rows: list[Any]) -> list[Any]:
    return [row for _ in rows]


def test_an_instance_is_not_validated_again_and_anything_else_is() -> None:
    made, sent = Scaled(share=50.0), {"share": 0.5, "names": "a+b"}
    assert generate(served(list[Scaled], lambda rows: [made for _ in rows]), [{}]) == [{**sent, "names": "a,b"}]
    results = {"share": 50.0, "names": "a,b"}, {"share": "50", "names": "a,b"}
    for result in results:
        server = served(list[Scaled], partial(_repeat, result))
        assert generate(server, [{}]) == [sent]
        assert outputs(ask(server, "m", x=[1.0])) == {"share": [0.5], "names": ["a+b"]}
    assert post(served(list[Scaled], lambda rows: [{"share": "half"} for _ in rows]), "generate", [{}]).status == 500

    class Always(Scaled):
        model_config = pydantic.ConfigDict(revalidate_instances="always")

    assert generate(served(list[Always], lambda rows: [Always(share=50.0) for _ in rows]), [{}])[0]["share"] == 0.5


class Checked(pydantic.BaseModel):
    count: int

    @pydantic.model_validator(mode="after")
    def add(self) -> Any:
        self.count += 1  # as one that scales a value, or counts
        return self


class Wrapped(Checked):
    @pydantic.model_validator(mode="wrap")
    @classmethod
    def multiply(cls, value: Any, handler: Any) -> Any:
        made = handler(value)
        made.count *= 10
        return made

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def double(self) -> int:
        return self.count * 2


def _give(rows: Any, _: Any) -> Any:
    return rows


@pytest.mark.parametrize(("cls", "sent"), [(Checked, {"count": 2}), (Wrapped, {"count": 20, "double": 40})])
def test_a_validator_of_the_whole_class_does_not_run_again_on_an_instance(cls: Any, sent: dict[str, int]) -> None:
    kept = cls(count=1)
    for rows in ([kept], [kept, {"count": "1"}]):  # pydantic itself would run it, and change what the model keeps
        server = served(list[cls], partial(_give, rows))
        assert generate(server, [{} for _ in rows]) == [sent for _ in rows]
        assert outputs(ask(server, "m", x=[1.0]))["count"] == [sent["count"] for _ in rows]
    assert kept.count == sent["count"]


NUMBERS = [("count", int), ("share", float)]


@pytest.mark.parametrize("takes", [np.ndarray, list[Asked]])  # type: ignore[valid-type]
@pytest.mark.parametrize("options", [{}, {"cache": ResponseCache(1 << 20)}])
@pytest.mark.parametrize(
    "cls",
    [
        dataclasses.make_dataclass("Gives", NUMBERS),
        msgspec.defstruct("Gives", NUMBERS),
        pydantic.create_model("Gives", count=(int, ...), share=(float, ...)),
    ],
)
def test_no_row_is_columns_without_elements(cls: Any, options: Any, takes: Any) -> None:
    server = served(list[cls], lambda _: [], takes, **options)
    name = "rows" if takes is np.ndarray else "x"
    empty: dict[str, Any] = {"count": [], "share": []}
    assert outputs(ask(server, "m", **{name: [1.0]})) == empty
    assert outputs(ask(server, "m", {"outputs": [{"name": "count"}]}, **{name: [1.0]})) == {"count": []}
    assert server.infer_sync("m", {name: [1.0]}).rows(cls) == []
    assert generate(server, {name: [1.0]}) == {"model_name": "m", **empty}
    assert takes is np.ndarray or generate(server, [{}]) == []


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        (float, lambda number: np.array([1, number])),
        (float | None, lambda number: pd.Series([None, number], dtype="Int64")),
        (list[float], lambda number: np.array([[1, 2], [3, number]])),
    ],
)
def test_rows_of_a_response_round_no_whole_number(kind: Any, column: Any) -> None:
    def respond(number: int) -> InferenceResponse:
        server = InferenceServer()
        server.register("m", lambda x: {"id": column(number)})
        return server.infer_sync("m", {"x": [1.0]})

    cls = of_dataclasses("Numbered", id=kind)
    last = respond(2**53 + 2).rows(cls)[1].id
    assert last == ([3.0, 2.0**53 + 2] if kind == list[float] else 2.0**53 + 2)
    expected = f"rows[1].id: {2**53 + 1} is a whole number that a float would round"
    with pytest.raises(InvalidResponse, match=exactly(expected)):
        respond(2**53 + 1).rows(cls)


def test_a_number_of_a_response_that_no_float_holds_is_invalid() -> None:
    server = InferenceServer()
    server.register("m", lambda x: pd.DataFrame({"id": pd.Series([10**309, None], dtype=object)}))
    response = server.infer_sync("m", {"x": [1.0]})
    with pytest.raises(InvalidResponse, match=r"rows\[0\]\.id: 10{309} is a whole number that a float would round"):
        response.rows(of_dataclasses("Numbered", id=float | None))


@pytest.mark.parametrize("kind", [float, list[float]])
def test_a_whole_number_that_a_float_would_round_is_no_float(kind: Any) -> None:
    """In a response, and in a request whose tensor has whole numbers."""
    server = InferenceServer()

    def model(x: Any) -> Any:
        return x

    model.__annotations__ = {"x": kind}
    server.register("m", model)
    for number, status in ((2**53 + 2, 200), (2**53 + 1, 400)):
        tensor = Tensor("x", np.array([number]))
        asked = {"inputs": [{"name": "x", "datatype": "INT64", "shape": [1], "data": [number]}]}
        answered = post(server, "infer", asked)
        assert answered.status == status
        if status == 200:
            assert InferenceResponse([tensor]).as_("x", kind) == ([float(number)] if kind == list[float] else float(number))
        else:
            expected = f"'x' has {number}, a whole number that a float would round"
            assert json.loads(answered.body) == {"error": f"input {expected}"}
            with pytest.raises(InvalidResponse, match=exactly(f"output {expected}")):
                InferenceResponse([tensor]).as_("x", kind)


def test_a_class_makes_the_rows_of_a_request_once() -> None:
    server = served(list[float], lambda rows: [row.share for row in rows], takes=list[Scaled], cache=ResponseCache(1 << 20))
    for _ in range(2):
        assert generate(server, [{"share": 50.0, "names": "a,b"}]) == [{"output_0": 0.5}]
        assert generate(server, {"share": 50.0}) == {"model_name": "m", "output_0": 0.5}
        assert outputs(ask(server, "m", share=[0.5]))["output_0"] == [0.005]


def test_a_subclass_leaves_as_the_class_that_was_declared() -> None:
    class More(Plain):
        secret: str = "s"

    server = served(list[Plain], lambda rows: [More(value=0.5) for _ in rows])
    assert generate(server, [{}]) == [{"value": 0.5, "percent": 50.0}]


class Written(pydantic.BaseModel):
    value: float

    @pydantic.model_serializer
    def write(self) -> dict[str, float]:
        return {"other": self.value}


Hidden = of_pydantic("Hidden", value=(float, pydantic.Field(default=1.0, exclude=True)))
ForJSON = of_pydantic("ForJSON", value=Annotated[float, pydantic.PlainSerializer(str, when_used="json")])


class ForJSONByMethod(pydantic.BaseModel):
    value: float

    @pydantic.field_serializer("value", when_used="json-unless-none")
    def write(self, value: float) -> float:
        return round(value, 1)


with pytest.warns(pydantic.PydanticDeprecatedSince20):

    class ForJSONByType(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(json_encoders={float: str})
        value: float


@pytest.mark.parametrize("cls", [Written, Hidden, ForJSON, ForJSONByMethod, ForJSONByType])
def test_a_class_that_does_not_say_what_leaves_gives_no_rows(cls: Any) -> None:
    with pytest.raises(
        TypeError,
        match=f"{cls.__name__} does not say what each field becomes: write field_serializer and computed_field, and none for JSON alone",
    ):
        served(list[cls], lambda rows: rows)
    server = served(list[float], lambda rows: [row.value for row in rows], takes=list[cls])
    assert generate(server, [{"value": 2.0}]) == [{"output_0": 2.0}]


class Rounds(pydantic.BaseModel):
    count: int

    @pydantic.field_serializer("count")
    def write(self, count: int) -> float:
        return count


def test_no_serializer_rounds_a_number_in_silence() -> None:
    """pydantic's JSON would: a float of what a serializer returns as one."""
    server = served(list[Rounds], lambda rows: [Rounds(count=int(row.x)) for row in rows])
    assert generate(server, [{"x": 2.0**53}]) == [{"count": 2.0**53}]
    server = served(list[Rounds], lambda rows: [Rounds(count=2**53 + 1) for _ in rows])
    assert post(server, "generate", [{}]).status == 500


@dataclasses.dataclass
class Doubled:
    value: float

    def __post_init__(self) -> None:
        self.value *= 2


def _read_percent(text: str) -> float:
    return float(text.removesuffix("%"))


@attrs.define
class Parsed:
    value: float = attrs.field(converter=_read_percent)


@pytest.mark.parametrize(("row", "value"), [(Doubled(2.0), 4.0), (Parsed("4%"), 4.0)])
def test_what_a_class_makes_of_its_values_is_not_made_again_of_a_result(row: Any, value: float) -> None:
    server = served(list[type(row)], lambda rows: [row for _ in rows])  # type: ignore[misc]
    assert generate(server, [{}]) == [{"value": value}]
    assert outputs(ask(server, "m", x=[1.0])) == {"value": [value]}


Odd = TypedDict("Odd", {"class": int, "a b": float})


def test_names_that_are_no_identifiers() -> None:
    server = served(list[Odd], lambda rows: [{"class": 1, "a b": 2} for _ in rows])
    assert generate(server, [{}]) == [{"class": 1, "a b": 2.0}]
    assert error(post(served(list[Odd], lambda rows: [{"class": 1} for _ in rows]), "generate", [{}]))[0] == 500
