"""What a user writes without this package: FastAPI with pydantic, a plain `def` for each model. Knows FastAPI and pydantic."""

# without postponed annotations: FastAPI reads those of the functions below, which name classes made beside them

from typing import Any

import numpy as np
import pandas as pd
from fastapi import FastAPI
from pydantic import BaseModel, create_model

from .functions import CATEGORIES, NUMBERS, classifier, clicks, computes, has_onnx, identity, onnx, sleeps

_COLUMNS: dict[str, Any] = {**dict.fromkeys(NUMBERS, (float, ...)), **dict.fromkeys(CATEGORIES, (str, ...))}

Click = create_model("Click", **_COLUMNS)
"""A class with 39 fields."""


class Numbers(BaseModel):
    x: list[list[float]]


class Answered(BaseModel):
    y: list[list[float]]


class Image(BaseModel):
    image: list[list[float]]


class Digits(BaseModel):
    digit: list[int]


class Clicks(BaseModel):
    rows: list[Click]  # type: ignore[valid-type]


class Chances(BaseModel):
    chance: list[float]


class Texts(BaseModel):
    texts: list[str]


def make_app() -> FastAPI:
    """An application with a route for each model."""
    app = FastAPI()
    predict = classifier().predict

    @app.get("/health/live")
    def live() -> dict[str, bool]:
        return {"live": True}

    @app.post("/identity")
    def numbers(sent: Numbers) -> Answered:
        return Answered(y=identity(np.array(sent.x, np.float32)).tolist())

    @app.post("/sleeps")
    def sleeping(sent: Numbers) -> Answered:
        return Answered(y=sleeps(np.array(sent.x, np.float32)).tolist())

    @app.post("/computes")
    def computing(sent: Numbers) -> Answered:
        return Answered(y=computes(np.array(sent.x, np.float32)).tolist())

    @app.post("/digits")
    def digits(sent: Image) -> Digits:
        return Digits(digit=predict(np.array(sent.image, np.float32)).tolist())

    @app.post("/clicks")
    def chances(sent: Clicks) -> Chances:
        return Chances(chance=clicks(_frame(sent))["chance"].tolist())

    @app.post("/frame")
    def frame(sent: Clicks) -> Clicks:
        return Clicks(rows=identity(_frame(sent)).to_dict("records"))

    @app.post("/strings")
    def strings(sent: Texts) -> Texts:
        return Texts(texts=identity(sent.texts))

    if has_onnx():
        run = onnx()

        @app.post("/onnx")
        def onnx_digits(sent: Image) -> Digits:
            return Digits(digit=run(np.array(sent.image, np.float32)).tolist())

    return app


def _frame(sent: Clicks) -> pd.DataFrame:
    return pd.DataFrame([row.model_dump() for row in sent.rows])  # type: ignore[attr-defined]
