"""Which classes are rows, what they take from callers, and which are refused at registration, with what to write."""

from __future__ import annotations

import dataclasses
import enum
import gc
import importlib
import json
import sys
import weakref
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, NamedTuple, NotRequired, TypedDict, TypeVar

import attrs
import msgspec
import pandas as pd
import pydantic
import pydantic.dataclasses
import pytest

from tests.support.asking import get
from tests.support.row_server import generate, of_dataclasses, of_msgspec, of_pydantic, post, serve_rows

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


class Strict(pydantic.BaseModel, strict=True):
    plan: Plan


class Hero(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(table=True)  # type: ignore[typeddict-unknown-key]
    age: int


class Lacking(TypedDict):
    x: NotRequired[float]


LackingOfMsgspec = of_msgspec("LackingOfMsgspec", x=(float | msgspec.UnsetType, msgspec.UNSET))


@pytest.mark.parametrize(
    ("takes", "gives", "text"),
    [
        (list[TakesSelf], None, r"takes_self=True.*: write attrs.field\(init=False\), and set the field in __attrs_post_init__"),
        (list[Generic1[float]], None, "is a generic class with its types: write a class of your own for it"),
        (list[Strict], None, r"is strict, and no client can send a member of an Enum: write pydantic.Field\(strict=False\)"),
        (list[Hero], None, "Hero has table=True, with which SQLModel checks nothing: write a class with these fields"),
        (list[Own], list[Lacking], "Lacking has a field that a row may lack"),
        (list[Own], list[LackingOfMsgspec], "LackingOfMsgspec has a field that a row may lack"),
    ],
)
def test_a_class_that_no_request_or_result_can_fit_is_refused_with_what_to_write(takes: Any, gives: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        serve_rows(takes, gives)


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="pydantic.v1 is for older versions")
def test_a_class_of_pydantic_v1_is_refused() -> None:
    old = importlib.import_module("pydantic.v1").create_model("Old", x=(float, ...))
    with pytest.raises(TypeError, match=r"Old is a class of pydantic\.v1: write it with pydantic\.BaseModel"):
        serve_rows(list[old])


def test_classes_of_rows_are_not_kept_for_ever() -> None:
    def register() -> weakref.ref[type]:
        @dataclass
        class Row:
            x: float

        serve_rows(list[Row])
        return weakref.ref(Row)

    classes = [register() for _ in range(300)]
    gc.collect()
    assert sum(cls() is not None for cls in classes) <= 150


def test_rows_of_a_function_without_annotation_say_what_to_write(caplog: pytest.LogCaptureFixture) -> None:
    for row in (Own(1.0), OwnOfAttrs(1.0), MomentsOfPydantic(when=None), MomentsOfMsgspec(None)):
        assert post(serve_rows(list[Own], function=lambda rows, row=row: [row]), "generate", [{"x": 1.0}]).status == 500
        assert f"annotate the result, such as -> list[{type(row).__name__}]" in caplog.text
        caplog.clear()
