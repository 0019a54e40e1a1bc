"""Estimators that were not fitted: refused where that is certain, and only there."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import all_estimators

from oip_asgi import InferenceError, InferenceServer, TensorSpec
from tests.support.asking import exactly


def served(function: Any, **options: Any) -> InferenceServer:
    server = InferenceServer()
    server.register("m", function, **options)
    return server


def test_one_that_is_certainly_not_fitted_is_refused() -> None:
    text = "model 'm': the Pipeline is not fitted: fit it first, or let load= do it"
    with pytest.raises(ValueError, match=exactly(text)):
        served(make_pipeline(StandardScaler(), LogisticRegression()).predict, inputs=[TensorSpec("X", "FP64", [-1, 4])])
    with pytest.raises(ValueError, match="the LogisticRegression is not fitted"):
        served(LogisticRegression().predict_proba, content_type="pd")
    server = served(LogisticRegression().predict, load=lambda: None)  # which fits nothing
    with pytest.raises(InferenceError):
        server.load_sync("m")
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


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of classes that will go
def test_what_is_refused_as_not_fitted_would_have_failed() -> None:
    refused = 0
    for _, kind in all_estimators():
        with suppress(TypeError):  # it is made of others
            estimator = kind()
            try:
                function = estimator.predict
                served(function)
            except AttributeError:  # it has none
                continue
            except ValueError:
                refused += 1
                with pytest.raises(AttributeError):  # as scikit-learn's NotFittedError is
                    function(np.ones((3, 1)))
    assert refused > 80
