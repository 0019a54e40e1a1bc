"""The benchmark of batches serves the same digits each way."""

from __future__ import annotations

import json
import warnings

import pytest

from tests.support.ways import Request, over_asgi

from .batching import WAYS, make_app
from .peers.batching_models import images, models


@pytest.mark.slow
def test_each_way_answers_as_the_model() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the models need not be good ones
        app, predicts = make_app(), models()
    send = over_asgi(app, "/v2")
    for name, predict in predicts.items():
        for suffix in WAYS.values():
            inputs = [{"name": "x", "shape": [2, 64], "datatype": "FP32", "data": images()[:2].ravel().tolist()}]
            path = f"/models/{name}{suffix}/infer".replace(" ", "%20")
            answer = send(Request("POST", path, (), json.dumps({"inputs": inputs}).encode()))
            assert json.loads(answer.body)["outputs"][0]["data"] == predict(images()[:2]).tolist()
