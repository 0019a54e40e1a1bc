"""Models whose parameters and results are classes, one object for each row, for the tables of requests and of streams."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from enum import Enum
from importlib.util import find_spec
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from oip_asgi import InferenceServer


class Plan(Enum):
    FREE = "free"
    PAID = "paid"


class Customer(msgspec.Struct, rename="camel"):
    age: Annotated[int, Meta(ge=0, description="in years")]
    plan: Plan
    is_new: bool
    monthly_fee: float | None = None
    city: str | None = None
    since: date | None = None


@dataclass
class Score:
    label: Literal["stays", "leaves"]
    value: float


class Point(NamedTuple):
    x: float
    y: float = 0.5


@dataclass
class Place:
    country: str

    def __post_init__(self) -> None:
        self.code = {"CH": 1}[self.country]


HAS_PYDANTIC = find_spec("pydantic") is not None
OF_PYDANTIC = ("shares", "unsure") if HAS_PYDANTIC else ()


def register_pydantic(server: InferenceServer) -> None:
    """Models whose results are rows of pydantic."""
    import pydantic

    class Share(pydantic.BaseModel):
        value: float
        sure: bool = True
        account: str = pydantic.Field(default="internal", exclude=True)

        @pydantic.computed_field  # type: ignore[prop-decorator]
        @property
        def percent(self) -> float:
            return self.value * 100

        @pydantic.field_serializer("value")
        def write_value(self, value: float) -> float:
            return round(value, 1)

    def shares(rows: list[Point]) -> list[Any]:
        return [Share(value=row.x) for row in rows]

    def unsure(rows: list[Point]) -> list[Any]:
        made = [Share(value=row.x) for row in rows]
        for each in made:
            each.sure = "false"  # type: ignore[assignment]
        return made

    for name, function in zip(OF_PYDANTIC, (shares, unsure), strict=True):
        function.__annotations__["return"] = list[Share]
        server.register(name, function)


def register_rows(server: InferenceServer) -> None:
    @server.model("churn")
    def churn(rows: list[Customer]) -> list[Score]:
        return [Score("leaves" if row.plan is Plan.FREE else "stays", row.monthly_fee or row.age / 10) for row in rows]

    @server.model("one row")
    def one_row(row: Point, scale: float = 1.0) -> Point:
        return Point(row.x * scale, row.y * scale)

    @server.model("places")
    def places(rows: list[Place]) -> list[int]:
        return [row.code for row in rows]

    @server.model("wrong score")
    def wrong_score(rows: list[Point]) -> list[Score]:
        return [Score("unknown", row.x) for row in rows]  # type: ignore[arg-type]

    if HAS_PYDANTIC:
        register_pydantic(server)


def register_streams(server: InferenceServer) -> None:
    register_rows(server)

    @server.model("points")
    def points(rows: list[Point]) -> Iterator[list[Point]]:
        for factor in (1, 2):
            yield [Point(row.x * factor, row.y * factor) for row in rows]
