"""What fitted estimators know of columns by themselves: gaps, numbers, categories, examples; and how they refuse a request."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.feature_extraction import DictVectorizer, FeatureHasher
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeClassifier

from oip_asgi import InferenceError, InferenceServer
from oip_asgi.specs import specs_of
from tests.core.models.test_estimators import CLASSES, FLOWERS, SPECIES
from tests.support.asking import ask, error, exactly, generate, outputs
from tests.support.batching import told
from tests.support.estimators import described, example_of, refusal, served

TOWNS = pd.Series(["Bonn", "Ulm", None] * 4, dtype=object)
HAS = ["has", "has", "none"] * 4


def test_one_that_knows_none_and_nan_asks_for_a_declaration() -> None:
    frame = pd.DataFrame({"town": TOWNS, "flat": TOWNS.where(TOWNS.notna(), np.nan)})
    model = make_pipeline(OneHotEncoder(handle_unknown="ignore"), DecisionTreeClassifier()).fit(frame, HAS)
    text = (
        "model 'm': the Pipeline may have been fitted with None and with NaN, which are two values to it: write inputs=specs_of(X), with "
        "the frame X that it was fitted with"
    )
    with pytest.raises(ValueError, match=exactly(text)):
        served(model.predict)
    server = served(model.predict, inputs=specs_of(frame), content_type="pd")
    assert generate(server, {"town": None, "flat": None}) == (200, {"model_name": "m", "output_0": "none"})


def test_whole_numbers_reach_a_column_of_numbers_as_floats() -> None:
    frame = pd.DataFrame({"income": [1.5, 2.0, 3.0, np.nan] * 3})
    model = make_pipeline(SimpleImputer(strategy="constant", fill_value=-9), DecisionTreeClassifier(random_state=0)).fit(frame, [0, 1] * 6)
    server, expected = served(model.predict), model.predict(pd.DataFrame({"income": [2.0, 3.0]})).tolist()
    assert generate(server, {"income": [2, 3]}) == (200, {"model_name": "m", "output_0": expected})
    for datatype in ("INT64", "UINT8", "FP32"):
        tensor = {"name": "income", "datatype": datatype, "shape": [2], "data": [2, 3]}
        assert outputs(ask(server, "m", {"inputs": [tensor]})) == {"output_0": expected}
    for rows in ({"income": [2, 3]}, pd.DataFrame({"income": [2, 3]})):
        assert server.infer_sync("m", rows).outputs[0].array.tolist() == expected
    for large in (2**53 + 1, -(2**63)):  # which floats would round
        assert generate(server, {"income": large})[0] == 400


@pytest.mark.parametrize("strategy", ["constant", "most_frequent"])
def test_a_column_of_numbers_without_any_value_is_one_of_numbers(strategy: str) -> None:
    """These imputers keep objects as such, and an array of objects with numbers can be no output."""
    frame = pd.DataFrame({"income": [1.5, 1.5, np.nan], "age": [1, 2, 3]})
    imputer = SimpleImputer(strategy=strategy).fit(frame)
    server, [expected] = served(imputer.transform), imputer.transform(pd.DataFrame({"income": [np.nan], "age": [2]})).tolist()
    assert generate(server, {"income": None, "age": 2}) == (200, {"model_name": "m", "output_0": expected})
    gap = {"name": "income", "datatype": "BYTES", "shape": [1, 1], "data": ["null"], "parameters": {"content_type": "pd_json"}}
    age = {"name": "age", "datatype": "INT64", "shape": [1], "data": [2]}
    assert outputs(ask(server, "m", {"inputs": [gap, age]})) == {"output_0": expected}
    for row in ({"income": [None], "age": [2]}, pd.DataFrame([{"income": None, "age": 2}])):
        assert server.infer_sync("m", row)["output_0"].tolist() == [expected]


@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_a_booster_takes_the_categories_of_the_training(library: str) -> None:
    module = pytest.importorskip(library)
    frame = pd.DataFrame({"town": ["Kiel", "Ulm", "Bonn"] * 20, "size": np.arange(60.0), "level": [1, 2] * 30})
    frame = frame.astype({"town": "category", "level": "category"})
    kinds = (frame["town"] == "Ulm").astype(int)
    if library == "xgboost":
        model = module.XGBClassifier(n_estimators=5, enable_categorical=True).fit(frame, kinds)
        if not hasattr(model.get_booster(), "get_categories"):
            with pytest.raises(
                ValueError, match="the XGBClassifier does not say which categories it was fitted with: write inputs=specs_of"
            ):
                served(model.predict_proba)
            return
    else:
        model = module.LGBMClassifier(n_estimators=5, min_child_samples=1, verbose=-1).fit(frame, kinds)
    server, expected = served(model.predict_proba), model.predict_proba(frame[:3]).ravel().tolist()
    assert {name: described(server)[name]["datatype"] for name in ("town", "size", "level")} == {
        "town": "BYTES",
        "size": "FP64",
        "level": "INT64",
    }
    rows: dict[str, list[Any]] = {"town": ["Kiel", "Ulm", "Bonn"], "size": [0, 1, 2], "level": [1, 2, 1]}
    assert generate(server, rows) == (200, {"model_name": "m", "output_0": pytest.approx(expected, abs=1e-6)})
    assert outputs(ask(server, "m", **rows))["output_0"] == pytest.approx(expected, abs=1e-6)
    for sent in (frame[:3], pd.DataFrame(rows)):
        assert server.infer_sync("m", sent).outputs[0].array.ravel().tolist() == pytest.approx(expected, abs=1e-6)
    status, text = error(ask(server, "m", **{**rows, "town": ["Rom", "Ulm", "Bonn"]}))
    assert (status, "row 0 is 'Rom', which is not one of them" in text) == (400, True)
    assert ask(server, "m", example_of(server)).status == 200


def test_categories_of_xgboost_that_are_not_ascii_ask_for_a_declaration() -> None:
    xgboost = pytest.importorskip("xgboost")
    frame = pd.DataFrame({"town": pd.Categorical(["Köln", "Ulm", "Bonn"] * 20)})
    model = xgboost.XGBClassifier(n_estimators=5, enable_categorical=True).fit(frame, [0, 1, 0] * 20)
    with pytest.raises(ValueError, match="the XGBClassifier does not say which categories it was fitted with"):
        served(model.predict)
    server = served(model.predict, inputs=specs_of(frame), content_type="pd")
    assert generate(server, {"town": ["Köln", "Ulm"]}) == (200, {"model_name": "m", "output_0": [0, 1]})


def test_a_booster_that_does_not_say_its_categories_asks_for_a_declaration() -> None:
    lightgbm = pytest.importorskip("lightgbm")
    frame = pd.DataFrame({"town": pd.Categorical(["a", "b"] * 30, ordered=True), "flat": pd.Categorical(["c", "d", "e"] * 20)})
    model = lightgbm.LGBMClassifier(n_estimators=2, min_child_samples=1, verbose=-1).fit(frame, [0, 1] * 30)
    with pytest.raises(ValueError, match="the LGBMClassifier does not say which categories it was fitted with: write inputs=specs_of"):
        served(model.predict)
    server = served(model.predict, inputs=specs_of(frame), content_type="pd")
    assert server.infer_sync("m", frame[:4]).outputs[0].array.tolist() == model.predict(frame[:4]).tolist()


@pytest.mark.parametrize("step", [DictVectorizer(), FeatureHasher(8)])
def test_what_takes_dicts_takes_the_texts_of_objects(step: Any) -> None:
    rows = [{"a": 1.0}, {"b": 2.0}] * 2
    model = make_pipeline(step, LogisticRegression()).fit(rows, [0, 1, 0, 1])
    server = served(model.predict)
    assert described(server) == {"X": {"datatype": "BYTES", "shape": [-1], "parameters": {"content_type": "pd_json"}}}
    assert outputs(ask(server, "m", X=list(map(json.dumps, rows)))) == {"output_0": model.predict(rows).tolist()}
    assert generate(server, {"X": list(map(json.dumps, rows))}) == (200, {"model_name": "m", "output_0": model.predict(rows).tolist()})
    assert ask(server, "m", example_of(server)).status == 200


def test_the_log_says_once_which_columns_are_not_checked(caplog: pytest.LogCaptureFixture) -> None:
    frame = pd.DataFrame({"town": ["Bonn", "Ulm"] * 3, "size": np.arange(6.0)})
    columns = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["town"]), remainder="passthrough")
    model = make_pipeline(columns, LogisticRegression()).fit(frame, CLASSES)
    server = served(model.predict)
    assert generate(server, {"town": "Bonn", "size": 1})[0] == 200
    served(model.predict, inputs=specs_of(frame), content_type="pd")
    served(LogisticRegression().fit(frame[["size"]], CLASSES).predict)  # which takes numbers only, and says so
    text = "the datatypes of the columns 'town' are not checked: to check them, write inputs=specs_of(X), with the frame of the training"
    assert [(each.levelno, each.getMessage()) for each in caplog.records] == [(logging.WARNING, f"model 'm': {text}")]


def test_a_refused_request_costs_the_others_of_its_batch_nothing(caplog: pytest.LogCaptureFixture) -> None:
    model, server = LogisticRegression().fit(FLOWERS.to_numpy(), SPECIES), InferenceServer()
    server.register("m", model.predict, max_batch_size=8, max_batch_delay=0.2)

    async def main() -> list[Any]:
        asked = [asyncio.ensure_future(server.infer("m", {"X": [[5.0, each]]})) for each in (3.0, float("nan"), 4.0)]
        await asyncio.wait(asked)
        return [told(each) for each in asked]

    first, second, third = asyncio.run(main())
    text = refusal(model.predict, [[5.0, np.nan]])
    assert second == (400, text)
    assert [first, third] == [model.predict([[5.0, each]]).tolist() for each in (3.0, 4.0)]
    assert [each for each in caplog.records if each.levelno >= logging.ERROR] == []


def test_what_is_not_the_requests_mistake_is_no_refusal() -> None:
    server = served(
        make_pipeline(Failing(), LogisticRegression()).fit(FLOWERS, SPECIES).predict, inputs=specs_of(FLOWERS), content_type="pd"
    )
    with pytest.raises(InferenceError, match=exactly("model 'm' failed: see the server's log")) as caught:
        server.infer_sync("m", FLOWERS[:1])
    assert caught.value.status == 500


class Failing(SimpleImputer):  # type: ignore[misc]
    """A step of one's own, which needs something that is not there."""

    def fit_transform(self, rows: Any, _: Any = None) -> Any:
        return SimpleImputer().fit(rows).transform(rows)

    def transform(self, _: Any) -> Any:
        raise KeyError("no table of prices")
