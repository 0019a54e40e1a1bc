"""Models that answer row by row, served twice: with batches and without. And requests to them whose answers must be the same.

Each model calls for another part of what makes batches hard: names, datatypes, shapes, optional inputs, content types, data frames, results
whose datatype follows from their values, and rows that make the function raise.
"""

from __future__ import annotations

import asyncio
import datetime
import json
import random
from typing import Any, Final

import numpy as np
import pandas as pd

from oip_asgi import InferenceError, InferenceRequest, InferenceServer, RequestOutput, Tensor, TensorSpec
from oip_asgi.codecs import PandasCodec

POISON: Final = 66
"""A number that makes the function raise, if a row has it."""

SPOKEN: Final = 67
"""One that makes it raise an `InferenceError`."""

Body = tuple[str, bytes, dict[str, str]]
"""A model's name, and the body and the headers of a request to it."""


def check(values: Any) -> None:
    for value in np.asarray(values).ravel().tolist():
        if value == POISON:
            raise ValueError("poison")
        if value == SPOKEN:
            raise InferenceError(f"a row has {SPOKEN}", status=422)


def numbers(x: Any, y: Any = None) -> dict[str, Any]:
    check(x)
    doubled = x * 2
    return {"doubled": doubled, "sums": (doubled if y is None else doubled + y.reshape(len(y), *[1] * (x.ndim - 1))).astype("f8")}


async def awaited(x: Any) -> tuple[Any, Any]:
    await asyncio.sleep(0.001)
    check(x)
    return x[:, :1], x * x


def texts(x: list[str]) -> list[str]:
    check([len(text) for text in x])
    return [text.upper() for text in x]


def dates(x: list[datetime.datetime]) -> list[datetime.datetime]:
    return [date + datetime.timedelta(days=1) for date in x]


def listed(x: Any) -> list[Any]:
    """Integers where all of a request are, else floats: what its rows alone decide."""
    return [value if value % 3 else value + 0.5 for value in np.asarray(x).reshape(len(x), -1)[:, 0].tolist()]


def frame(df: pd.DataFrame) -> pd.DataFrame:
    check(df["n"])
    dates_of = {"when": df["when"]} if "when" in df else {}
    return pd.DataFrame({"n": df["n"] + 1, "s": [None if n == 3 else str(n) for n in df["n"]], **dates_of})


def free(x: Any) -> Any:
    """Whatever the request's content type makes of it."""
    if isinstance(x, pd.DataFrame):
        return pd.DataFrame({"dtypes": [str(list(x.dtypes))] * len(x), "row": [str(list(row)) for _, row in x.iterrows()]})
    return x if isinstance(x, np.ndarray) else [f"{type(value).__name__} {value}" for value in x]


def columns(**inputs: Any) -> dict[str, Any]:
    """As many outputs as inputs, in their order."""
    return {f"{place} {name}": column[::1] for place, (name, column) in enumerate(inputs.items())}


def make_server(*, is_batched: bool, delay: float = 0.0, **more: Any) -> InferenceServer:
    server = InferenceServer()
    options: dict[str, Any] = {"max_batch_size": 8, "max_batch_delay": delay} if is_batched else {}
    options.update(more)
    server.register("numbers", numbers, **options)
    server.register("awaited", awaited, **options)
    server.register("texts", texts, **options)
    server.register("dates", dates, **options)
    server.register("listed", listed, **options)
    server.register("frame", frame, **options)
    server.register("free", free, **options)
    server.register("columns", columns, **options)
    spec = [TensorSpec("x", "FP32", [-1, 2])]
    server.register("declared", lambda x: x / 4, inputs=spec, outputs=[TensorSpec("y", "FP32", [-1, 2])], run="inline", **options)
    return server


MODELS: Final = ("numbers", "awaited", "texts", "dates", "listed", "frame", "free", "columns", "declared")


def body(dice: random.Random) -> Body:
    """A request: nearly always one that is answered, and often one that others could share a call with."""
    model = dice.choice(MODELS)
    rows = dice.choice([0, 1, 1, 1, 2, 3, 8, 9, 20])
    request = _REQUESTS.get(model, _of_numbers)(dice, rows)
    request.id = str(dice.randrange(1000)) if dice.random() < 0.5 else None
    for name, value in (("timeout", 30_000_000), ("priority", 1), ("flavour", 1), ("flavour", True), ("sequence_id", 7)):
        if dice.random() < 0.1:
            request.parameters[name] = value
    if dice.random() < 0.1:
        request.outputs = [RequestOutput(dice.choice(["sums", "doubled", "output_0", "y", "n", "unknown"]))]
        if dice.random() < 0.5:
            request.outputs[0].parameters = {"content_type": dice.choice(["np", "str"])}
    is_text = all(b"\xff" not in tensor.array.ravel().tolist() for tensor in request.inputs if tensor.datatype == "BYTES")
    headers, sent = request.to_http(binary=not is_text or dice.random() < 0.5)
    if dice.random() < 0.05:
        sent = sent[:-2]
    return model, sent, headers


