"""The models behind this package, run in one of the ways that a model may be run in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import pandas as pd

from oip_asgi import InferenceServer, TensorSpec

from .functions import classifier, clicks, computes, has_onnx, identity, onnx, sleeps

Run: TypeAlias = Literal["async", "inline", "thread"]


def make_identity_server(run: Run) -> InferenceServer:
    """A server with the models `identity` of FP32, `strings` of BYTES and `frame` of any columns."""
    server = InferenceServer("bench")
    for name, datatype, shape in (("identity", "FP32", [-1, -1]), ("strings", "BYTES", [-1])):
        x, y = TensorSpec("x", datatype, shape), TensorSpec("y", datatype, shape)  # type: ignore[arg-type]
        server.register(name, _of_arrays(run, identity), inputs=[x], outputs=[y], run=_where(run))
    server.register("frame", _of_frames(run, identity), run=_where(run))
    return server


def make_server(run: Run) -> InferenceServer:
    """The identity models, and beside them `digits`, `onnx` and `clicks`. `sleeps` and `computes` are for worker threads only."""
    server = make_identity_server(run)
    image, digit = TensorSpec("image", "FP32", [-1, 64]), TensorSpec("digit", "INT64", [-1])
    for name, predict in ({"digits": classifier().predict} | ({"onnx": onnx()} if has_onnx() else {})).items():
        server.register(name, _of_arrays(run, predict), inputs=[image], outputs=[digit], run=_where(run))
    server.register("clicks", _of_frames(run, clicks), run=_where(run))
    if run == "thread":
        for function in (sleeps, computes):
            server.register(function.__name__, function, inputs=[TensorSpec("x", "FP32", [-1, 4])], max_queue=100)
    return server


def _where(run: Run) -> Literal["inline", "thread"]:
    return "inline" if run == "inline" else "thread"


def _of_frames(run: Run, function: Callable[[Any], pd.DataFrame]) -> Callable[[Any], Any]:
    """The function with the type by which the package knows that it takes data frames."""

    def called(df: pd.DataFrame) -> pd.DataFrame:
        return function(df)

    async def awaited(df: pd.DataFrame) -> pd.DataFrame:
        return function(df)

    return awaited if run == "async" else called


def _of_arrays(run: Run, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    async def awaited(x: Any) -> Any:
        return function(x)

    return awaited if run == "async" else function
