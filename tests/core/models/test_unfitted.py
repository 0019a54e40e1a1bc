"""Estimators that were not fitted, that need no fit, or that an older version wrote."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from oip_asgi import InferenceError, InferenceServer, TensorSpec
from tests.support.asking import exactly


def served(function: Any, **options: Any) -> InferenceServer:
    server = InferenceServer()
    server.register("m", function, **options)
    return server


def test_one_that_is_not_fitted_is_told_so_at_the_first_call() -> None:
    server = served(make_pipeline(StandardScaler(), LogisticRegression()).predict, inputs=[TensorSpec("X", "FP64", [-1, 4])])
    with pytest.raises(InferenceError, match=exactly("model 'm' failed: see the server's log")) as caught:
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
