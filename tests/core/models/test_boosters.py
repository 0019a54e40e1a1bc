"""Estimators of LightGBM, XGBoost and CatBoost, and their boosters: what they say of themselves is declared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tests.support.asking import ask, error, outputs
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
    scores,
    served,
)


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
    assert error(ask(server, "m", X=X[:1, :3])) == (400, "input 'X' has shape [1, 3]: expected [-1, 4]")
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
