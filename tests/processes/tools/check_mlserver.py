"""The runtimes of `oip_asgi.mlserver` with their libraries: folders after MLServer's documentation, served by `python -m`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import lightgbm
import mlflow
import numpy as np
import pandas as pd
import pytest
import transformers
import xgboost
from sklearn.datasets import load_iris
from sklearn.linear_model import LinearRegression

from tests.support.mlserver_folders import write
from tests.support.processes import ROOT, serving

sys.path.insert(0, str(ROOT / "examples/models"))

ROWS, SPECIES = load_iris(return_X_y=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root: Path = tmp_path_factory.mktemp("models")
    uri = {"uri": "./model.bst", "version": "v0.1.0"}
    boosted = write(root / "mushroom", {"implementation": "mlserver_xgboost.XGBoostModel", "parameters": uri})
    xgboost.train({"objective": "binary:logistic"}, xgboost.DMatrix(ROWS, SPECIES > 0), 2).save_model(boosted / "model.bst")
    classes = write(root / "classes", {"implementation": "mlserver_xgboost.XGBoostModel"})
    xgboost.XGBClassifier(n_estimators=5).fit(ROWS, SPECIES).save_model(classes / "model.json")
    light = write(root / "iris-lgb", {"implementation": "mlserver_lightgbm.LightGBMModel", "parameters": {"uri": "./iris.bst"}})
    options = {"objective": "multiclass", "num_class": 3, "verbose": -1}
    lightgbm.train(options, lightgbm.Dataset(ROWS, SPECIES)).save_model(light / "iris.bst")
    wine = write(root / "wine", {"implementation": "mlserver_mlflow.MLflowRuntime", "parameters": {"uri": "model"}})
    frame = pd.DataFrame(ROWS, columns=["a", "b", "c", "d"])
    linear = LinearRegression().fit(frame, SPECIES)
    mlflow.sklearn.save_model(linear, wine / "model", signature=mlflow.models.infer_signature(frame, linear.predict(frame)))
    array = write(root / "array", {"implementation": "mlserver_mlflow.MLflowRuntime", "parameters": {"uri": "model"}})
    mlflow.sklearn.save_model(linear, array / "model", signature=mlflow.models.infer_signature(ROWS, linear.predict(ROWS)))
    extra = {"extra": {"task": "text-classification"}, "uri": "./reviews"}
    reviews = write(root / "reviews", {"implementation": "mlserver_huggingface.HuggingFaceRuntime", "parameters": extra})
    import text_transformer

    text_transformer.DIRECTORY = str(reviews / "reviews")
    text_transformer.train()
    return root


@pytest.fixture(scope="module")
def url(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    command = ["python", "-m", "oip_asgi", str(folder), "--host", "127.0.0.1", "--port", "PORT"]
    with serving(command, tmp_path_factory.mktemp("log") / "log") as served:
        yield served.url


def infer(url: str, model: str, inputs: list[Any], **more: Any) -> Any:
    answer = httpx2.post(f"{url}/v2/models/{model}/infer", json={"inputs": inputs, **more}, timeout=60)
    assert answer.status_code == 200, answer.text
    return {output["name"]: output["data"] for output in answer.json()["outputs"]}


def array_of(rows: Any) -> list[Any]:
    return [{"name": "predict", "datatype": "FP32", "shape": list(rows.shape), "data": rows.tolist()}]


def test_xgboost(url: str, folder: Path) -> None:
    own = xgboost.Booster(model_file=folder / "mushroom/model.bst").predict(xgboost.DMatrix(np.float32(ROWS[:2])))
    assert np.allclose(infer(url, "mushroom/versions/v0.1.0", array_of(ROWS[:2]))["predict"], own)
    both = infer(url, "classes", array_of(ROWS[49:51]), outputs=[{"name": "predict"}, {"name": "predict_proba"}])
    assert (both["predict"], np.reshape(both["predict_proba"], (2, 3)).argmax(1).tolist()) == ([0, 1], [0, 1])


def test_lightgbm(url: str, folder: Path) -> None:
    own = lightgbm.Booster(model_file=folder / "iris-lgb/iris.bst").predict(ROWS[:2])
    assert np.allclose(infer(url, "iris-lgb", array_of(ROWS[:2]))["predict"], np.ravel(own))


def test_mlflow(url: str) -> None:
    metadata = httpx2.get(f"{url}/v2/models/wine").json()
    assert [each["name"] for each in metadata["inputs"]] == ["a", "b", "c", "d"]
    own = LinearRegression().fit(ROWS, SPECIES).predict(ROWS[:2])
    columns = [{"name": name, "datatype": "FP32", "shape": [2], "data": ROWS[:2, n].tolist()} for n, name in enumerate("abcd")]
    assert np.allclose(infer(url, "wine", columns)["output-1"], own, atol=1e-5)
    assert np.allclose(infer(url, "array", [{**array_of(ROWS[:2])[0], "datatype": "FP64"}])["output-1"], own)


def test_transformers(url: str, folder: Path) -> None:
    texts = ["the soup was not cold", "the room was rude"]
    found = infer(url, "reviews", [{"name": "args", "datatype": "BYTES", "shape": [2], "data": texts}])["output"]
    own = transformers.pipeline("text-classification", model=str(folder / "reviews/reviews"))(texts)
    assert [json.loads(text)["label"] for text in found] == [each["label"] for each in own]
