"""The rows of this benchmark: requests of the protocol, and what a service written by hand is asked for the same answer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatch
from typing import Any, Final

import numpy as np

from ..rows import Answer, Check, Row, WrongAnswer, document, expect_success, infer, only_output
from ..rows import rows as identity_rows
from .functions import NUMBERS, clicks, image

CONNECTIONS: Final = (1, 8, 64)

DIGIT: Final = 4
"""What the image shows."""

IN_THREADS: Final = ("sleeps 100 ms", "computes 5 ms")
"""Rows for a `def` in worker threads: how many of its calls run at once where nobody says it."""

NAMES: Final = ("JSON 1x4", "digits", "ONNX", "clicks 1x39", "frame 1x39", "BYTES 1000, JSON", "BYTES 1000, binary", *IN_THREADS)
"""All rows, in the table's order. Those of `tests.lab.bench` have identity models."""


def rows(patterns: Sequence[str]) -> list[Row]:
    """The rows whose names match one of these patterns of the shell, upper and lower case alike, in the table's order."""
    return [_row(name) for name in NAMES if any(fnmatch(name.lower(), pattern.lower()) for pattern in patterns)]


def _row(name: str) -> Row:
    if name in ("digits", "ONNX"):
        pixels = image()
        tensor = {"name": "image", "shape": list(pixels.shape), "datatype": "FP32", "data": pixels.ravel().tolist()}
        return infer(name, name.lower(), document([tensor]), b"", _is_output([DIGIT]), CONNECTIONS)
    if name in IN_THREADS:
        [row] = identity_rows(["JSON 1x4"])
        sent = json.loads(row.body)["inputs"][0]["data"]
        return replace(row, name=name, path=f"/models/{name.split()[0]}/infer", check=_is_output(sent), connections=CONNECTIONS)
    [row] = identity_rows(["frame 1x39" if name == "clicks 1x39" else name])
    if name == "clicks 1x39":
        row = replace(row, name=name, path="/models/clicks/infer", check=_is_output([_chance()]))
    return replace(row, connections=CONNECTIONS)


def by_hand() -> dict[str, Row]:
    """What a service with JSON of its own is asked, by the name of the row whose place it takes. There is none for binary data."""
    columns = _columns()
    [numbers] = identity_rows(["JSON 1x4"])
    x = [json.loads(numbers.body)["inputs"][0]["data"]]
    [strings] = identity_rows(["BYTES 1000, JSON"])
    texts = json.loads(strings.body)["inputs"][0]["data"]
    pixels = image().tolist()
    return {
        "JSON 1x4": _asked("JSON 1x4", "/identity", {"x": x}, {"y": x}),
        **{name: _asked(name, f"/{name.split()[0]}", {"x": x}, {"y": x}) for name in IN_THREADS},
        "digits": _asked("digits", "/digits", {"image": pixels}, {"digit": [DIGIT]}),
        "ONNX": _asked("ONNX", "/onnx", {"image": pixels}, {"digit": [DIGIT]}),
        "clicks 1x39": _asked("clicks 1x39", "/clicks", {"rows": [columns]}, {"chance": [_chance()]}),
        "frame 1x39": _asked("frame 1x39", "/frame", {"rows": [columns]}, {"rows": [columns]}),
        "BYTES 1000, JSON": _asked("BYTES 1000, JSON", "/strings", {"texts": texts}, {"texts": texts}),
    }


def _columns() -> dict[str, Any]:
    """The one row of the frame, as clients of a service written by hand send it."""
    [row] = identity_rows(["frame 1x39"])
    return {tensor["name"]: tensor["data"][0] for tensor in json.loads(row.body)["inputs"]}


def _chance() -> float:
    import pandas as pd

    columns = _columns()
    return float(clicks(pd.DataFrame({name: [columns[name]] for name in NUMBERS}))["chance"][0])


def _asked(name: str, path: str, sent: Any, expected: Any) -> Row:
    def check(answer: Answer) -> None:
        expect_success(answer)
        if json.loads(answer.body) != expected:
            raise WrongAnswer(f"expected {str(expected)[:80]}, and {answer.body[:80]!r} came back")

    headers = {"content-type": "application/json"}
    return Row(name, "POST", path, headers, json.dumps(sent).encode(), check, CONNECTIONS)


def _is_output(expected: list[float]) -> Check:
    def check(answer: Answer) -> None:
        output, _ = only_output(answer)
        if not np.allclose(np.ravel(output["data"]), expected, rtol=1e-12):
            raise WrongAnswer(f"expected {expected}, and {output['data']} came back")

    return check
