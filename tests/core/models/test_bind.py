"""What a callable's signature decides, and what becomes of its result, without a server: nothing here is ever called with a request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

import numpy as np
import pytest

from oip_asgi import InferenceContext, InferenceRequest, InferenceResponse, RequestOutput, Tensor, TensorSpec
from tests.support.inside.codecs import Codecs
from tests.support.inside.models import Binding, Outputs, bind, check_requested, select_outputs, to_response
from tests.support.inside.values import InvalidRequest, ModelFault

CODECS = Codecs()
X, Y = TensorSpec("x", "FP32", [-1, 2]), TensorSpec("y", "INT64", [1])


def bound(function: Callable[..., Any], *declared: TensorSpec) -> Binding:
    return bind(function, declared, CODECS, None)


class Given:
    """One call, as the server makes it."""

    content_type = None

    def __init__(self, binding: Binding, request: InferenceRequest) -> None:
        self.binding = binding
        self.request = request
        self.tensors = binding.accept_request(request, None)

    def make_context(self) -> Any:
        return "context"


def by_name(x: Any, bias: Any = 0.0) -> Any: ...


def in_place(x: Annotated[np.ndarray, X], y: Annotated[np.ndarray, Y]) -> Annotated[np.ndarray, TensorSpec("z", "FP32", [-1])]:
    return x


def of_request(request: InferenceRequest, context: InferenceContext) -> Any: ...


def of_rest(x: Any, **others: Any) -> Any: ...


def by_place(data: Any, /) -> Any: ...


@pytest.mark.parametrize(
    ("function", "declared", "inputs", "named", "places", "keywords", "has_rest"),
    [
        (by_name, [], [], {"x", "bias"}, 0, ["x", "bias"], False),
        (by_name, [X], [X], {"x"}, 0, ["x"], False),
        (in_place, [], [X, Y], {"x", "y"}, 0, ["x", "y"], False),
        (of_request, [], [], set(), 0, ["request", "context"], False),
        (of_rest, [], [], {"x"}, 0, ["x"], True),
        (by_place, [X], [X], {"x"}, 1, [], False),
        (np.negative, [X], [X], {"x"}, 1, [], False),
        (np.add, [X, Y], [X, Y], {"x", "y"}, 2, [], False),
    ],
)
def test_where_each_argument_comes_from(
    function: Callable[..., Any],
    declared: list[TensorSpec],
    inputs: list[TensorSpec],
    named: set[str],
    places: int,
    keywords: list[str],
    has_rest: bool,
) -> None:
    binding = bound(function, *declared)
    assert list(binding.inputs) == inputs
    assert binding.named == named
    request = InferenceRequest([Tensor(spec.name, np.zeros([max(size, 1) for size in spec.shape], spec.dtype)) for spec in inputs])
    if not declared:
        request.inputs += [Tensor(name, np.zeros(1)) for name in named - {spec.name for spec in inputs}]
    args, kwargs = binding.make_arguments(Given(binding, request))
    assert (len(args), list(kwargs), binding.rest is not None) == (places, keywords, has_rest)


def test_a_return_annotation_declares_outputs() -> None:
    assert [spec.name for spec in bound(in_place).returned.specs] == ["z"]
    assert bound(by_name).returned.specs == ()


def takes_set(x: set[int]) -> Any: ...


def takes_two(x: Any, y: Any, /) -> Any: ...


@pytest.mark.parametrize(
    ("function", "declared", "problem"),
    [
        (takes_set, [], r"parameter 'x' is annotated set\[int\], which no tensor can become"),
        (lambda x: x, [X, Y], r"has no parameter for the declared inputs \['y'\]"),
        (takes_two, [X], r"parameter 'y' is not among the declared inputs \['x'\]"),
        (np.negative, [X, Y], "negative takes 1 inputs, but 2 are declared"),
    ],
)
def test_what_no_request_could_ever_call_is_refused_at_once(function: Callable[..., Any], declared: list[TensorSpec], problem: str) -> None:
    with pytest.raises(TypeError, match=problem):
        bound(function, *declared)


def responded(result: Any, *declared: TensorSpec, asked: Mapping[str, str] | None = None) -> list[tuple[str, str, tuple[int, ...]]]:
    outputs = Outputs(declared, bound(by_name).returned, CODECS)
    return [(tensor.name, tensor.datatype, tensor.shape) for tensor in to_response(result, outputs, asked or {}).outputs]


@pytest.mark.parametrize(
    ("result", "declared", "expected"),
    [
        (np.zeros((3, 2), "f4"), [], [("output_0", "FP32", (3, 2))]),
        (np.zeros((3, 2), "f4"), [X], [("x", "FP32", (3, 2))]),
        (np.zeros((3, 2), "f8"), [X], [("x", "FP32", (3, 2))]),
        ((1, 2.5), [], [("output_0", "INT64", (1,)), ("output_1", "FP64", (1,))]),
        ({"y": np.array([7]), "x": np.zeros((1, 2), "f4")}, [X, Y], [("x", "FP32", (1, 2)), ("y", "INT64", (1,))]),
        ([np.zeros(2), np.ones(2)], [], [("output_0", "FP64", (2, 2))]),
        (InferenceResponse([Tensor("any", np.array([b"a"], object))]), [], [("any", "BYTES", (1,))]),
    ],
)
def test_a_result_becomes_tensors(result: Any, declared: list[TensorSpec], expected: list[tuple[str, str, tuple[int, ...]]]) -> None:
    assert responded(result, *declared) == expected


@pytest.mark.parametrize(
    ("result", "declared", "problem"),
    [
        (None, [], "gave None"),
        (np.zeros((3, 3), "f4"), [X], r"has shape \[3, 3\], but \[-1, 2\] is declared"),
        (np.array([[1.5, 1e300]]), [X], "do not fit"),
        ({"x": np.zeros((1, 2), "f4")}, [X, Y], r"outputs \['x'\] came back, but \['x', 'y'\] are declared"),
        (np.zeros(2, "c8"), [], "no datatype"),
    ],
)
def test_a_result_that_breaks_its_declaration_is_the_models_fault(result: Any, declared: list[TensorSpec], problem: str) -> None:
    with pytest.raises(ModelFault, match=problem):
        responded(result, *declared)


def test_outputs_come_in_the_order_in_which_they_are_asked_for() -> None:
    tensors = [Tensor(name, np.zeros(1)) for name in "abc"]
    assert select_outputs(tensors, [RequestOutput("c"), RequestOutput("a")]) == [tensors[2], tensors[0]]
    with pytest.raises(InvalidRequest, match="unknown output 'd': expected 'a', 'b', 'c'"):
        select_outputs(tensors, [RequestOutput("d")])
    with pytest.raises(InvalidRequest, match="output 'a' is asked for twice"):
        check_requested([RequestOutput("a"), RequestOutput("a")], ["a"])
