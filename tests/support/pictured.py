"""The application in the picture of the README: scikit-learn's own data sets, and models that need no file."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI
from sklearn.datasets import load_diabetes, load_digits, load_iris, load_wine
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from oip_asgi import InferenceServer, OIPApp, TensorSpec
from oip_asgi.specs import specs_of


def make_server() -> InferenceServer:
    server = InferenceServer("flowers", "1.4.0")
    iris, (wine, kinds) = load_iris(), load_wine(return_X_y=True, as_frame=True)
    classifier = LogisticRegression(max_iter=1000).fit(iris.data, iris.target)

    @server.model(
        "iris",
        inputs=[TensorSpec("flowers", "FP64", [-1, 4], example=[5.9, 3.0, 5.1, 1.8])],
        outputs=[TensorSpec("species", "FP64", [-1, 3], labels=iris.target_names.tolist())],
    )
    def species(flowers: Any) -> Any:
        """The species of iris flowers, by **length and width** of sepal and petal in cm."""
        return classifier.predict_proba(flowers)

    cellars = make_pipeline(StandardScaler(), LogisticRegression()).fit(wine, kinds)
    server.register("wine", cellars.predict, inputs=specs_of(wine, example=True), content_type="pd")
    server.register("digits", LogisticRegression(max_iter=3000).fit(*load_digits(return_X_y=True)).predict_proba)
    server.register("diabetes", LinearRegression().fit(*load_diabetes(return_X_y=True)).predict)

    @server.model("assistant", inputs=[TensorSpec("prompt", "BYTES", [1], "str")])
    async def assistant(prompt: list[str]) -> AsyncIterator[list[str]]:
        for word in prompt[0].split():
            yield [f"{word} "]
            await asyncio.sleep(0.05)

    return server


app = FastAPI()
OIPApp(make_server()).install(app, "/v2")
