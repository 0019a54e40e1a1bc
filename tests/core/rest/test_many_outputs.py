"""A response of more outputs than are written in one piece is the same document as one of few."""

from __future__ import annotations

import json

import numpy as np
import pytest

from oip_asgi import InferenceRequest, InferenceResponse, Tensor
from tests.support.inside import encode_response


@pytest.mark.parametrize("is_binary", [False, True])
def test_many_outputs_are_one_list(is_binary: bool) -> None:
    tensors = [Tensor(f"y{number}", np.array([number, -number], np.int16)) for number in range(20_000)]
    request = InferenceRequest([], parameters={"binary_data_output": True} if is_binary else {})
    response = InferenceResponse(tensors, id="1", model_name="m", parameters={"a": "b"})
    text, binary = encode_response(response, request)
    document = json.loads(text)
    assert (document["model_name"], document["id"], document["parameters"]) == ("m", "1", {"a": "b"})
    assert [output["name"] for output in document["outputs"]] == [tensor.name for tensor in tensors]
    if is_binary:
        assert b"".join(binary) == b"".join(tensor.array.tobytes() for tensor in tensors)
        assert {output["parameters"]["binary_data_size"] for output in document["outputs"]} == {4}
    else:
        assert binary == []
        assert [output["data"] for output in document["outputs"]] == [[number, -number] for number in range(20_000)]