def _of_numbers(dice: random.Random, rows: int) -> InferenceRequest:
    trailing = dice.choice([(), (2,), (2,), (2,), (3,), (2, 2)])
    dtype = dice.choice(["f4", "f4", "f4", "i4", "f8", "i8"])
    array = _array(dice, (rows, *trailing), dtype)
    inputs = [Tensor(dice.choice(["x"] * 9 + ["z"]), array)]
    if dice.random() < 0.3:
        inputs.append(Tensor("y", _array(dice, (rows + (dice.random() < 0.1),), "f4")))
    if dice.random() < 0.1:
        inputs.append(Tensor("w", _array(dice, (rows,), "i4")))
    if dice.random() < 0.2:
        dice.shuffle(inputs)
    return InferenceRequest(inputs, parameters={})


def _array(dice: random.Random, shape: tuple[int, ...], dtype: str) -> Any:
    poisons = [POISON, SPOKEN] if dice.random() < 0.05 else []
    values = [*range(10), *poisons]
    return np.array([dice.choice(values) for _ in range(int(np.prod(shape)))], dtype).reshape(shape)


def _of_texts(dice: random.Random, rows: int) -> InferenceRequest:
    texts_of = [dice.choice([b"a", b"bc", "ä".encode(), b"", *([b"\xff"] if dice.random() < 0.2 else [])]) for _ in range(rows)]
    tensor = Tensor("x", np.array([*texts_of, None], object)[:-1])
    content_type = dice.choice([None, None, "str", "base64", "np", "datetime"])
    if content_type is not None:
        tensor.parameters = {"content_type": content_type}
    if dice.random() < 0.1:
        return InferenceRequest([tensor], parameters={"content_type": dice.choice(["str", "np", "pd"])})
    return InferenceRequest([tensor], parameters={})


_DATES: Final = (
    b"2026-11-22T10:00:00",
    b"2026-11-22T10:00:00.5",
    b"2026-11-22T10:00:00+00:00",
    b"2026-11-22T10:00:00+01:00",
    b"1066-10-14T09:00:00",
)


def _of_dates(dice: random.Random, rows: int) -> InferenceRequest:
    known = [dice.choice(_DATES)] if dice.random() < 0.8 else [*_DATES, b"never"]
    tensor = Tensor("x", np.array([*(dice.choice(known) for _ in range(rows)), None], object)[:-1])
    if dice.random() < 0.5:
        tensor.parameters = {"content_type": "datetime"}
    return InferenceRequest([tensor], parameters={})


def _of_frame(dice: random.Random, rows: int) -> InferenceRequest:
    request = InferenceRequest([Tensor("n", _array(dice, (rows,), "i8"))], parameters={})
    if dice.random() < 0.5:
        when = _of_dates(dice, rows).inputs[0]
        request.inputs.append(Tensor("when", when.array, {"content_type": "datetime"}))
    if dice.random() < 0.3:
        values = [dice.choice(["a", "b"]) for _ in range(rows)]
        dtype: Any = dice.choice(["object", "category", pd.CategoricalDtype(["a", "b"])])
        request.inputs += PandasCodec.encode_request(pd.DataFrame({"c": pd.Series(values, dtype=dtype)})).inputs
    if dice.random() < 0.2:
        dice.shuffle(request.inputs)
    if dice.random() < 0.2:
        request.parameters = {"content_type": "pd"}
    return request


def _of_free(dice: random.Random, rows: int) -> InferenceRequest:
    return dice.choice([_of_texts, _of_dates, _of_numbers, _of_frame])(dice, rows)


_REQUESTS: Final = {"texts": _of_texts, "dates": _of_dates, "frame": _of_frame, "free": _of_free}


def comparable(status: int, headers: dict[str, str], sent: bytes) -> Any:
    """An answer as it is to be compared: the same text, and the same bytes behind it."""
    length = int(headers.get("inference-header-content-length", len(sent)))
    document = json.loads(sent[:length])
    for tensor in document.get("outputs", ()):
        if tensor.get("data") == ["null"]:  # beside rows with strings, pandas 3 takes it for one of them
            tensor["parameters"].pop("pd_dtype", None)
    return status, document, sent[length:]
