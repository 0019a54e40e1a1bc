"""Models of the table that say of themselves what they take: a fitted estimator, and inputs with ranges."""

from __future__ import annotations

from typing import Any

from oip_asgi import InferenceServer, TensorSpec


class Estimator:
    """What can be fitted and cloned is an estimator, in scikit-learn's words. This one was fitted with two columns of an array."""

    n_features_in_ = 2

    def fit(self, data: Any) -> None: ...

    def get_params(self) -> None: ...

    def predict(self, data: Any) -> Any:
        return data.sum(axis=1)


class Regressor(Estimator):
    """One of a library that refuses what it gets, as its module says."""

    __module__ = "sklearn.table"

    def predict(self, data: Any) -> Any:
        raise ValueError("Input X contains NaN.\nIt does not accept missing values.")


def register_estimators(server: InferenceServer) -> None:
    server.register("fitted", Estimator().predict)
    server.register("refusing", Regressor().predict)
    age = TensorSpec("age", "INT64", [-1], minimum=0, maximum=120)
    server.register("ranged", lambda age: age, inputs=[age], outputs=[TensorSpec("y", "INT64", [-1])])
    server.register("flagged", lambda age: age, inputs=[age], outputs=[TensorSpec("y", "INT64", [-1])], out_of_range="flag")
