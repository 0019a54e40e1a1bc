"""Parameters that are Python scalars: as inputs of one element, as parameters of a request, in the metadata, and what is refused."""

from __future__ import annotations

import asyncio
import functools
import json
import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
import pytest

from oip_asgi import InferenceContext, InferenceError, InferenceRequest, InferenceServer, OIPApp, TensorSpec
from tests.support.asking import ask, error, get, outputs
from tests.support.ways import Request, over_asgi

X = [1.0, 2.0]


def above(x: Any, threshold: float = 0.5, count: int = 1, strict: bool = False, unit: str = "cm") -> Any:
    assert (type(threshold), type(count), type(strict), type(unit)) == (float, int, bool, str)
    return np.array([f"{threshold} {count} {strict} {unit}"])


@pytest.fixture
def server() -> InferenceServer:
    server = InferenceServer()
    server.register("m", above)
    return server


def said(server: InferenceServer, more: Any = None, **inputs: Any) -> str:
    [text] = outputs(ask(server, "m", more, x=X, **inputs))["output_0"]
    return str(text)


def test_scalars_are_inputs_of_one_element(server: InferenceServer) -> None:
    assert said(server) == "0.5 1 False cm"
    for shape in ((1,), (), (1, 1)):
        given: dict[str, Any] = {"threshold": np.float32(0.25), "count": np.int32(7), "strict": np.True_, "unit": np.array("naïve", object)}
        assert said(server, **{name: np.reshape(value, shape) for name, value in given.items()}) == "0.25 7 True naïve"


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("threshold", np.float16(0.5), "0.5"),
        ("threshold", np.float64(0.1), "0.1"),
        ("threshold", np.uint64(2**40), "1099511627776.0"),
        ("count", np.int8(-1), "-1"),
        ("count", np.uint64(2**64 - 1), "18446744073709551615"),
    ],
)
def test_which_datatypes_are_read(server: InferenceServer, name: str, value: Any, text: str) -> None:
    assert text in said(server, **{name: value}).split()


def test_scalars_are_parameters_of_the_request(server: InferenceServer) -> None:
    parameters = {"threshold": 2, "count": -3, "strict": True, "unit": "m"}
    assert said(server, {"parameters": parameters}) == "2.0 -3 True m"
    assert said(server, {"parameters": {"threshold": 1e300}}, count=np.int64(4)) == "1e+300 4 False cm"


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("threshold", "1", "parameters['threshold'] is '1': expected a number"),
        ("threshold", True, "parameters['threshold'] is True: expected a number"),
        ("count", 1.5, "parameters['count'] is 1.5: expected an integer"),
        ("count", False, "parameters['count'] is False: expected an integer"),
        ("strict", 1, "parameters['strict'] is 1: expected true or false"),
        ("unit", 5, "parameters['unit'] is 5: expected a string"),
    ],
)
def test_a_parameter_of_another_type_is_refused(server: InferenceServer, name: str, value: Any, text: str) -> None:
    assert error(ask(server, "m", {"parameters": {name: value}}, x=X)) == (400, text)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("threshold", ["a"], "input 'threshold' has datatype BYTES: expected FP64 or FP16 or BF16 or FP32 or INT64"),
        ("threshold", [0.5, 0.6], "input 'threshold' has shape [2]: expected [1] or [] for float"),
        ("threshold", np.empty(0), "input 'threshold' has shape [0]: expected [1] or [] for float"),
        ("count", [1.0], "input 'count' has datatype FP64: expected INT64 or INT8"),
        ("strict", [1], "input 'strict' has datatype INT64: expected BOOL for bool"),
        ("unit", [1], "input 'unit' has datatype INT64: expected BYTES for str"),
    ],
)
def test_an_input_that_is_no_such_scalar_is_refused(server: InferenceServer, name: str, value: Any, text: str) -> None:
    status, found = error(ask(server, "m", x=X, **{name: value}))
    assert status == 400
    assert found.startswith(text)


