"""The identity models that the rows ask for, run in each of the ways that a model may be run in."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import pandas as pd

from oip_asgi import InferenceServer, TensorSpec

Run: TypeAlias = Literal["async", "inline", "thread"]


def make_server(run: Run) -> InferenceServer:
    """A server with the models `identity` of FP32, `strings` of BYTES and `frame` of any columns."""
    server = InferenceServer("bench")
    tensor, frame = (_awaited, _awaited_frame) if run == "async" else (_identity, _frame)
    where: Literal["inline", "thread"] = "inline" if run == "inline" else "thread"
    for name, datatype, shape in (("identity", "FP32", [-1, -1]), ("strings", "BYTES", [-1])):
        x, y = TensorSpec("x", datatype, shape), TensorSpec("y", datatype, shape)  # type: ignore[arg-type]
        server.register(name, tensor, inputs=[x], outputs=[y], run=where)
    server.register("frame", frame, run=where)
    return server


def _identity(x: Any) -> Any:
    return x


async def _awaited(x: Any) -> Any:
    return x


def _frame(df: pd.DataFrame) -> pd.DataFrame:
    return df


async def _awaited_frame(df: pd.DataFrame) -> pd.DataFrame:
    return df
