"""Rows of JSON that a class refuses or fails on, and how many there may be."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import msgspec
import numpy as np
import pydantic
import pytest

from oip_asgi import InferenceError, InferenceServer, OIPApp, ResponseCache
from tests.core.codecs.test_rows_as_json import Converted, answer, served
from tests.support.ways import Request, over_asgi

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


@pytest.mark.parametrize("options", [{}, {"cache": ResponseCache(1 << 20)}, {"max_batch_size": 4}], ids=["alone", "cache", "batch"])
@pytest.mark.parametrize("cls", [Place, PlaceOfMsgspec, PlaceOfPydantic])
def test_what_a_class_raises_is_the_failure_of_the_model(cls: Any, options: Any, caplog: pytest.LogCaptureFixture) -> None:
    server = InferenceServer()

    def model(rows: Any) -> Any:
        return [1.0] * len(rows)

    model.__annotations__ = {"rows": list[cls], "return": list[float]}
    server.register("m", model, **options)
    server.observe(lambda _: None)
    ask, column = over_asgi(OIPApp(server), ""), {"name": "country", "datatype": "BYTES", "shape": [1], "data": ["XX"]}
    bodies: list[tuple[str, Any]] = [("infer", {"inputs": [column]}), ("generate", [{"country": "XX"}]), ("generate", {"country": "XX"})]
    for number, (path, body) in enumerate([*bodies, ("generate_stream", {"country": "XX"})], 1):
        answer = ask(Request("POST", f"/models/m/{path}", (), json.dumps(body).encode()))
        assert (answer.status, answer.body) == (500, b'{"error":"model \'m\' failed: see the server\'s log"}')
        stats = json.loads(ask(Request("GET", "/models/m/stats")).body)["model_stats"][0]["inference_stats"]
        assert (stats["success"]["count"], stats["fail"]["count"]) == (0, number)
    assert {record.getMessage().splitlines()[0] for record in caplog.records} == {"model 'm' failed on a request"}
    assert ask(Request("POST", "/models/m/generate", (), b'[{"country": "CH"}]')).status == 200
    server.stop()


Wide: Any = msgspec.defstruct("Wide", [(f"f{index}", int | None, None) for index in range(30)])
WideOfPydantic = pydantic.create_model("WideOfPydantic", **{f"f{index}": (int | None, None) for index in range(30)})  # type: ignore[call-overload]


@pytest.mark.parametrize("cls", [Wide, WideOfPydantic])
def test_rows_left_to_defaults_count_with_all_of_their_fields(cls: Any) -> None:
    ask = served(lambda rows: [float(len(rows))], list[cls], list[float])
    assert ask([{}] * 3_333).status == 200
    refused = ask([{}] * 3_334)
    expected = {"error": "the rows have more than 100000 values, as each has 30 fields: use infer"}
    assert (refused.status, json.loads(refused.body)) == (400, expected)


def test_columns_left_to_defaults_of_very_many_rows_are_refused() -> None:
    server = InferenceServer()

    def model(rows: Any) -> Any:
        return [float(len(rows))]

    model.__annotations__ = {"rows": list[Wide], "return": list[float]}
    server.register("m", model)
    columns = {f"f{index}": np.zeros(3_334, np.int64) for index in range(3)}
    assert server.infer_sync("m", columns)["output_0"] == [3_334]
    assert server.infer_sync("m", {"f0": np.zeros(3_333, np.int64)})["output_0"] == [3_333]
    with pytest.raises(
        InferenceError, match=r"^3334 rows of Wide have 30 fields, of which 2 came: send more of their columns, or fewer rows$"
    ):
        server.infer_sync("m", {"f0": columns["f0"], "f1": columns["f1"]})


def test_pydantic_says_which_of_many_rows_is_wrong() -> None:
    refused = served(lambda rows: rows, list[Converted], None)([{"n": 1}] * 2_500 + [{"n": "x"}])
    assert json.loads(refused.body)["error"].startswith("rows[2500].n: input should be a valid integer")


@dataclasses.dataclass
class Lists:
    scores: list[float]
    tags: list[str]


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (b'{"scores": [1.5], "tags": [NaN]}', "tags: NaN"),
        (b'{"scores": [1.5], "tags": ["a", Infinity]}', "tags: NaN"),
        (b'{"scores": [1e999], "tags": ["a"]}', "scores: number out of range"),
        (b'{"scores": [1, -1e999], "tags": ["a"]}', "scores: number out of range"),
    ],
)
def test_what_is_no_json_is_refused_in_a_list_too(row: bytes, text: str) -> None:
    for body in (row, b"[%b]" % row, b'[{"scores": [1], "tags": ["a"]}, %b]' % row):
        status, document = answer(lambda rows: rows, list[Lists], list[Lists], body)
        assert status == 400
        assert text in document["error"] or body == row
