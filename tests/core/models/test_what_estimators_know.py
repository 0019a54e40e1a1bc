"""What estimators and boosters know of columns by themselves, how they refuse a request, and those that are not fitted."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator
from sklearn.compose import make_column_transformer
from sklearn.feature_extraction import DictVectorizer, FeatureHasher
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from oip_asgi import InferenceError, InferenceServer, TensorSpec
from oip_asgi.specs import specs_of
from tests.core.models.test_estimators import CLASSES, FLOWERS, SPECIES
from tests.support.asking import ask, error, exactly, generate, outputs
from tests.support.batching import told
from tests.support.estimators import (
    ANY,
    ARRAY,
    IRIS,
    LEAVES,
    PEOPLE,
    TEXT,
    X,
    Y,
    classified,
    columns,
    described,
    example_of,
    refusal,
    scores,
    served,
)

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
    assert (status, "column 'town', row 0: 'Rom' is no category: expected '" in text) == (400, True)
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
def test_what_takes_dicts_takes_objects(step: Any) -> None:
    rows = [{"a": 1.0}, {"b": 2.0}] * 2
    model = make_pipeline(step, LogisticRegression()).fit(rows, [0, 1, 0, 1])
    server = served(model.predict)
    assert described(server) == {"X": {"datatype": "BYTES", "shape": [-1], "parameters": {"content_type": "pd_json"}}}
    assert outputs(ask(server, "m", X=list(map(json.dumps, rows)))) == {"output_0": model.predict(rows).tolist()}
    assert generate(server, {"X": rows}) == (200, {"model_name": "m", "output_0": model.predict(rows).tolist()})
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
    with pytest.raises(InferenceError) as caught:
        server.infer_sync("m", FLOWERS[:1])
    assert caught.value.status == 500


class Failing(SimpleImputer):  # type: ignore[misc]
    """A step of one's own, which needs something that is not there."""

    def fit_transform(self, rows: Any, _: Any = None) -> Any:
        return SimpleImputer().fit(rows).transform(rows)

    def transform(self, _: Any) -> Any:
        raise KeyError("no table of prices")


@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_boosters_and_their_estimators(library: str) -> None:
    module = pytest.importorskip(library)
    if library == "lightgbm":
        fitted = module.LGBMClassifier(n_estimators=2, verbose=-1).fit(X, IRIS.target)
        booster, name, datatype = fitted.booster_.predict, "data", "FP64"
    else:
        fitted = module.XGBClassifier(n_estimators=2).fit(X, IRIS.target)
        booster, name, datatype = fitted.get_booster().inplace_predict, "data", "FP32"
    server = served(fitted.predict_proba)
    assert described(server)["X"] == ARRAY
    assert described(server, "outputs") == scores(datatype, "0", "1", "2")
    assert classified(server, X[:1])[0] == "0"
    server = served(booster)
    assert described(server)[name] == ARRAY
    assert ask(server, "m", **{name: X[:1]}).status == 200


CATBOOST: dict[str, Any] = {"iterations": 2, "verbose": False, "allow_writing_files": False, "thread_count": 1}


def test_catboost_fitted_with_an_array() -> None:
    fitted = pytest.importorskip("catboost").CatBoostClassifier(**CATBOOST).fit(X, Y)
    server = served(fitted.predict_proba)
    assert described(server) == {"X": ARRAY}
    assert described(server, "outputs") == scores("FP64", *IRIS.target_names)
    assert outputs(ask(server, "m", X=X[:2])) == {"output_0": fitted.predict_proba(X[:2]).ravel().tolist()}
    assert classified(server, X[:1])[0] == "setosa"
    assert ask(server, "m", X=X[:1, :3]).status == 400
    server = served(fitted.predict)
    assert described(server) == {"data": ARRAY}
    assert outputs(ask(server, "m", data=X[:1])) == {"output_0": ["setosa"]}


