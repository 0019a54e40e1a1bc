"""Classes as rows: which they may be, what their fields become, what is refused at registration, and what a model gets and gives."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import gc
import importlib
import json
import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import partial
from typing import Annotated, Any, Generic, Literal, NamedTuple, NotRequired, TypedDict, TypeVar

import attrs
import msgspec
import numpy as np
import pandas as pd
import pydantic
import pydantic.dataclasses
import pytest
from msgspec import Meta

from oip_asgi import (
    InferenceError,
    InferenceRequest,
    InferenceResponse,
    InferenceServer,
    InvalidResponse,
    ResponseCache,
    Tensor,
    TensorSpec,
)
from tests.support.asking import ask, error, get, outputs
from tests.support.row_server import generate, list_of, of_dataclasses, of_msgspec, of_pydantic, post, serve_rows


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


AGE = Annotated[int, Meta(ge=0)]


class OfMsgspec(msgspec.Struct):
    age: AGE
    name: str = "nobody"


@attrs.define
class OfAttrs:
    age: AGE
    name: str = "nobody"


class OfTypedDict(TypedDict):
    age: AGE
    name: NotRequired[str]


class WholeTypedDict(TypedDict):
    age: int
    name: str


class OfNamedTuple(NamedTuple):
    age: AGE
    name: str = "nobody"


OfDataclasses = of_dataclasses("OfDataclasses", age=AGE, name=(str, "nobody"))
OfPydantic = of_pydantic("OfPydantic", age=(int, pydantic.Field(ge=0)), name=(str, "nobody"))
SORTS_LITERALS = tuple(map(int, msgspec.__version__.split(".")[:2])) >= (0, 22)
"""Whether msgspec takes values of several types in a Literal."""


class Everything(msgspec.Struct, rename="camel"):
    flag: bool
    number: float
    text: str
    raw: bytes
    moment: datetime
    day: date
    size: Size
    level: Literal["low", "high"]
    weights: list[float]
    words: list[str]
    maybe_flag: bool | None = None
    maybe_count: int | None = None
    maybe_number: float | None = None
    maybe_text: str | None = None
    maybe_moment: datetime | None = None
    maybe_day: date | None = None
    maybe_size: Size | None = None
    maybe_level: Literal["low"] | None = None


THING = Everything(
    True, 1.5, "ä", b"\xff", datetime(2024, 2, 29, 1, 2, 3, tzinfo=UTC), date(2024, 2, 29), Size.LARGE, "high", [1.0, 2.0], ["a", "b"]
)  # fmt: skip
WHOLE = msgspec.structs.replace(
    THING, maybe_flag=True, maybe_count=2**53 + 1, maybe_number=2.5, maybe_text="b", maybe_moment=datetime(2024, 1, 1),
    maybe_day=date(1, 1, 1), maybe_size=Size.SMALL, maybe_level="low",
)  # fmt: skip

CLASSES = (OfMsgspec, OfDataclasses, OfAttrs, OfTypedDict, OfNamedTuple, OfPydantic)


def served(takes: Any, gives: Any, function: Callable[[Any], Any] = lambda rows: rows, **options: Any) -> InferenceServer:
    return serve_rows(takes, gives, function, **options)


def note(seen: list[Any], rows: Any) -> Any:
    seen.append(rows)
    return rows


@pytest.mark.parametrize("cls", CLASSES)
def test_every_kind_of_class_is_rows(cls: Any) -> None:
    seen: list[list[Any]] = []
    gives: Any = WholeTypedDict if cls is OfTypedDict else cls  # a result has a value in each row
    server = served(list[cls], list.__class_getitem__(gives), lambda rows: note(seen, rows))
    people = [{"age": 1, "name": "Ada"}, {"age": 2, "name": "Bob"}]
    assert generate(server, people) == people
    assert all(isinstance(row, dict if cls is OfTypedDict else cls) for row in seen[0])
    if cls is not OfTypedDict:  # which has no defaults
        assert outputs(ask(server, "m", age=[1, 2])) == {"age": [1, 2], "name": ["nobody", "nobody"]}
    status, text = error(ask(server, "m", age=[1, 2, 3, -1]))
    assert status == 400
    assert text.startswith("rows[3].age: ")
    assert text.endswith(", got -1")


def test_a_row_of_each_type_goes_through_and_comes_back() -> None:
    seen: list[Any] = []
    server = served(list[Everything], list[Everything], lambda rows: note(seen, rows))
    for rows in ([THING], [WHOLE], [THING, WHOLE], [WHOLE, THING, WHOLE]):
        assert server.infer_sync("m", rows).rows(Everything) == rows
        assert seen.pop() == rows
    assert server.infer_sync("m", THING).rows(Everything) == [THING]


def test_what_metadata_says_of_each_type() -> None:
    def of(*specs: Any) -> list[dict[str, Any]]:
        return [
            {"name": name, "datatype": datatype, "shape": shape, **({"parameters": more} if more else {})}
            for name, datatype, shape, more in specs
        ]

    one, dates, texts, whole = [-1], {"content_type": "datetime"}, {"content_type": "str"}, {"pd_dtype": "Int64"}
    known = get(served(list[Everything], None), "/models/m")[1]["inputs"]
    assert known == of(
        ("flag", "BOOL", one, None), ("number", "FP64", one, None), ("text", "BYTES", one, texts), ("raw", "BYTES", one, None),
        ("moment", "BYTES", one, dates), ("day", "BYTES", one, dates), ("size", "INT64", one, None), ("level", "BYTES", one, texts),
        ("weights", "FP64", [-1, -1], None), ("words", "BYTES", [-1, -1], texts), ("maybeFlag", "BOOL", one, {"pd_dtype": "boolean"}),
        ("maybeCount", "INT64", one, whole), ("maybeNumber", "FP64", one, None), ("maybeText", "BYTES", one, {**texts, "pd_dtype": "str"}),
        ("maybeMoment", "BYTES", one, dates), ("maybeDay", "BYTES", one, dates), ("maybeSize", "INT64", one, whole),
        ("maybeLevel", "BYTES", one, {**texts, "pd_dtype": "str"}),
    )  # fmt: skip


WithNone = of_msgspec("WithNone", x=Literal["a", None])
Inner = of_msgspec("Inner", x=int)
Nested = of_msgspec("Nested", inner=Inner)
NestedOfPydantic = of_pydantic("NestedOfPydantic", inner=OfPydantic)
RANGE = TensorSpec("x", "FP64", [-1], minimum=0)
BOUNDED: Any = Annotated[float, RANGE]
Bounded, MaybeBounded = of_dataclasses("Bounded", x=BOUNDED), of_dataclasses("MaybeBounded", x=(BOUNDED | None, None))
BoundedOfPydantic = of_pydantic("BoundedOfPydantic", x=(Annotated[float | None, RANGE], None))


@pytest.mark.parametrize(
    ("cls", "text"),
    [
        (Nested, "Nested.inner is a Inner, and a class in a class is no column: write the fields of Inner into Nested itself"),
        (NestedOfPydantic, "a class in a class is no column: write the fields of OfPydantic into NestedOfPydantic itself"),
        (of_msgspec("Lists", x=list[list[float]]), "Lists.x can be no column: annotate it bool, int, float, str, bytes,"),
        (of_msgspec("Mapped", x=dict[str, int]), "Mapped.x can be no column"),
        (of_msgspec("Numbers", x=int | float), "Numbers.x can be no column: annotate it bool, int, float, str, bytes,"),
        (of_msgspec("MaybeBytes", x=bytes | None), "MaybeBytes.x can be no column"),
        (
            of_msgspec("Mixed", x=Literal["a", 1]),
            "Mixed.x can be no column" if SORTS_LITERALS else "can be no columns: .* a Literal has values of several",
        ),
        (of_msgspec("OfArray", x=np.ndarray), "OfArray.x can be no column"),
        (Bounded, "Bounded has a field with a TensorSpec, whose range nobody would look at: use msgspec.Meta or pydantic.Field"),
        (BoundedOfPydantic, "BoundedOfPydantic has a field with a TensorSpec, whose range nobody would look at"),
        (MaybeBounded, "MaybeBounded has a field with a TensorSpec, whose range nobody would look at"),
    ],
)
def test_what_can_be_no_column_is_refused_at_registration(cls: Any, text: str) -> None:
    for takes, gives in ((cls, None), (list[cls], None), (Any, cls), (Any, list[cls])):
        with pytest.raises(TypeError, match=text):
            served(takes, gives)


@pytest.mark.skipif(not SORTS_LITERALS, reason="msgspec before 0.22 does not take it, which the error says")
def test_a_literal_may_have_none() -> None:
    server = served(list_of(WithNone), list_of(WithNone))
    assert server.infer_sync("m", [WithNone("a"), WithNone(None)]).rows(WithNone) == [WithNone("a"), WithNone(None)]


def test_what_else_is_refused_at_registration() -> None:
    def beside(rows: list[OfMsgspec], name: str = "x") -> Any: ...
    def twice(rows: list[OfMsgspec], more: OfNamedTuple) -> Any: ...
    def default(x: float, row: OfMsgspec | None = None) -> Any: ...

    server = InferenceServer()
    for function, options, text in (
        (beside, {}, "OfMsgspec has a field 'name', and so is a parameter called: rename one"),
        (twice, {}, "only one parameter"),
        (default, {}, "parameter 'row' is rows, which each request has: leave its default out"),
    ):
        with pytest.raises(TypeError, match=text):
            server.register("m", function, **options)
    with pytest.raises(TypeError, match=r"takes one OfMsgspec: write list\[OfMsgspec\], or leave max_batch_size= out"):
        served(OfMsgspec, list[OfMsgspec], max_batch_size=4)


def test_a_tuple_of_arrays_stays_several_outputs() -> None:
    class Arrays(NamedTuple):
        x: np.ndarray
        y: np.ndarray

    server = serve_rows(np.ndarray, Arrays, lambda rows: Arrays(rows, rows))
    assert outputs(ask(server, "m", rows=[1])) == {"output_0": [1], "output_1": [1]}


Renamed = of_pydantic("Renamed", age=(int, pydantic.Field(alias="Age", serialization_alias="years", description="of life", ge=1)))


def test_aliases_of_pydantic_are_the_names_of_the_tensors() -> None:
    server = served(list_of(Renamed), list_of(Renamed))
    assert outputs(ask(server, "m", Age=[3])) == {"years": [3]}
    assert error(ask(server, "m", Age=[0])) == (400, "rows[0].Age: input should be greater than or equal to 1, got 0")
    assert server.infer_sync("m", [Renamed(Age=3)]).rows(Renamed) == [Renamed(Age=3)]


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ([OfMsgspec(-1)], "rows[0].age: expected int >= 0, got -1"),
        ([OfMsgspec(1), OfMsgspec(2, 3)], "rows[1].name: expected str, got 3"),  # type: ignore[arg-type]
        ([OfMsgspec(2**70)], "rows[0].age: expected int <= 9223372036854775807, got 1180591620717411303424"),
        ([OfNamedTuple(1)], "rows[0] is OfNamedTuple(age=1, name='nobody'): expected OfMsgspec"),
        (OfMsgspec(1), "came back: expected a list of OfMsgspec"),
        (None, "came back: expected a list of OfMsgspec"),
    ],
)
def test_a_result_that_does_not_fit_is_the_fault_of_the_model(result: Any, text: str, caplog: pytest.LogCaptureFixture) -> None:
    server = served(Any, list[OfMsgspec], lambda _: result)
    assert error(ask(server, "m", rows=[1]))[0] == 500
    assert text in caplog.text


def asked_together(cls: Any, *requests: Any) -> tuple[list[Any], list[int]]:
    """What each request is answered, or refused with; and how many rows each call had."""
    calls: list[int] = []

    async def model(rows: Any) -> Any:
        calls.append(len(rows))
        await asyncio.sleep(0)
        return rows

    model.__annotations__ = {"rows": list[cls], "return": list[cls]}
    server = InferenceServer()
    server.register("m", model, max_batch_size=4, max_batch_delay=0.05)

    async def main() -> list[Any]:
        return list(await asyncio.gather(*(server.infer("m", request) for request in requests), return_exceptions=True))

    return asyncio.run(main()), calls


def test_requests_of_rows_share_a_call_and_only_one_that_does_not_fit_is_refused() -> None:
    responses, calls = asked_together(Everything, [WHOLE], [WHOLE, WHOLE])
    assert [response.rows(Everything) for response in responses] == [[WHOLE], [WHOLE, WHOLE]]
    assert calls == [3]
    (good, bad), _ = asked_together(OfMsgspec, *({"age": [age], "name": ["a"]} for age in (1, -1)))
    assert good.rows(OfMsgspec) == [OfMsgspec(1, "a")]
    assert str(bad) == "rows[0].age: expected int >= 0, got -1"


def test_calls_from_python() -> None:
    server = served(list[Everything], list[Everything])
    names = {"flag": [True], "number": [1], "text": ["ä"], "raw": [b"\xff"], "moment": [THING.moment], "size": [2], "level": ["high"]}
    more = {"weights": [[1.0, 2.0]], "words": [["a", "b"]], "maybeCount": [None], "maybeText": [None]}
    response = server.infer_sync("m", {**names, **more, "day": [datetime(2024, 2, 29)]})
    assert response.rows(Everything) == [msgspec.structs.replace(THING, number=1.0)]
    with pytest.raises(InferenceError, match=r"^rows\[0\].number: expected float, got 'x'$"):
        server.infer_sync("m", [msgspec.structs.replace(THING, number="x")])
    with pytest.raises(InferenceError, match="input 'weights': its lists have different lengths: expected as many elements in each"):
        server.infer_sync("m", [THING, msgspec.structs.replace(THING, weights=[1.0])])
    other = served(list[OfMsgspec], list[OfMsgspec])
    with pytest.raises(InferenceError, match=r"^inputs: Nested.inner is a Inner, and a class in a class is no column"):
        other.infer_sync("m", [Nested(Inner(1))])
    with pytest.raises(InferenceError, match="unknown input 'flag'"):
        other.infer_sync("m", [THING])


def test_objects_with_a_cache_or_beside_the_whole_request() -> None:
    def whole(rows: Any, request: Any) -> Any:
        return [len(rows), len(request.inputs)]

    whole.__annotations__ = {"rows": list[OfMsgspec], "request": InferenceRequest}
    server = InferenceServer()
    server.register("m", whole)
    assert generate(server, [{"age": 1}]) == [{"output_0": 1}, {"output_0": 2}]
    calls: list[int] = []
    server = served(list[OfMsgspec], list[OfMsgspec], lambda rows: calls.append(len(rows)) or rows, cache=ResponseCache(1 << 20))  # type: ignore[func-returns-value]
    for _ in range(2):
        assert generate(server, [{"age": 1, "name": "a"}]) == [{"age": 1, "name": "a"}]
    assert calls == [1]


def test_rows_of_a_response() -> None:
    response = InferenceResponse([Tensor("age", np.array([1], "i4")), Tensor("other", np.ones(3))])
    assert response.rows(OfMsgspec) == [OfMsgspec(1)]
    with pytest.raises(InvalidResponse, match="the response has no output 'age', which OfMsgspec needs, but 'name'"):
        InferenceResponse([Tensor("name", np.array([b"a"], object))]).rows(OfMsgspec)
    with pytest.raises(InvalidResponse, match=r"rows\[0\].age: expected int >= 0, got -1"):
        InferenceResponse([Tensor("age", np.array([-1]))]).rows(OfMsgspec)
    with pytest.raises(TypeError, match=r"rows\(<class 'int'>\): expected a class with fields"):
        response.rows(int)


class Documented(msgspec.Struct):
    age: Annotated[int, Meta(ge=18, le=120, description="in years")]
    plan: Literal["free", "paid"]
    share: Annotated[float, Meta(gt=0, lt=1)] | None = None
    debts: float = 2.5


def test_openapi_has_the_values_the_bounds_and_the_descriptions() -> None:
    server = served(list[Documented], list[Documented])
    document = server.openapi()
    schemas = document["components"]["schemas"]
    one, row = schemas["OipGenerateRequestColumns_m"], schemas["OipGenerateRequestRow_m"]
    assert one["required"] == row["required"] == ["age", "plan"]
    assert one["properties"]["age"]["anyOf"][0] == {"type": "integer", "minimum": 18, "maximum": 120, "description": "in years"}
    assert one["properties"]["plan"]["anyOf"][0] == {"enum": ["free", "paid"]}
    share = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}
    assert one["properties"]["share"]["anyOf"][0] == {"anyOf": [share, {"type": "null"}]}
    assert one["properties"]["debts"]["anyOf"][0] == {"type": "number", "default": 2.5}
    assert row["properties"]["share"] == {"anyOf": [share, {"type": "null"}]}
    [body] = [operation["post"]["requestBody"] for path, operation in document["paths"].items() if path.endswith("/generate")]
    assert body["content"]["application/json"]["example"] == {"age": 18, "plan": "free"}
    assert generate(server, {"age": 18, "plan": "free"}) == {"model_name": "m", "age": 18, "plan": "free", "share": None, "debts": 2.5}


def test_a_frame_is_rows_too() -> None:
    from oip_asgi.codecs import PandasCodec

    frame = pd.DataFrame({"age": [1, 2], "name": ["a", "b"]})
    server = served(list[OfMsgspec], list[OfMsgspec])
    request = PandasCodec.encode_request(frame)
    assert isinstance(request, InferenceRequest)
    assert server.infer_sync("m", frame).rows(OfMsgspec) == [OfMsgspec(1, "a"), OfMsgspec(2, "b")]


T = TypeVar("T")


class Plan(enum.Enum):
    FREE = "free"


def names_of(specs: Any) -> list[str]:
    return [spec["name"] for spec in specs]


@dataclass
class Own:
    x: float
    twice: float = field(init=False)

    def __post_init__(self) -> None:
        self.twice = 2 * self.x


@attrs.define
class OwnOfAttrs:
    x: float
    twice: float = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.twice = 2 * self.x


@pydantic.dataclasses.dataclass
class OwnOfPydantic:
    x: float
    twice: float = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.twice = 2 * self.x


@pytest.mark.parametrize("cls", [Own, OwnOfAttrs, OwnOfPydantic])
def test_what_a_class_sets_itself_is_no_input(cls: Any) -> None:
    """It is an output, but for pydantic, which does not write it."""
    row = {"x": 1.5} if cls is OwnOfPydantic else {"x": 1.5, "twice": 3.0}
    server = serve_rows(list[cls], list[cls])
    described = get(server, "/models/m")[1]
    assert (names_of(described["inputs"]), names_of(described["outputs"])) == (["x"], [*row])
    assert generate(server, [{"x": 1.5}]) == [row]
    refused = post(server, "generate", [{"x": 1.5, "twice": 7.0}])
    assert refused.status == 400
    assert "twice" in json.loads(refused.body)["error"]
    tensors = [{"name": name, "datatype": "FP64", "shape": [1], "data": [7.0]} for name in ("x", "twice")]
    assert post(server, "infer", {"inputs": tensors}).status == 400
    assert post(server, "infer", {"inputs": tensors[:1]}).status == 200


@attrs.define
class Aliased:
    _age: int
    plan: str = attrs.field(alias="tariff")
    note: str = "none"


def test_the_names_of_attrs_arguments_are_those_of_the_tensors() -> None:
    server = serve_rows(list[Aliased], list[Aliased])
    described = get(server, "/models/m")[1]
    assert names_of(described["inputs"]) == names_of(described["outputs"]) == ["age", "tariff", "note"]
    row = {"age": 7, "tariff": "free"}
    assert generate(server, [row]) == [{**row, "note": "none"}]
    assert post(server, "generate", [{"age": "x", "tariff": "free"}]).status == 400
    assert json.loads(post(server, "generate", [{"_age": 7, "tariff": "free"}]).body)["error"].startswith("rows[0]")


class Late(pydantic.BaseModel):
    x: LateType


class NamedLate(NamedTuple):
    x: LateType
    y: float = 1.0


LateType = float


class Missing(pydantic.BaseModel):
    x: NoSuchType  # type: ignore[name-defined] # noqa: F821


def test_a_class_that_names_a_type_defined_below_it_is_rows_and_one_that_names_none_is_refused() -> None:
    for cls in (Late, NamedLate):
        assert post(serve_rows(list[cls], function=len), "generate", [{"x": 1.5}, {"x": 2.5}]).status == 200  # type: ignore[valid-type]
    with pytest.raises(TypeError, match="the fields of Missing can be no columns: name 'NoSuchType' is not defined"):
        serve_rows(list[Missing])


class Moments(TypedDict):
    when: datetime | None


MomentsOfDataclasses, MomentsOfPydantic, MomentsOfMsgspec = (
    make("Moments", when=datetime | None) for make in (of_dataclasses, of_pydantic, of_msgspec)
)


@pytest.mark.parametrize("cls", [Moments, MomentsOfDataclasses, MomentsOfPydantic, MomentsOfMsgspec])
def test_timestamps_of_pandas_are_datetimes_and_nat_is_none(cls: Any) -> None:
    make = cls.model_construct if issubclass(cls, pydantic.BaseModel) else cls
    moments = [pd.Timestamp("2024-02-29 01:02:03.000004"), pd.NaT]
    server = serve_rows(list[Own], list[cls], lambda rows: [make(when=moment) for moment in moments])
    assert generate(server, [{"x": 0.0}, {"x": 1.0}]) == [{"when": "2024-02-29T01:02:03.000004"}, {"when": None}]


@attrs.define
class TakesSelf:
    x: float
    twice: float = attrs.field(default=attrs.Factory(lambda self: 2 * self.x, takes_self=True))


@dataclass
class Generic1(Generic[T]):
    x: T


class Hero(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(table=True)  # type: ignore[typeddict-unknown-key]
    age: int


class Twice(pydantic.BaseModel):
    a: int = pydantic.Field(serialization_alias="x")
    b: int = pydantic.Field(serialization_alias="x")


class Lacking(TypedDict):
    x: NotRequired[float]


LackingOfMsgspec = of_msgspec("LackingOfMsgspec", x=(float | msgspec.UnsetType, msgspec.UNSET))


@pytest.mark.parametrize(
    ("takes", "gives", "text"),
    [
        (list[TakesSelf], None, r"takes_self=True.*: write attrs.field\(init=False\), and set the field in __attrs_post_init__"),
        (list[Generic1[float]], None, "is a generic class with its types: write a class of your own for it"),
        (list[Hero], None, "Hero has table=True, with which SQLModel checks nothing: write a class with these fields"),
        (list[Own], list[Twice], "Twice has fields of the same name as tensors, 'x', 'x': give each its own"),
        (list[Own], list[Lacking], "Lacking has a field that a row may lack"),
        (list[Own], list_of(LackingOfMsgspec), "LackingOfMsgspec has a field that a row may lack"),
    ],
)
def test_a_class_that_no_request_or_result_can_fit_is_refused_with_what_to_write(takes: Any, gives: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        serve_rows(takes, gives)


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="pydantic.v1 is for older versions")
def test_a_class_of_pydantic_v1_is_refused() -> None:
    old = importlib.import_module("pydantic.v1").create_model("Old", x=(float, ...))
    with pytest.raises(TypeError, match=r"Old is a class of pydantic\.v1: write it with pydantic\.BaseModel"):
        serve_rows(list_of(old))


def test_classes_of_rows_are_not_kept_for_ever() -> None:
    def register() -> weakref.ref[type]:
        @dataclass
        class Row:
            x: float

        serve_rows(list[Row])
        return weakref.ref(Row)

    classes = [register() for _ in range(200)]
    gc.collect()
    assert sum(cls() is not None for cls in classes) <= 150


def _give(row: Any, rows: Any) -> Any:
    return [row for _ in rows]


def test_rows_of_a_function_without_annotation_say_what_to_write(caplog: pytest.LogCaptureFixture) -> None:
    rows: list[Any] = [Own(1.0), OwnOfAttrs(1.0), MomentsOfPydantic(when=None), MomentsOfMsgspec(None)]
    for row in rows:
        assert post(serve_rows(list[Own], function=partial(_give, row)), "generate", [{"x": 1.0}]).status == 500
        assert f"annotate the result, such as -> list[{type(row).__name__}]" in caplog.text
        caplog.clear()
