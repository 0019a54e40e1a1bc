"""Classes as rows that have converters, or a constructor of their own: these are called for each row."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import attrs
import pytest

from tests.support.row_server import generate, post, serve_rows


def lower(city: str) -> str:
    return city.lower()


@attrs.define
class Converted:
    city: str = attrs.field(converter=lower)


@attrs.define
class WrittenOfAttrs:
    city: str

    def __init__(self, city: str) -> None:
        self.__attrs_init__(city.lower())  # type: ignore[attr-defined]


@dataclass(init=False)
class Written:
    city: str

    def __init__(self, city: str) -> None:
        self.city = city.lower()


class Inherited(Written):
    pass


# as of `python -c`: its code has the file name of the code that dataclasses make
exec("class Executed(Written):\n    def __init__(self, city): self.city = city.lower()", globals())


@dataclass(init=False)
class Summed:
    number: int

    def __init__(self, number: int) -> None:
        self.total = number + 1


def test_a_constructor_of_its_own_need_not_keep_the_fields() -> None:
    server = serve_rows(list[Summed], list[float], lambda rows: [row.total for row in rows])
    for body in ({"number": 1}, {"number": [1]}, {"number": 1, "id": "a"}):
        assert generate(server, body)["output_0"] == 2


@pytest.mark.parametrize("cls", [Converted, WrittenOfAttrs, Written, Inherited, globals()["Executed"]])
def test_the_constructor_and_the_converters_of_a_class_are_called(cls: Any) -> None:
    server = serve_rows(list[cls], list[str], lambda rows: [row.city for row in rows])
    for body in ({"city": "BONN"}, {"city": ["BONN"]}):
        assert generate(server, body) == {"model_name": "m", "output_0": "bonn"}
    assert generate(server, [{"city": "BONN"}]) == [{"output_0": "bonn"}]
    refused = post(server, "generate", {"city": 1})
    assert (refused.status, json.loads(refused.body)) == (400, {"error": "rows[0].city: expected str, got 1"})