def test_catboost_fitted_with_a_frame_knows_its_columns_and_which_are_categories() -> None:
    catboost = pytest.importorskip("catboost")
    frame = PEOPLE[["age", "city", "fee"]].assign(zone=[1, 2, 1, 2])
    fitted = catboost.CatBoostClassifier(cat_features=["city", "zone"], **CATBOOST).fit(frame, LEAVES)
    server = served(fitted.predict_proba)
    assert described(server) == columns(age=ANY, city=TEXT, fee=ANY, zone=TEXT)
    expected = {"output_0": fitted.predict_proba(frame[:2]).ravel().tolist()}
    row = {"zone": [1, 2], "fee": [1.0, np.nan], "city": ["Bonn", "Ulm"], "age": [20, 30]}
    assert outputs(ask(server, "m", **row)) == expected
    assert outputs(ask(server, "m", **{**row, "zone": ["1", "2"]})) == expected  # to catboost they are the same
    assert error(ask(server, "m", **{**row, "age": ["old", "30"]}))[0] == 400
    assert error(ask(server, "m", age=[20]))[0] == 400
    assert ask(server, "m", example_of(server)).status == 200
    regressor = catboost.CatBoostRegressor(**CATBOOST).fit(frame[["age", "zone"]], [1.0, 2.0, 3.0, 4.0])
    server = served(regressor.predict)
    assert described(server) == columns(age=ANY, zone=ANY)
    assert outputs(ask(server, "m", zone=[1], age=[20])) == {"output_0": regressor.predict(frame[["age", "zone"]][:1]).tolist()}
    scaled = make_pipeline(StandardScaler(), catboost.CatBoostClassifier(**CATBOOST)).fit(frame[["age", "zone"]], LEAVES)
    server = served(scaled.predict_proba)
    assert described(server) == columns(age=ANY, zone=ANY)
    assert described(server, "outputs") == scores("FP64", "no", "yes")
    with pytest.raises(TypeError, match="the CatBoostClassifier does not know the names of its columns"):
        served(catboost.CatBoostClassifier(**CATBOOST).fit(X, Y).predict, content_type="pd")


def test_one_that_is_not_fitted_fails_at_the_first_call() -> None:
    server = served(make_pipeline(StandardScaler(), LogisticRegression()).predict, inputs=[TensorSpec("X", "FP64", [-1, 4])])
    with pytest.raises(InferenceError) as caught:
        server.infer_sync("m", {"X": np.zeros((1, 4))})
    assert caught.value.status == 500


def test_one_that_needs_no_fit_is_served() -> None:
    for function in (
        HashingVectorizer().transform,  # which learns nothing
        CountVectorizer(vocabulary=["a"]).transform,
        GaussianProcessRegressor().predict,  # which knows what it expects before it has seen anything
        make_pipeline(StandardScaler(), KeepsAll()).predict,
        KeepsAll().predict,
    ):
        served(function)


class KeepsAll(BaseEstimator):  # type: ignore[misc]
    """An estimator of one's own, which keeps what it knows where scikit-learn does not look."""

    def fit(self, X: Any, y: Any = None) -> KeepsAll:  # noqa: N803
        return self

    def predict(self, X: Any) -> Any:  # noqa: N803
        return X[:, 0]


def test_a_class_of_ones_own_may_have_steps_that_are_no_pairs() -> None:
    class Chain:
        steps = (abs, np.sqrt)

        def predict(self, x: np.ndarray[Any, Any]) -> Any:
            return self.steps[1](self.steps[0](x))

    class Listed(Chain):
        steps = [abs, np.sqrt]  # type: ignore[assignment]  # noqa: RUF012

    class Estimator(BaseEstimator, Listed):  # type: ignore[misc]
        def fit(self, x: Any, y: Any = None) -> Estimator:
            return self

        def __sklearn_is_fitted__(self) -> bool:
            return True

    for model in (Chain(), Listed(), Estimator()):
        assert served(model.predict).infer_sync("m", {"x": [-4.0]})["output_0"].tolist() == [2.0]


def test_one_that_an_older_version_wrote_and_that_lacks_a_parameter_of_today_is_served() -> None:
    model = LinearRegression().fit([[0.0], [1.0]], [0.0, 1.0])
    del model.fit_intercept  # get_params and clone fail without it, predict does not
    for options in ({}, {"inputs": [TensorSpec("X", "FP64", [-1, 1])]}):
        server = served(model.predict, **options)
        assert server.infer_sync("m", {"X": [[3.0]]})["output_0"].tolist() == [pytest.approx(3.0)]

    class Tagless(LogisticRegression):  # type: ignore[misc]
        def __sklearn_is_fitted__(self) -> bool:
            raise AttributeError("no attribute of today")

    served(Tagless().fit([[0.0], [1.0]], [0, 1]).predict)
