"""Which classes are rows, what they take from callers, and which are refused at registration, with what to write."""

from __future__ import annotations

import dataclasses
import enum
import gc
import json
import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, NamedTuple, NotRequired, TypedDict, TypeVar

import attrs
import msgspec
import pandas as pd
import pydantic
import pydantic.dataclasses
import pytest

from oip_asgi import InferenceServer, OIPApp
from tests.support.ways import Answer, Request, over_asgi

T = TypeVar("T")


class Plan(enum.Enum):
    FREE = "free"


def serve(takes: Any, gives: Any = None, function: Callable[[Any], Any] = len) -> InferenceServer:
    """A server whose model "m" takes and gives rows of these classes."""

    def model(rows: Any) -> Any:
        return function(rows)

    model.__annotations__ = {"rows": takes, **({} if gives is None else {"return": gives})}
    server = InferenceServer()
    server.register("m", model)
    return server


def post(server: InferenceServer, action: str, body: Any) -> Answer:
    return over_asgi(OIPApp(server), "")(Request("POST", f"/models/m/{action}", (), json.dumps(body).encode()))


def names_of(specs: Any) -> list[str]:
    return [spec["name"] for spec in specs]


def describe(server: InferenceServer) -> Any:
    return json.loads(over_asgi(OIPApp(server), "")(Request("GET", "/models/m")).body)


# What a class sets itself


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
    server = serve(list[cls], list[cls], lambda rows: rows)
    described = describe(server)
    assert (names_of(described["inputs"]), names_of(described["outputs"])) == (["x"], [*row])
    assert json.loads(post(server, "generate", [{"x": 1.5}]).body) == [row]
    refused = post(server, "generate", [{"x": 1.5, "twice": 7.0}])
    assert refused.status == 400
    assert "twice" in json.loads(refused.body)["error"]
    tensors = [{"name": name, "datatype": "FP64", "shape": [1], "data": [7.0]} for name in ("x", "twice")]
    assert post(server, "infer", {"inputs": tensors}).status == 400
    assert post(server, "infer", {"inputs": tensors[:1]}).status == 200


# Names


@attrs.define
class Aliased:
    _age: int
    plan: str = attrs.field(alias="tariff")
    note: str = "none"


def test_the_names_of_attrs_arguments_are_those_of_the_tensors() -> None:
    server = serve(list[Aliased], list[Aliased], lambda rows: rows)
    described = describe(server)
    assert names_of(described["inputs"]) == names_of(described["outputs"]) == ["age", "tariff", "note"]
    row = {"age": 7, "tariff": "free"}
    assert json.loads(post(server, "generate", [row]).body) == [{**row, "note": "none"}]
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


@pytest.mark.parametrize("cls", [Late, NamedLate])
def test_a_class_that_names_a_type_defined_below_it_is_rows(cls: Any) -> None:
    assert post(serve(list[cls]), "generate", [{"x": 1.5}, {"x": 2.5}]).status == 200


def test_a_class_that_names_no_type_is_refused() -> None:
    with pytest.raises(TypeError, match="the fields of Missing can be no columns: name 'NoSuchType' is not defined"):
        serve(list[Missing])


# Dates of pandas


class Moments(TypedDict):
    when: datetime | None


@dataclass
class MomentsOfDataclasses:
    when: datetime | None


class MomentsOfPydantic(pydantic.BaseModel):
    when: datetime | None


class MomentsOfMsgspec(msgspec.Struct):
    when: datetime | None


@pytest.mark.parametrize("cls", [Moments, MomentsOfDataclasses, MomentsOfPydantic, MomentsOfMsgspec])
def test_timestamps_of_pandas_are_datetimes_and_nat_is_none(cls: Any) -> None:
    @dataclass
    class Asked:
        x: float

    make = cls.model_construct if issubclass(cls, pydantic.BaseModel) else cls
    moments = [pd.Timestamp("2024-02-29 01:02:03.000004"), pd.NaT]
    server = serve(list[Asked], list[cls], lambda rows: [make(when=moment) for moment in moments])
    answered = json.loads(post(server, "generate", [{"x": 0.0}, {"x": 1.0}]).body)
    assert answered == [{"when": "2024-02-29T01:02:03.000004"}, {"when": None}]


# What is refused


@attrs.define
class TakesSelf:
    x: float
    twice: float = attrs.field(default=attrs.Factory(lambda self: 2 * self.x, takes_self=True))


@dataclass
class Generic1(Generic[T]):
    x: T


class Strict(pydantic.BaseModel, strict=True):
    plan: Plan


class Lacking(TypedDict):
    x: NotRequired[float]


class LackingOfMsgspec(msgspec.Struct):
    x: float | msgspec.UnsetType = msgspec.UNSET


@pytest.mark.parametrize(
    ("takes", "gives", "text"),
    [
        (list[TakesSelf], None, r"takes_self=True.*: write attrs.field\(init=False\), and set the field in __attrs_post_init__"),
        (list[Generic1[float]], None, "is a generic class with its types: write a class of your own for it"),
        (list[Strict], None, r"is strict, and no client can send a member of an Enum: write pydantic.Field\(strict=False\)"),
        (list[Own], list[Lacking], "Lacking has a field that a row may lack"),
        (list[Own], list[LackingOfMsgspec], "LackingOfMsgspec has a field that a row may lack"),
    ],
)
def test_a_class_that_no_request_or_result_can_fit_is_refused_with_what_to_write(takes: Any, gives: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        serve(takes, gives)


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="pydantic.v1 is for older versions")
def test_a_class_of_pydantic_v1_is_refused() -> None:
    from pydantic.v1 import BaseModel

    class Old(BaseModel):
        x: float

    with pytest.raises(TypeError, match=r"Old is a class of pydantic\.v1: write it with pydantic\.BaseModel"):
        serve(list[Old])


def test_a_class_that_checks_nothing_is_refused() -> None:
    """As SQLModel makes of a table, which `table=True` in the configuration says."""

    class Hero(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(table=True)  # type: ignore[typeddict-unknown-key]
        age: int

    with pytest.raises(TypeError, match="Hero has table=True, with which SQLModel checks nothing: write a class with these fields"):
        serve(list[Hero])


def test_classes_of_rows_are_not_kept_for_ever() -> None:
    def register() -> weakref.ref[type]:
        @dataclass
        class Row:
            x: float

        serve(list[Row])
        return weakref.ref(Row)

    classes = [register() for _ in range(300)]
    gc.collect()
    assert sum(cls() is not None for cls in classes) <= 150


@pytest.mark.parametrize(
    "row", [Own(1.0), OwnOfAttrs(1.0), MomentsOfPydantic(when=None), MomentsOfMsgspec(None)], ids=lambda row: type(row).__name__
)
def test_rows_of_a_function_without_annotation_say_what_to_write(row: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert post(serve(list[Own], function=lambda rows: [row]), "generate", [{"x": 1.0}]).status == 500
    assert f"annotate the result, such as -> list[{type(row).__name__}]" in caplog.text
