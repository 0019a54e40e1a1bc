"""Ranges of inputs, and those that take no missing values: what is outside is refused or flagged, and documents show them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest

from oip_asgi import InferenceServer, OIPApp, ResponseCache, TensorSpec
from oip_asgi.specs import specs_of
from tests.support.asking import ask, error, get, outputs
from tests.support.ways import Request, over_asgi

AGE = TensorSpec("age", "INT64", [-1], minimum=0, maximum=120)


def served(*specs: TensorSpec, **options: Any) -> InferenceServer:
    server = InferenceServer()
    server.register("m", lambda **inputs: len(inputs), inputs=specs, **options)
    return server


@pytest.mark.parametrize(
    ("spec", "inside", "outside", "text"),
    [
        (AGE, [0, 120], [5, 121, -1], "input 'age', row 1: 121 is out of range: expected 0 to 120"),
        (TensorSpec("age", "INT64", [-1], minimum=0), [2**62], [-1], "input 'age', row 0: -1 is out of range: expected 0 or more"),
        (TensorSpec("age", "UINT8", [-1], minimum=-1, maximum=9), [0], [10], "input 'age', row 0: 10 is out of range: expected -1 to 9"),
        (TensorSpec("age", "FP32", [-1], maximum=0.1), [0.1, np.nan], [0.2], "input 'age', row 0: 0.20000000298023224 is out of range: "),
        (
            TensorSpec("age", "FP64", [-1, 2], maximum=1),
            [[1, 1]],
            [[0, 1], [0, 2]],
            "input 'age', row 1, column 1: 2.0 is out of range: expected 1 or less",
        ),
        (TensorSpec("age", "INT64", [-1], maximum=2.0**53), [2**53], [2**53 + 1], "input 'age', row 0: 9007199254740993 is out of range: "),
        (TensorSpec("age", "INT64", [-1], minimum=0.5), [1], [0], "input 'age', row 0: 0 is out of range: expected 0.5 or more"),
        (TensorSpec("age", "FP64", [], maximum=1), 1, 2, "input 'age', row 0: 2.0 is out of range"),
        (TensorSpec("age", "FP64", [-1, 1, 1], maximum=1), [[[1]]], [[[1]], [[2]]], "input 'age', row 1: 2.0 is out of range"),
        (
            TensorSpec("age", "FP64", [-1, 2, 2], maximum=1),
            [[[1, 1], [1, 1]]],
            [[[1, 1], [2, 1]]],
            "input 'age', row 0, element [1, 0]: 2.0 is out of range",
        ),
        (TensorSpec("age", "FP64", [-1], maximum=1), [], [np.inf], "input 'age', row 0: inf is out of range"),
    ],
)
def test_what_is_outside_is_refused(spec: TensorSpec, inside: Any, outside: Any, text: str) -> None:
    server = served(spec)
    assert ask_array(server, spec, inside)[0] == 200
    status, message = ask_array(server, spec, outside)
    assert status == 400
    assert message.startswith(text)


def ask_array(server: InferenceServer, spec: TensorSpec, values: Any) -> tuple[int, str]:
    try:
        server.infer_sync("m", {"age": np.array(values, spec.dtype)})
    except Exception as raised:
        return getattr(raised, "status", 0), str(raised)
    return 200, ""


def test_missing_values_are_inside() -> None:
    spec = TensorSpec("age", "INT64", [-1], pd_dtype="Int64", minimum=0)
    server = served(spec, content_type=None)
    assert server.infer_sync("m", {"age": pd.Series([1, None], dtype="Int64")})["output_0"].tolist() == [1]
    with pytest.raises(Exception, match="input 'age', row 1: -1 is out of range: expected 0 or more"):
        server.infer_sync("m", {"age": pd.Series([None, -1], dtype="Int64")})


def test_large_whole_numbers_beside_missing_ones_are_compared_exactly() -> None:
    server = served(TensorSpec("age", "INT64", [-1], pd_dtype="Int64", maximum=2**53))
    assert server.infer_sync("m", {"age": pd.Series([2**53, None], dtype="Int64")})["output_0"].tolist() == [1]
    with pytest.raises(Exception, match="input 'age', row 1: 9007199254740993 is out of range: expected 9007199254740992 or less"):
        server.infer_sync("m", {"age": pd.Series([None, 2**53 + 1], dtype="Int64")})


def ask_texts(text: str, **options: Any) -> tuple[int, str]:
    """What a column of one JSON text is answered."""
    server = InferenceServer()
    server.register("m", lambda df: df["age"].to_numpy(float), content_type="pd", inputs=[TensorSpec("age", **options)])
    column = {"name": "age", "shape": [1], "datatype": "BYTES", "data": [text], "parameters": {"content_type": "pd_json"}}
    body = json.dumps({"inputs": [column]}).encode()
    answer = over_asgi(OIPApp(server), "")(Request("POST", "/models/m/infer", (), body))
    return answer.status, answer.body.decode()


def test_a_json_text_that_nests_too_deep_for_any_reader_is_refused() -> None:
    integers: dict[str, Any] = {"datatype": "INT64", "shape": [-1], "pd_dtype": "Int64", "minimum": 0}
    for depth in (101, 100_000):
        status, text = ask_texts("[" * depth + "]" * depth, **integers)
        assert status == 400
        assert "nested" in text
    assert ask_texts("7", **integers)[0] == 200
    assert ask_texts("-7", **integers)[0] == 400


@pytest.mark.parametrize(("datatype", "bounds"), [("FP16", {"maximum": 1e5}), ("FP32", {"maximum": 10**39}), ("FP32", {"minimum": -1e39})])
def test_a_bound_that_the_datatype_does_not_reach_is_refused(datatype: Any, bounds: Any) -> None:
    with pytest.raises(ValueError, match=f"{datatype} does not reach a bound, so infinity would be inside: leave that bound out"):
        TensorSpec("age", datatype, [-1], **bounds)


def test_requests_that_are_flagged_are_counted_once_each_by_input() -> None:
    server = InferenceServer()

    def stream(age: Any) -> Iterator[Any]:
        yield age
        yield age

    server.register("stream", stream, inputs=[AGE], out_of_range="flag")
    server.register("batch", lambda age: age, inputs=[AGE], out_of_range="flag", max_batch_size=8)
    server.register("slow batch", lambda age: age, inputs=[AGE], out_of_range="flag", max_batch_size=8, max_batch_delay=0.05)
    server.register("cache", lambda age: age, inputs=[AGE], out_of_range="flag", cache=ResponseCache(max_bytes=1000))
    server.register("refuse", lambda age: age, inputs=[AGE])
    server.register("fee", lambda age, fee: age, inputs=[AGE, TensorSpec("fee", "FP64", [-1], maximum=1)], out_of_range="flag")
    for value in (-1, 5, -1):
        parameters = [response.parameters for response in server.infer_stream_sync("stream", {"age": [value]})]
        assert parameters == [{"oip_out_of_range": "age"} if value < 0 else {}] * 2
        for model in ("batch", "cache", "refuse"):
            ask(server, model, age=[value])
        answer = ask(server, "fee", age=[value], fee=[2.0])
    assert json.loads(answer.body)["parameters"] == {"oip_out_of_range": "age, fee"}

    async def together() -> list[Any]:
        pair = await asyncio.gather(*(server.infer("slow batch", {"age": [age]}) for age in (-1, 1)))
        return [response.parameters for response in pair]

    assert asyncio.run(together()) == [{"oip_out_of_range": "age"}, {}]
    counted = {status.name: get(server, f"/models/{status.name}/docs/state.json")[1] for status in server.models()}
    flagged = {name: state["outside"] for name, state in counted.items()}
    assert flagged == {
        "stream": {"age": 2},
        "batch": {"age": 2},
        "slow batch": {"age": 1},
        "cache": {"age": 2},
        "refuse": {},
        "fee": {"age": 2, "fee": 3},
    }
    assert counted["fee"]["options"]["out_of_range"] == "flag"
    assert "out_of_range" not in counted["refuse"]["options"]


def test_documents_show_them() -> None:
    server = served(TensorSpec("age", "INT64", [-1], minimum=18, maximum=120))
    assert get(server, "/models/m")[1]["inputs"] == [
        {"name": "age", "datatype": "INT64", "shape": [-1], "parameters": {"minimum": 18, "maximum": 120}}
    ]
    document = json.dumps(server.openapi())
    assert '"minimum": 18, "maximum": 120' in document
    [body] = [operation["post"]["requestBody"] for path, operation in server.openapi()["paths"].items() if path.endswith("/m/generate")]
    assert body["content"]["application/json"]["example"] == {"age": 18}


def test_ranges_of_the_training_data() -> None:
    counts = pd.Series([3, None], dtype="Int64")
    others = {"city": ["a", "b"], "new": [True, False], "none": [None, np.nan], "count": counts, "size": pd.Categorical([2, 1])}
    frame = pd.DataFrame({"age": [20, 30], "fee": [1.5, None], **others})
    found = {spec.name: (spec.minimum, spec.maximum) for spec in specs_of(frame, ranges=True)}
    none = (None, None)
    assert found == {"age": (20, 30), "fee": (1.5, 1.5), "city": none, "new": none, "none": none, "count": (3, 3), "size": none}
    assert all(not spec.bounds for spec in specs_of(frame))
    server = InferenceServer()
    server.register("m", lambda df: len(df), content_type="pd", inputs=specs_of(frame[["age", "fee"]], ranges=True))
    assert error(ask(server, "m", age=[20, 31], fee=[1.5, 1.5])) == (400, "input 'age', row 1: 31 is out of range: expected 20 to 30")


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"minimum": "0"}, TypeError, "minimum= and maximum= are numbers, or left out, not '0'"),
        ({"maximum": float("nan")}, TypeError, "minimum= and maximum= are numbers, or left out, not nan"),
        ({"maximum": True}, TypeError, "minimum= and maximum= are numbers, or left out, not True"),
        ({"minimum": 2, "maximum": 1}, ValueError, "minimum=2 is above maximum=1"),
        ({"datatype": "BYTES", "minimum": 2}, ValueError, "minimum= and maximum= are for numbers"),
    ],
)
def test_what_is_no_range(options: dict[str, Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind) as raised:
        TensorSpec(**{"name": "x", "datatype": "FP32", "shape": [-1], **options})
    assert str(raised.value).endswith(text)


def test_documents_promise_nothing_of_outputs_which_are_not_checked() -> None:
    server, age = InferenceServer(), TensorSpec("age", "FP64", [-1], minimum=0, maximum=9)
    server.register("m", lambda age: age - 9, inputs=[age], outputs=[age])
    assert outputs(ask(server, "m", age=[0.0])) == {"age": [-9.0]}
    described = get(server, "/models/m")[1]
    assert described["inputs"][0]["parameters"] == {"minimum": 0, "maximum": 9}
    assert described["outputs"] == [{"name": "age", "datatype": "FP64", "shape": [-1]}]


def test_what_is_done_with_them_is_checked() -> None:
    with pytest.raises(ValueError, match='out_of_range=\'drop\' must be "refuse" or "flag"'):
        served(AGE, out_of_range="drop")
