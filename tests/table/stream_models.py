"""The server that the table of streams is asked of."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np

from oip_asgi import InferenceContext, InferenceError, InferenceResponse, InferenceServer, Tensor, TensorSpec
from tests.table.row_classes import register_streams

HAS_PANDAS = find_spec("pandas") is not None
"""Whether the table has the rows of data frames. Hosts are also tested without pandas."""

if HAS_PANDAS:
    import pandas as pd

MANY = 4097
"""One more column than a data frame may have that is not declared."""

TEXT = TensorSpec("text_input", "BYTES", [1])
GRID = TensorSpec("grid", "FP32", [-1, 2, -1])


def stream_server() -> InferenceServer:
    """The server that the table is asked of."""
    server = InferenceServer()

    @server.model("words", inputs=[TEXT], outputs=[TensorSpec("text_output", "BYTES", [-1])])
    async def words(text_input: list[str]) -> AsyncIterator[list[str]]:
        for word in text_input[0].split():
            yield [word]

    @server.model("count")
    def count(n: Any, start: Any = np.zeros(1, "i8")) -> Iterator[Any]:
        for number in range(int(n[0])):
            yield start + number

    @server.model("lists")
    def lists(n: Any) -> Iterator[Any]:
        yield from (np.arange(number) for number in range(int(n[0])))

    server.register("plain", lambda x: x * 2)
    server.register("grid", lambda grid: grid, inputs=[GRID])
    server.register("versioned", lambda x: x, version="7")
    server.register("parameters", lambda: InferenceResponse([Tensor("y", np.ones(1))], {"seen": True}))
    server.register("bytes", lambda: np.array([b"\xff"], object))
    server.register("clash", lambda: {"model_name": np.ones(1)})
    server.register("stops", lambda stop: stop, inputs=[TensorSpec("stop", "BYTES", [-1])])
    server.register("rounds", lambda: [2**53 + 1, 0.5])
    server.register("inputs", lambda inputs: inputs)

    @server.model("scaled", inputs=[TensorSpec("x", "INT64", [-1])])
    def scaled(x: Any, factor: int = 2, offset: int = 0) -> Iterator[Any]:
        yield x * factor + offset

    register_streams(server)
    if HAS_PANDAS:
        _register_frames(server)

    def raises_at_once(x: Any) -> Iterator[Any]:
        refuse("the teapot is short and stout")
        yield x

    async def raises_later(x: Any) -> AsyncIterator[Any]:
        yield x
        refuse("the teapot is empty")

    def yields_nothing(x: Any) -> Iterator[Any]:
        yield from ()

    server.register("raises at once", raises_at_once)
    server.register("raises later", raises_later)
    server.register("yields nothing", yields_nothing)

    @server.model("the last")
    async def the_last(n: Any) -> AsyncIterator[Any]:
        yield n
        yield InferenceResponse([Tensor("output_0", n)], {"triton_final_response": True})  # a model may know which one is its last

    return server


def _register_frames(server: InferenceServer) -> None:
    @server.model("frame")
    def frame(frame: pd.DataFrame, context: InferenceContext) -> InferenceResponse:
        described = [f"{name} {kind}: {frame[name].tolist()}" for name, kind in frame.dtypes.items()]
        return InferenceResponse([Tensor("y", np.array([*described, f"{dict(context.parameters)}"], object))])

    @server.model("frame and n")
    def frame_and_n(frame: pd.DataFrame, n: int, scale: float = 1.0) -> np.ndarray:
        return frame.sum(axis=1).to_numpy() * n * scale

    texts = Tensor("y", np.array(["1, 2", "["]), {"content_type": "pd_json"})
    server.register("no JSON", lambda: InferenceResponse([texts]))

    @server.model("found")
    def found(frame: pd.DataFrame) -> pd.DataFrame:
        cities = [{1: "Bonn", 2: 'a "b"'}.get(key) for key in frame["key"]]
        known = [key if key < 3 else None for key in frame["key"]]
        return pd.DataFrame({"city": cities, "n": pd.array(known, dtype="Int64"), "is": pd.array([k and k > 1 for k in known], "boolean")})

    server.register("identified", lambda df: df["id"], content_type="pd", inputs=[TensorSpec("id", "BYTES", [-1])])
    server.register("declared frame", lambda df: df["a"], content_type="pd", inputs=[TensorSpec("a", "INT64", [-1])])

    @server.model("parameters of a frame", content_type="pd", inputs=[TensorSpec("a", "INT64", [-1])])
    def parameters_of_a_frame(df, context: InferenceContext):  # type: ignore[no-untyped-def]
        return [f"{dict(context.parameters)}"]

    ages, cities = TensorSpec("age", "FP64", [-1]), TensorSpec("city", "BYTES", [-1], content_type="str")

    @server.model("missing", content_type="pd", inputs=[ages, cities, TensorSpec("born", "BYTES", [-1], content_type="datetime")])
    def missing(df):  # type: ignore[no-untyped-def]
        year = df["born"].dt.year.to_numpy(np.float64)
        return {"age": df["age"].to_numpy(), "city": [city if isinstance(city, str) else "missing" for city in df["city"]], "year": year}

    wide = [TensorSpec(str(place), "INT64", [-1]) for place in range(MANY)]
    server.register("wide", lambda df: df.shape[1], content_type="pd", inputs=wide)

    day = TensorSpec("day", "BYTES", [-1], content_type="datetime", pd_dtype="datetime64[ns, Asia/Tokyo]")
    for name, spec in (("zoned", day), ("not zoned", dataclasses.replace(day, pd_dtype="datetime64[ns]"))):
        server.register(name, lambda df: [moment.isoformat() for moment in df["day"]], content_type="pd", inputs=[spec])


def refuse(text: str) -> None:
    raise InferenceError(text, status=418)