def test_a_text_that_is_not_utf_8_is_refused(server: InferenceServer) -> None:
    head = json.dumps({
        "inputs": [
            {"name": "x", "datatype": "FP64", "shape": [1], "data": [1]},
            {"name": "unit", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": 5}},
        ]
    }).encode()  # fmt: skip
    headers = (("inference-header-content-length", str(len(head))),)
    answer = over_asgi(OIPApp(server), "")(Request("POST", "/models/m/infer", headers, head + b"\1\0\0\0\xff"))
    assert error(answer)[0] == 400
    assert error(answer)[1].startswith(r"input 'unit' is b'\xff', which is not UTF-8")


def test_a_scalar_without_default_must_be_there(server: InferenceServer) -> None:
    def times(x: Any, factor: float) -> Any:
        return x * factor

    server.register("times", times)
    text = "missing input 'factor': send it as an input of shape [1], or among the request's parameters"
    assert error(ask(server, "times", x=X)) == (400, text)
    assert outputs(ask(server, "times", x=X, factor=[3.0])) == {"output_0": [3.0, 6.0]}
    assert outputs(ask(server, "times", {"parameters": {"factor": 3}}, x=X)) == {"output_0": [3.0, 6.0]}


def test_optional_scalars(server: InferenceServer) -> None:
    def label(x: Any, name: str | None = None) -> Any:
        return np.array([repr(name)])

    server.register("label", label)
    assert outputs(ask(server, "label", x=X)) == {"output_0": ["None"]}
    assert outputs(ask(server, "label", {"parameters": {"name": "a"}}, x=X)) == {"output_0": ["'a'"]}


RESERVED = [
    *("binary_data_output", "classification", "content_type", "headers", "priority", "sequence_end", "sequence_id", "sequence_start"),
    *("shared_memory_byte_size", "shared_memory_offset", "shared_memory_region", "timeout"),
]


@pytest.mark.parametrize("scalar", ["int = 5", "int", "str | None = None"])
def test_a_scalar_that_would_never_get_its_value(server: InferenceServer, scalar: str) -> None:
    for name in RESERVED:
        made: dict[str, Any] = {}
        exec(f"def waits(x, {name}: {scalar}): ...", made)
        text = (
            f"waits(x, {name}): the protocol itself uses the parameter '{name}' of a request, so a scalar of this name never gets its "
            f"value: rename it, or take `context: InferenceContext` and read context.parameters.get('{name}')"
        )
        with pytest.raises(TypeError, match=re.escape(text)):
            server.register("waits", made["waits"])


def test_a_declared_input_may_have_the_name_of_the_protocols_own_parameter(server: InferenceServer) -> None:
    def waits(x: Any, timeout: int = 5) -> Any:
        return np.array([timeout])

    server.register("waits", waits, inputs=[TensorSpec("x", "FP64", [-1]), TensorSpec("timeout", "INT64", [1])])
    assert outputs(ask(server, "waits", {"parameters": {"timeout": 10**7}}, x=X)) == {"output_0": [5]}
    assert outputs(ask(server, "waits", x=X, timeout=[7])) == {"output_0": [7]}
    server.register("bound", functools.partial(waits, timeout=6))
    assert outputs(ask(server, "bound", {"parameters": {"timeout": 10**7}}, x=X)) == {"output_0": [6]}


def test_metadata_and_content_types(server: InferenceServer) -> None:
    document = get(server, "/models/m")[1]
    assert document["inputs"] == [
        {"name": "threshold", "datatype": "FP64", "shape": [1]},
        {"name": "count", "datatype": "INT64", "shape": [1]},
        {"name": "strict", "datatype": "BOOL", "shape": [1]},
        {"name": "unit", "datatype": "BYTES", "shape": [1]},
    ]
    assert document["parameters"] == {"undeclared_inputs": "x"}
    config = get(server, "/models/m/config")[1]
    assert [(each["name"], each["optional"]) for each in config["input"]] == [
        (name, True) for name in ("threshold", "count", "strict", "unit")
    ]
    # MLServer's clients call the only tensor of a model what they like: scalars do not count for that
    body = {"parameters": {"content_type": "np"}}
    assert outputs(ask(server, "m", body, **{"input-1": np.array([[1.0]])})) == {"output_0": ["0.5 1 False cm"]}


def test_declared_scalars(server: InferenceServer) -> None:
    def scaled(x: Any, factor: float = 2) -> Any:
        return x * factor

    specs = [TensorSpec("x", "FP64", [-1]), TensorSpec("factor", "FP32", [1])]
    server.register("scaled", scaled, inputs=specs)
    assert [each["name"] for each in get(server, "/models/scaled")[1]["inputs"]] == ["x", "factor"]
    assert outputs(ask(server, "scaled", {"parameters": {"factor": 3}}, x=X)) == {"output_0": [3.0, 6.0]}
    assert ask(server, "scaled", x=X, factor=[3.0]).status == 400

    def in_place(
        x: Annotated[np.ndarray, TensorSpec("x", "FP64", [-1])], factor: Annotated[float, TensorSpec("factor", "FP32", [1])] = 2
    ) -> Any:
        return x * factor

    server.register("in place", in_place)
    assert outputs(ask(server, "in%20place", {"parameters": {"factor": 3}}, x=X)) == {"output_0": [3.0, 6.0]}


def test_declared_inputs_leave_scalars_as_they_are(server: InferenceServer) -> None:
    server.register("closed", above, inputs=[TensorSpec("x", "FP64", [-1])])
    expected = get(server, "/models/m")[1]["inputs"]
    assert get(server, "/models/closed")[1]["inputs"] == [{"name": "x", "datatype": "FP64", "shape": [-1]}, *expected]
    assert outputs(ask(server, "closed", {"parameters": {"threshold": 2}}, x=X, count=[3])) == {"output_0": ["2.0 3 False cm"]}
    assert outputs(ask(server, "closed", x=X)) == {"output_0": ["0.5 1 False cm"]}

    def times(v: Any, factor: float) -> Any:
        return v * factor

    # `v` is the one that can be `x`, as `factor` is a scalar
    server.register("times", times, inputs=[TensorSpec("x", "FP64", [-1])])
    assert outputs(ask(server, "times", {"parameters": {"factor": 3}}, x=X)) == {"output_0": [3.0, 6.0]}
    assert error(ask(server, "times", x=X))[1].startswith("missing input 'factor': send it as an input of shape [1]")
    schemas = get(server, "/models/times/openapi.json")[1]["components"]["schemas"]
    inputs = schemas["OipRequest_times"]["properties"]["inputs"]
    assert (inputs["minItems"], inputs["maxItems"]) == (1, 2)

    def waits(x: Any, timeout: int = 5) -> Any: ...

    with pytest.raises(TypeError, match="the protocol itself uses the parameter 'timeout'"):
        server.register("waits", waits, inputs=[TensorSpec("x", "FP64", [-1])])


def test_a_content_type_for_all_inputs_is_not_for_scalars(server: InferenceServer) -> None:
    def years(when: Any, offset: int = 0) -> Any:
        return [date.year + offset for date in when]

    server.register("years", years, content_type="datetime", inputs=[TensorSpec("when", "BYTES", [-1])])
    assert outputs(ask(server, "years", {"parameters": {"offset": 2}}, when=["2026-01-31"])) == {"output_0": [2028]}


def test_a_data_frame_beside_scalars(server: InferenceServer) -> None:
    def over(frame: pd.DataFrame, threshold: float = 1.5) -> Any:
        return (frame["b"] - frame["a"]).to_numpy() > threshold

    columns = [TensorSpec("a", "FP64", [-1]), TensorSpec("b", "FP64", [-1])]
    server.register("over", over, inputs=columns)
    columns_of_two = {"a": [1.0, 1.0], "b": [2.0, 3.0]}
    assert outputs(ask(server, "over", **columns_of_two)) == {"output_0": [False, True]}
    assert outputs(ask(server, "over", {"parameters": {"threshold": 0.5}}, **columns_of_two)) == {"output_0": [True, True]}
    assert error(ask(server, "over", {"parameters": {"c": 1}}, **columns_of_two)) == (400, "unknown parameter 'c': expected 'threshold'")


class Estimator:
    """Fitted with a frame, as scikit-learn's."""

    feature_names_in_ = np.array(["a", "b"])

    def predict(self, frame: Any, minus: float = 0.0) -> Any:
        return (frame.to_numpy() @ [10, 1]) - minus


def test_columns_of_an_estimator_are_put_in_order_beside_its_scalars(server: InferenceServer) -> None:
    for name, specs in (("known", []), ("declared", [TensorSpec("b", "INT64", [-1]), TensorSpec("a", "INT64", [-1])])):
        server.register(name, Estimator().predict, content_type="pd", inputs=specs)
        for more, expected in ((None, 12.0), ({"parameters": {"minus": 2}}, 10.0)):
            assert outputs(ask(server, name, more, b=[2], a=[1])) == {"output_0": [expected]}


def test_parameters_of_the_function_that_are_no_scalars(server: InferenceServer) -> None:
    def scaled(x: Any, factor: Any = 2.0, mode: Literal["fast", "slow"] = "fast", window: tuple[int, int] = (0, 9)) -> Any:
        return x.clip(*window) * factor

    server.register("closed", scaled, inputs=[TensorSpec("x", "FP64", [-1])])
    del scaled.__annotations__["mode"]
    server.register("open", scaled)
    text = "the model reads only what it annotates float, int, bool or str from there: send an input, or leave it out"
    for name in ("closed", "open"):
        for parameter in ("factor", "mode", "window"):
            # each would keep its default
            assert error(ask(server, name, {"parameters": {parameter: 1}}, x=X)) == (400, f"parameters['{parameter}']: {text}")
        assert outputs(ask(server, name, {"parameters": {"beam": 1}}, x=X)) == {"output_0": [2.0, 4.0]}
    assert outputs(ask(server, "open", x=X, factor=[3.0])) == {"output_0": [3.0, 6.0]}


def test_the_only_declared_input_is_no_scalar_if_another_parameter_can_take_it(server: InferenceServer) -> None:
    def of_frame(frame: pd.DataFrame, factor: float = 1) -> Any:
        return frame["x"].to_numpy() * factor

    def of_rest(factor: float = 1, **inputs: Any) -> Any:
        return inputs["x"] * factor

    def of_optional(v: Any = None, factor: float = 1) -> Any:
        return v * factor

    for function in (of_frame, of_rest, of_optional):
        server.register(function.__name__, function, inputs=[TensorSpec("x", "FP64", [-1])])
        assert outputs(ask(server, function.__name__, {"parameters": {"factor": 3}}, x=X)) == {"output_0": [3.0, 6.0]}


def test_parameters_that_somebody_else_may_read(server: InferenceServer) -> None:
    def of_context(x: Any, context: InferenceContext, factor: float = 1) -> Any:
        return x * factor * context.parameters["other"]

    def of_request(request: InferenceRequest, factor: float = 1) -> Any:
        return request.inputs[0].array * factor * request.parameters["other"]

    def of_rest(factor: float = 1, **inputs: Any) -> Any:
        return inputs["x"] * factor * 2

    def of_none(x: Any) -> Any:
        return x * 6

    for function in (of_context, of_request, of_rest, of_none):
        server.register(function.__name__, function)
        parameters = {"factor": 3, "other": 2}
        assert outputs(ask(server, function.__name__, {"parameters": parameters}, x=X)) == {"output_0": [6.0, 12.0]}


def test_what_the_page_says_to_declare_keeps_all_that_can_be_sent(server: InferenceServer) -> None:
    def scaled(x: Any, offset: Any = 0, factor: float = 2.0) -> Any:
        return x * factor + offset

    server.register("scaled", scaled)
    document = get(server, "/models/scaled/openapi.json")[1]
    text = document["paths"]["/models/scaled/infer"]["post"]["requestBody"]["description"]
    said = 'inputs=[TensorSpec("x", "FP32", [-1]), TensorSpec("offset", "FP32", [-1]), TensorSpec("factor", "FP64", [1])]'
    assert said in text
    server.register("scaled", scaled, inputs=eval(said.removeprefix("inputs=")), replace=True)
    answer = ask(server, "scaled", {"parameters": {"factor": 3}}, x=np.array(X, "f4"), offset=np.array([1], "f4"))
    assert outputs(answer) == {"output_0": [4.0, 7.0]}


def test_requests_with_the_same_scalars_share_a_call(server: InferenceServer) -> None:
    sizes = []

    def scaled(x: Any, factor: float = 2.0) -> Any:
        sizes.append(len(x))
        return x * factor

    server.register("scaled", scaled, inputs=[TensorSpec("x", "FP64", [-1])], max_batch_size=8, max_batch_delay=0.05, run="thread")

    async def main() -> list[Any]:
        asks: list[Any] = [({}, {}), ({}, {}), ({}, {"factor": 3}), ({}, {"factor": 3}), ({"factor": 4}, {}), ({"factor": 5}, {})]
        responses = await asyncio.gather(*[server.infer("scaled", {"x": X, **own}, parameters=given) for own, given in asks])
        return [response["output_0"].tolist() for response in responses]

    assert asyncio.run(main()) == [[2.0, 4.0], [2.0, 4.0], [3.0, 6.0], [3.0, 6.0], [4.0, 8.0], [5.0, 10.0]]
    assert sorted(sizes) == [2, 2, 4, 4]  # a scalar that is an input is one for all rows


def one_float(x: float) -> Any: ...
def one_int(x: int) -> Any: ...


@pytest.mark.parametrize(
    ("function", "spec", "text"),
    [
        (one_float, TensorSpec("x", "BYTES", [1]), "declared with datatype BYTES, which cannot become float: declare FP64 or FP16 or"),
        (one_int, TensorSpec("x", "FP32", [1]), "declared with datatype FP32, which cannot become int: declare INT64 or"),
        (one_float, TensorSpec("x", "FP32", [4]), "input 'x' is declared with shape [4]: declare [1] for float"),
    ],
)
def test_declarations_that_are_no_scalars(server: InferenceServer, function: Callable[..., Any], spec: TensorSpec, text: str) -> None:
    with pytest.raises(TypeError) as raised:
        server.register("wrong", function, inputs=[spec])
    assert text in str(raised.value)


def test_scalars_from_python_and_as_flat_objects(server: InferenceServer) -> None:
    assert server.infer_sync("m", {"x": X, "threshold": 2, "unit": "m"})["output_0"].tolist() == [b"2.0 1 False m"]
    assert server.infer_sync("m", {"x": X}, parameters={"count": 9})["output_0"].tolist() == [b"0.5 9 False cm"]
    with pytest.raises(InferenceError, match=r"input 'count': data is 1\.5: expected an integer for INT64"):
        server.infer_sync("m", {"x": X, "count": 1.5})
    body = json.dumps({"x": X, "threshold": 1, "strict": True}).encode()
    answer = over_asgi(OIPApp(server), "")(Request("POST", "/models/m/generate", (), body))
    assert json.loads(answer.body)["output_0"] == "1.0 1 True cm"
