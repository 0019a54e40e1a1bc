"""How a request's tensors become what a model is called with: what the model gets, while the request itself stays as it came."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from oip_asgi import InferenceRequest, InferenceServer, Tensor, TensorSpec
from oip_asgi.codecs import NumpyRequestCodec


def takes_array(x: Any) -> Any:
    return x


def takes_frame(df: pd.DataFrame) -> Any:
    assert df.to_dict("list") == {"a": [b"a"], "b": [1]}
    return df["b"].to_numpy()


def takes_whole(request: InferenceRequest, **inputs: Any) -> Any:
    assert (request.id, request.parameters, request.inputs[0].shape) == ("7", {"p": 1}, (1,))
    return request.inputs[0].array


X = TensorSpec("x", "FP64", [-1])
OF_FRAME = [TensorSpec("a", "BYTES", [-1], content_type="base64"), TensorSpec("b", "INT64", [-1])]


@pytest.mark.parametrize(
    ("function", "specs", "request_of", "answer"),
    [
        pytest.param(takes_array, [], NumpyRequestCodec.encode_request(np.array([1.5, 2.5])), [[1.5], [2.5]], id="another name"),
        pytest.param(
            takes_array, [X], InferenceRequest([Tensor("x", np.ones((2, 1)), {"content_type": "np"})]), [1.0, 1.0], id="another shape"
        ),
        pytest.param(
            takes_frame,
            OF_FRAME,
            InferenceRequest([Tensor("a", np.array([b"YQ=="], object), {"note": 1}), Tensor("b", np.array([1]))]),
            [1],
            id="columns of a content type",
        ),
        pytest.param(
            takes_whole,
            [TensorSpec("x", "BYTES", [-1])],
            InferenceRequest([Tensor("x", np.array([[b"a"]], object), {"content_type": "str"})], "7", {"p": 1}),
            [b"a"],
            id="the whole request",
        ),
    ],
)
def test_what_a_model_gets_is_not_written_into_the_request(
    function: Callable[..., Any], specs: list[TensorSpec], request_of: InferenceRequest, answer: list[Any]
) -> None:
    def content() -> Any:
        """Everything that a reader of the request's inputs sees, and which objects they are."""
        inputs = [(id(each), each.name, id(each.array), each.array.shape, dict(each.parameters)) for each in request_of.inputs]
        return inputs, request_of.id, dict(request_of.parameters)

    server = InferenceServer()
    server.register("m", function, inputs=specs)
    before = content()
    tensors = {each.name: each for each in request_of.inputs}
    response = server.infer_sync("m", tensors, parameters=request_of.parameters, id=request_of.id)
    assert response.outputs[0].array.tolist() == answer
    assert content() == before
