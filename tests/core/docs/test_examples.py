"""Examples are made of values that the content types can read, of data frames too."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Any

import pandas as pd

from oip_asgi import InferenceServer, OIPApp, TensorSpec
from oip_asgi.codecs import Base64Codec
from oip_asgi.specs import specs_of
from tests.support.ways import Request, over_asgi


def example_answers(server: InferenceServer, name: str) -> Any:
    """What a model answers to its example, as a whole request and as a flat object."""
    way = over_asgi(OIPApp(server), "")
    document = json.loads(way(Request("GET", f"/models/{name}/openapi.json")).body)
    for action in ("infer", "generate"):
        path = f"/models/{name}/{action}"
        operation = document["paths"][path]["post"]
        example = operation["requestBody"]["content"]["application/json"]["example"]
        answer = way(Request("POST", path, (), json.dumps(example).encode()))
        assert answer.status == 200, (example, answer.body)
    return document["paths"][f"/models/{name}/infer"]["post"]["requestBody"]


def test_the_example_of_a_data_frame() -> None:
    server = InferenceServer()
    columns = [TensorSpec("age", "INT64", [-1]), TensorSpec("name", "BYTES", [-1]), TensorSpec("since", "BYTES", [-1, 1], "datetime")]

    @server.model("frame", inputs=columns)
    def frame(df: pd.DataFrame) -> Any:
        assert list(df.columns) == ["age", "name", "since"]
        assert df["since"].dtype.kind == "M"
        return df

    @server.model("named", content_type="pd", inputs=columns)
    def named(df: Any) -> Any:
        return pd.DataFrame({"rows": [len(df)]})

    @server.model("any")
    def any_frame(df: pd.DataFrame) -> Any:
        return df

    inputs = example_answers(server, "frame")["content"]["application/json"]["example"]["inputs"]
    assert [(each["name"], each["shape"], each["data"]) for each in inputs] == [
        ("age", [1], [0]),
        ("name", [1], ["text"]),
        ("since", [1, 1], ["2026-01-31T12:00:00"]),
    ]
    example_answers(server, "named")
    assert "does not declare its inputs and outputs" in example_answers(server, "any")["description"]


def test_examples_of_categories_and_of_dates_fit_their_columns() -> None:
    server = InferenceServer()
    dates = pd.to_datetime(["2026-01-01", "2026-02-01"])
    categories: dict[str, Any] = {"text": ["red", "blue"], "number": [3, 4], "date": dates, "zoned": dates.tz_localize("Asia/Tokyo")}
    frames = {"categories": pd.DataFrame({name: pd.Categorical(values, categories=values) for name, values in categories.items()})}
    frames |= {f"m{place}": pd.DataFrame({"day": dates.tz_localize(zone)}) for place, zone in enumerate((None, "UTC", "Asia/Tokyo"))}
    for name, frame in frames.items():
        server.register(name, lambda df: len(df), content_type="pd", inputs=specs_of(frame))
        example_answers(server, name)


def test_the_example_has_what_the_content_type_reads() -> None:
    server = InferenceServer()

    @server.model("model", content_type="datetime", inputs=[TensorSpec("a", "BYTES", [-1]), TensorSpec("b", "BYTES", [2])])
    def by_model(a: Any, b: Any) -> Any:
        assert all(isinstance(each, datetime) for each in [*a, *b])
        return a

    @server.model("rest", content_type="base64", inputs=[TensorSpec("a", "BYTES", [-1])])
    def rest(**inputs: Any) -> Any:
        assert inputs["a"][0].startswith(b"\x89PNG")
        return [b"text"]

    @server.model("codec")
    def codec(a: Annotated[Any, Base64Codec], b: list[bytes]) -> Any:
        assert a[0].startswith(b"\x89PNG")
        assert b == [b"text"]
        return b

    for name in ("model", "rest", "codec"):
        example_answers(server, name)
