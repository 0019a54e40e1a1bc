"""An application for tests of the page in a browser: FastAPI with the models at `/v2`, and all of it once more at `/shop`, behind what
cuts that off without telling, as a proxy does."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import pandas as pd
from fastapi import FastAPI

from oip_asgi import InferenceServer, OIPApp, ResponseCache, TensorSpec
from tests.support.described import described_server
from tests.support.pictures import Picture, PictureCodec

MARKUP = "<img src=x onerror=alert(1)>"
"""The name of a model that must be shown as it is."""


RED = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAMAAAACCAIAAAASFvFNAAAAEElEQVR4nGP8zwAFTDAGAwATKQED8NgHhAAAAABJRU5ErkJggg==")
"""A PNG of 3 by 2 red pixels."""


class Customer(msgspec.Struct):
    age: Annotated[int, msgspec.Meta(ge=0, le=120)]
    plan: Literal["basic", "pro"]
    city: str | None


def make_server() -> InferenceServer:
    server = described_server(codecs=[PictureCodec], model_control=True)

    @server.model("picture")
    def take(picture: Picture) -> Picture:
        return picture

    server.register(MARKUP, lambda x: x)
    server.register("exact", lambda x: x, inputs=[TensorSpec("x", "INT64", [1])], outputs=[TensorSpec("y", "INT64", [1])])

    columns = [TensorSpec("age", "INT64", [-1]), TensorSpec("city", "BYTES", [-1], "str")]

    @server.model("people", inputs=columns, outputs=[TensorSpec("line", "BYTES", [-1])], max_batch_size=8)
    def people(age: Any, city: list[str]) -> list[str]:
        """A line for **each** of them:

        - in the order that they came
        - `age` last
        """
        return [f"{name} {years}" for name, years in zip(city, age, strict=True)]

    @server.model("explained")
    def explained() -> int:
        """What has a long description, as numpy writes it.

        Parameters
        ----------
        none : there is none
            Which takes a few words.

        It goes on for so many words that a phone cannot show them and the form too, and one has to choose which of them to see first. It
        goes on for so many words that a phone cannot show them and the form too.

        >>> explained()
        1
        """
        return 1

    @server.model("raises", inputs=[TensorSpec("x", "FP32", [1])])
    def raises(x: Any) -> Any:
        raise RuntimeError("a secret")

    @server.model("not loaded", load=fail, inputs=[TensorSpec("x", "FP32", [1])])
    def not_loaded(x: Any) -> Any:
        return x

    @server.model("slow stream", inputs=[TensorSpec("prompt", "BYTES", [1])])
    async def slow_stream(prompt: list[str]) -> AsyncIterator[Any]:
        for place in range(4):
            yield np.array([place])
            await asyncio.sleep(0.5)

    loads = itertools.count(1)
    server.register("loaded", load=lambda: (lambda number: lambda: number)(next(loads)))
    contents = iter([lambda: 1.5])
    server.register("loads once", load=lambda: next(contents))

    @server.model("words", inputs=[TensorSpec("prompt", "BYTES", [1])])
    async def words(prompt: list[str]) -> AsyncIterator[list[str]]:
        for place in range(100):
            yield [f"{' ' * bool(place)}{prompt[0]} {place}"]
            await asyncio.sleep(0.1)

    @server.model("thinks", inputs=[TensorSpec("prompt", "BYTES", [1])])
    async def thinks(prompt: list[str]) -> AsyncIterator[dict[str, list[str]]]:
        for place in range(3):
            yield {"thought": [f"hm{place} "], "said": [f"{prompt[0]}{place} "]}

    @server.model("breaks", inputs=[TensorSpec("prompt", "BYTES", [1])])
    async def breaks(prompt: list[str]) -> AsyncIterator[list[str]]:
        yield prompt
        raise RuntimeError("a secret")

    @server.model("patient", inputs=[TensorSpec("seconds", "FP64", [1])])
    async def patient(seconds: Any) -> Any:
        await asyncio.sleep(float(seconds[0]))
        return seconds

    add_looks(server)
    add_inputs(server)
    add_tensors(server)
    add_options(server)
    return server


def add_options(server: InferenceServer) -> None:
    """Models that have all options that the page shows."""
    server.register(
        "tuned", load=lambda: lambda x: x, inputs=[TensorSpec("x", "FP32", [-1], maximum=5)], outputs=[TensorSpec("y", "FP32", [-1])],
        max_concurrency=2, max_queue=0, timeout=0.5, content_type="np", max_batch_size=64, max_batch_delay=0.002,
        out_of_range="flag", idle_unload=300,
        cache=ResponseCache(max_bytes=3 << 19, ttl=60),
    )  # fmt: skip
    server.register("inline", lambda: 1.5, run="inline", max_queue=5000)

    @server.model("bounded stream", timeout=2, stream_timeout=60)
    async def bounded() -> AsyncIterator[float]:
        yield 1.5


def add_inputs(server: InferenceServer) -> None:
    """Models whose inputs are chosen, picked, pasted and dropped."""
    plans = json.dumps({"datatype": "BYTES", "data": ["basic", "pro"], "content_type": "str"})
    columns = [
        TensorSpec("age", "INT64", [-1], pd_dtype="Int64", example=[31]),
        TensorSpec("income", "FP64", [-1], example=[5200.25]),
        TensorSpec("city", "BYTES", [-1], "str", example=["Bern"]),
        TensorSpec("plan", "BYTES", [-1], "str", example=["pro"], pd_dtype="category", pd_categories=plans),
        TensorSpec("since", "BYTES", [-1], "datetime", example=["2021-03-01T00:00:00"]),
        TensorSpec("active", "BOOL", [-1], example=[True]),
    ]

    @server.model("churn", inputs=columns, outputs=[TensorSpec("seen", "BYTES", [-1])], content_type="pd")
    def churn(frame: pd.DataFrame) -> list[str]:
        seen = frame.astype(object).where(frame.notna(), "missing")  # which each pandas has in a way of its own
        return [" ".join(str(value) for value in row) for row in seen.itertuples(index=False)]

    town = TensorSpec("town", "BYTES", [-1], "str", example=["Bern"])

    @server.model("towns", inputs=[town], outputs=[TensorSpec("seen", "BYTES", [-1])], content_type="pd")
    def towns(frame: pd.DataFrame) -> list[str]:
        return [str(town) for town in frame["town"].fillna("missing")]

    @server.model("customers")
    def customers(rows: list[Customer]) -> list[str]:
        return [f"{row.age} {row.plan} {row.city}" for row in rows]

    @server.model("scaled", inputs=[TensorSpec("x", "FP32", [-1])], outputs=[TensorSpec("y", "FP32", [-1])])
    def scaled(x: Any, factor: float = 2.5, exact: bool = False) -> Any:
        return x * factor + exact

    server.register("ids", lambda ids: ids, inputs=[TensorSpec("ids", "INT64", [-1])], outputs=[TensorSpec("same", "INT64", [-1])])
    ranged = [TensorSpec("count", "INT64", [1], minimum=-5, maximum=100), TensorSpec("share", "FP32", [1, 1], maximum=1)]

    @server.model("ranged", inputs=ranged, outputs=[TensorSpec("seen", "BYTES", [-1])])
    def take_ranged(count: Any, share: Any, factor: float = 2.5) -> list[str]:
        return [f"{count.tolist()} {share.tolist()} {factor}"]

    @server.model("statistics", inputs=[TensorSpec("pixels", "FP32", [1, 3, 48, 64])], outputs=[TensorSpec("mean", "FP32", [3])])
    def statistics(pixels: Any) -> Any:
        return pixels.mean(axis=(0, 2, 3))


def add_tensors(server: InferenceServer) -> None:
    """Models that say which tensors they have got: two large ones, texts or files beside a number, and arrays of any size."""
    large = [TensorSpec(name, "FP32", [1, 5000]) for name in "ab"]

    @server.model("pair", inputs=large, outputs=[TensorSpec("means", "FP32", [2])])
    def pair(a: Any, b: Any) -> Any:
        return np.array([a.mean(), b.mean()], np.float32)

    @server.model("noted", inputs=[TensorSpec("t", "BYTES", [-1]), TensorSpec("n", "FP32", [1])], outputs=[TensorSpec("got", "BYTES", [1])])
    def noted(t: Any, n: Any) -> list[str]:
        return [f"{list(t)} {n[0]}"]

    @server.model("scanned", inputs=[TensorSpec("file", "BYTES", [1]), *large[:1]], outputs=[TensorSpec("got", "BYTES", [1])])
    def scanned(file: Any, a: Any) -> list[str]:
        return [f"{list(file)} {a.mean()}"]

    cube, colors, planes = (
        TensorSpec("x", "FP32", [-1, -1, -1]),
        TensorSpec("x", "UINT8", [-1, -1, 3]),
        TensorSpec("x", "FP32", [3, -1, -1]),
    )
    for name, x in (("cube", cube), ("colors", colors), ("planes", planes)):
        inputs, outputs = [x, TensorSpec("n", "FP32", [1])], [TensorSpec("got", "BYTES", [1])]
        server.register(name, lambda x, n: [f"{list(x.shape)} {n[0]}"], inputs=inputs, outputs=outputs)


def add_looks(server: InferenceServer) -> None:
    """Models whose answers are looked at."""
    species = TensorSpec("species", "FP64", [-1, 3], labels=["cat", "dog", "owl"])
    server.register(
        "species", lambda x: {"species": x}, inputs=[TensorSpec("x", "FP64", [-1, 3], example=[0.2, 0.1, 0.7])], outputs=[species]
    )

    letter = TensorSpec("letter", "FP64", [-1, 13], labels=["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m"])
    server.register("letter", lambda: {"letter": np.tile(np.arange(13.0), (2, 1))}, outputs=[letter], inputs=[])

    @server.model("pictures")
    def pictures() -> dict[str, Any]:
        pixels = np.zeros([9, 12, 3], np.uint8)
        pixels[..., 0] = 255
        encoded = np.array([base64.b64encode(RED)], object)
        return {"file": encoded, "pixels": pixels, "curve": np.arange(40.0), "heat": np.arange(25.0).reshape(5, 5)}

    @server.model("album")
    def album() -> dict[str, Any]:
        return {"cover": np.array([base64.b64encode(RED), b"none", base64.b64encode(RED)], object), "score": np.arange(3.0)}


def fail() -> None:
    raise OSError("its file is not there")


class Site:
    """The application, and the same behind a proxy at `/shop`."""

    def __init__(self) -> None:
        self._app = FastAPI()
        OIPApp(make_server()).install(self._app, "/v2")

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"].startswith("/shop/"):
            scope = {**scope, "path": scope["path"].removeprefix("/shop"), "raw_path": scope["raw_path"].removeprefix(b"/shop")}
        await self._app(scope, receive, send)


app = Site()
