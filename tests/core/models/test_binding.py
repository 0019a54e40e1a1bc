"""How a request's tensors become what a model is called with, without a server. The request itself stays as it came."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from oip_asgi import InferenceRequest, Tensor, TensorSpec
from oip_asgi.codecs import NumpyRequestCodec, StringCodec
from tests.support.inside.codecs import Codecs
from tests.support.inside.models import Binding, bind


class Call:
    """One call, as the server makes it."""

    def __init__(self, binding: Binding, request: InferenceRequest, content_type: str | None) -> None:
        self.binding = binding
        self.request = request
        self.tensors = binding.accept_request(request, content_type)
        self.content_type = content_type if binding.request_reader is None else None

    def make_context(self) -> Any:
        raise AssertionError("no model here asks for its context")


def bound(function: Callable[..., Any], *declared: TensorSpec) -> Binding:
    return bind(function, declared, Codecs(), None)


def called_with(binding: Binding, request: InferenceRequest, content_type: str | None = None) -> dict[str, Any]:
    args, kwargs = binding.make_arguments(Call(binding, request, content_type))
    assert not args
    return kwargs


def content_of(request: InferenceRequest) -> list[tuple[Any, ...]]:
    """Everything that a reader of the request's inputs sees, and which objects they are."""
    return [(id(item), item.name, id(item.array), item.array.shape, dict(item.parameters)) for item in request.inputs]


def takes_array(x: Any) -> None: ...


def test_plain_tensors_are_taken_as_the_objects_that_they_are() -> None:
    x, y = Tensor("x", np.ones(2)), Tensor("y", np.ones(2))
    accepted = bound(lambda x, y: None, TensorSpec("x", "FP64", [-1]), TensorSpec("y", "FP64", [2])).accept_request(
        InferenceRequest([x, y]), None
    )
    assert list(accepted) == ["x", "y"]
    assert accepted["x"] is x
    assert accepted["y"] is y


def test_a_single_tensor_of_another_name_is_not_renamed_in_its_request() -> None:
    request = NumpyRequestCodec.encode_request(np.array([1.5, 2.5]))
    before = content_of(request)
    [(name, tensor)] = bound(takes_array).accept_request(request, "np").items()
    assert (name, tensor.name, tensor.parameters) == ("x", "x", {"content_type": "np"})
    assert tensor.array is request.inputs[0].array
    assert content_of(request) == before


def test_a_tensor_is_not_reshaped_in_its_request() -> None:
    request = InferenceRequest([Tensor("x", np.ones((2, 1)), {"content_type": "np"})])
    before = content_of(request)
    accepted = bound(takes_array, TensorSpec("x", "FP64", [-1])).accept_request(request, None)
    assert (accepted["x"].shape, accepted["x"].parameters) == ((2,), {"content_type": "np"})
    assert content_of(request) == before


def test_declared_content_types_of_columns_are_not_written_into_the_request() -> None:
    def frame(df: pd.DataFrame) -> None: ...

    binding = bound(frame, TensorSpec("a", "BYTES", [-1], content_type="base64"), TensorSpec("b", "INT64", [-1]))
    request = InferenceRequest([Tensor("a", np.array([b"YQ=="], object), {"note": 1}), Tensor("b", np.array([1]))])
    before = content_of(request)
    [df] = called_with(binding, request).values()
    assert df.to_dict("list") == {"a": [b"a"], "b": [1]}
    assert content_of(request) == before


def test_a_model_of_the_whole_request_gets_the_tensors_as_declared() -> None:
    def whole(request: InferenceRequest) -> None: ...

    binding = bound(whole, TensorSpec("x", "BYTES", [-1]))
    came = InferenceRequest([Tensor("x", np.array([[b"a"]], object), {"content_type": "str"})], "7", {"p": 1})
    request = called_with(binding, came)["request"]
    assert (request.id, request.parameters, request.inputs[0].shape) == ("7", {"p": 1}, (1,))
    assert came.inputs[0].shape == (1, 1)
    plain = InferenceRequest([StringCodec.encode_input("x", ["a"])])
    plain.inputs[0].array = plain.inputs[0].array.reshape(1)
    assert called_with(binding, plain)["request"] is plain
