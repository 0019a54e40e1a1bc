"""The models behind this package, run in one of the ways that a model may be run in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pandas as pd

from oip_asgi import InferenceServer, TensorSpec

from ..models import Run, make_server
from .functions import classifier, clicks, computes, has_onnx, onnx, sleeps


def make_real_server(run: Run) -> InferenceServer:
    """The identity models, and beside them `digits`, `onnx` and `clicks`. `sleeps` and `computes` are for worker threads only."""
    server = make_server(run)
    where: Literal["inline", "thread"] = "inline" if run == "inline" else "thread"
    image, digit = TensorSpec("image", "FP32", [-1, 64]), TensorSpec("digit", "INT64", [-1])
    models = {"digits": classifier().predict} | ({"onnx": onnx()} if has_onnx() else {})
    for name, predict in models.items():
        server.register(name, _awaited(predict) if run == "async" else predict, inputs=[image], outputs=[digit], run=where)

    async def awaited_clicks(df: pd.DataFrame) -> pd.DataFrame:
        return clicks(df)

    def called_clicks(df: pd.DataFrame) -> pd.DataFrame:
        return clicks(df)

    server.register("clicks", awaited_clicks if run == "async" else called_clicks, run=where)
    if run == "thread":
        for function in (sleeps, computes):
            server.register(function.__name__, function, inputs=[TensorSpec("x", "FP32", [-1, 4])], max_queue=100)
    return server


def _awaited(predict: Callable[[Any], Any]) -> Callable[[Any], Any]:
    async def predicted(image: Any) -> Any:
        return predict(image)

    return predicted
