"""Methods whose annotations were written for people: unions of arrays and frames, and parameters that no client can send."""

from __future__ import annotations

import datetime
import enum
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest

from oip_asgi import InferenceServer, TensorSpec
from oip_asgi.specs import specs_of
from tests.support.asking import ask, error, get, outputs


class Sparse:
    """A type that no tensor can become, as the matrices of scipy are."""


FRAME = pd.DataFrame({"a": np.arange(40.0), "b": np.arange(40.0)[::-1]})
KINDS = (FRAME["a"] > 19).astype(int)
ROWS = {"a": [3.0, 30.0], "b": [36.0, 9.0]}
ARRAY = np.array([[3.0, 36.0], [30.0, 9.0]])
X = [TensorSpec("x", "FP64", [-1, 2])]


class Booster:
    """Has the signatures of LightGBM and XGBoost."""

    def predict(
        self,
        data: str | Path | np.ndarray | pd.DataFrame | Sparse,
        num_iteration: int | None = None,
        raw_score: bool = False,
        **kwargs: Any,
    ) -> np.ndarray | Sparse | list[Sparse]:
        return self.inplace_predict(data, strict_shape=raw_score, iteration_range=(0, num_iteration or 0))

    def inplace_predict(
        self,
        data: Any,
        *,
        iteration_range: tuple[int | np.integer, int | np.integer] = (0, 0),
        base_margin: Any = None,
        strict_shape: bool = False,
    ) -> np.ndarray | Any:
        assert isinstance(data, (np.ndarray, pd.DataFrame))
        margin = 0 if base_margin is None else base_margin
        sums = np.asarray(data) @ [1, 10] + iteration_range[1] + margin
        return sums[:, None] if strict_shape else sums


def the_booster(name: str) -> Callable[..., Any]:
    if name == "here":
        return Booster().predict
    if name == "in place":
        return Booster().inplace_predict
    if name.startswith("lightgbm"):
        lightgbm = pytest.importorskip("lightgbm")
        forest = lightgbm.LGBMClassifier(n_estimators=2, verbose=-1).fit(FRAME, KINDS)
        return partial(forest.booster_.predict if name == "lightgbm" else forest.predict_proba)
    xgboost = pytest.importorskip("xgboost")
    boost = xgboost.XGBClassifier(n_estimators=2).fit(FRAME, KINDS)
    return partial(boost.get_booster().inplace_predict if name == "xgboost" else boost.predict_proba)


@pytest.mark.parametrize("name", ["here", "in place", "lightgbm", "lightgbm classifier", "xgboost", "xgboost classifier"])
def test_a_method_of_a_library(name: str) -> None:
    server, predict = InferenceServer(), the_booster(name)
    expected = {"output_0": np.ravel(predict(FRAME.iloc[[3, 30]])).tolist()}
    assert ARRAY.tolist() == FRAME.iloc[[3, 30]].to_numpy().tolist()
    for label, function in (
        ("method", predict.func if isinstance(predict, partial) else predict),
        ("partial", partial(predict)),
        ("function", lambda x: predict(x)),
    ):
        server.register(label, function, content_type="pd", inputs=specs_of(FRAME))
        assert outputs(ask(server, label, **ROWS)) == expected
        server.register(f"{label} of any columns", function, content_type="pd")
        assert outputs(ask(server, f"{label}%20of%20any%20columns", **ROWS)) == expected
    server.register("array", predict, inputs=X)
    if "lightgbm" not in name and "xgboost" not in name:  # which compare an array with the names of the frame
        assert outputs(ask(server, "array", x=ARRAY)) == expected


@pytest.mark.parametrize("name", ["lightgbm", "xgboost"])
def test_the_columns_of_a_booster(name: str) -> None:
    server, predict = InferenceServer(), the_booster(name)
    expected = {"output_0": predict(FRAME.iloc[[3, 30]]).tolist()}
    server.register("known", predict, content_type="pd")
    server.register("declared", predict, content_type="pd", inputs=specs_of(FRAME[["b", "a"]]))
    for model in ("known", "declared"):
        assert outputs(ask(server, model, b=ROWS["b"], a=ROWS["a"])) == expected
        assert error(ask(server, model, **ROWS, c=[1.0, 2.0]))[0] == 400
    library = pytest.importorskip(name)
    if name == "lightgbm":
        nameless = library.LGBMClassifier(n_estimators=2, verbose=-1).fit(FRAME.to_numpy(), KINDS).booster_.predict
    else:
        nameless = library.XGBClassifier(n_estimators=2).fit(FRAME.to_numpy(), KINDS).get_booster().inplace_predict
    with pytest.raises(TypeError, match="the Booster does not know the names of its columns, so it would take any, in any order"):
        server.register("nameless", nameless, content_type="pd")


def test_scalars_of_a_method_are_those_of_requests() -> None:
    server = InferenceServer()
    server.register("m", Booster().predict, inputs=X)
    assert [each["name"] for each in get(server, "/models/m")[1]["inputs"]] == ["x", "num_iteration", "raw_score"]
    answer = ask(server, "m", {"parameters": {"num_iteration": 5}}, x=ARRAY)
    assert outputs(answer) == {"output_0": [368.0, 125.0]}


def test_a_parameter_that_no_client_can_send_keeps_its_default() -> None:
    server = InferenceServer()

    def scaled(
        x: Any, window: tuple[int, int] = (0, 9), weigh: Callable[..., Any] | None = None, options: dict[str, Any] | None = None
    ) -> Any:
        assert (weigh, options) == (None, None)
        return x.clip(*window)

    server.register("m", scaled)
    assert outputs(ask(server, "m", x=[-1, 99])) == {"output_0": [0, 9]}
    assert error(ask(server, "m", x=[-1], window=[0, 1])) == (400, "unknown input 'window': expected 'x'")
    assert get(server, "/models/m")[1]["parameters"] == {"undeclared_inputs": "x"}


class Kind(enum.Enum):
    A = "a"


@pytest.mark.parametrize(
    ("annotation", "instead"),
    [
        (bytes, "annotate list[bytes], or str for one text"),
        (np.float32, "annotate float for one number, or npt.NDArray[np.float32] or the like for an array"),
        (list[np.float32], "annotate float for one number, or npt.NDArray[np.float32] or the like for an array"),
        (np.int8, "annotate int for one number, or npt.NDArray[np.int64] or the like for an array"),
        (np.bool_, "annotate bool for one value, or npt.NDArray[np.bool_] for an array"),
        (np.datetime64, "annotate np.ndarray for an array, str for one text, or list[datetime] for dates"),
        (datetime.date, "annotate list[datetime]: dates are BYTES, with the content type datetime"),
        (datetime.datetime | None, "annotate list[datetime]: dates are BYTES, with the content type datetime"),
        (list[datetime.date], "annotate list[datetime]: dates are BYTES, with the content type datetime"),
        (Kind, "annotate str or int, and make the member of it in the function"),
        (Literal["a", "b"], "annotate str or int, and check the value in the function"),
    ],
)
def test_what_to_write_for_a_type_that_a_client_may_want_to_send(annotation: Any, instead: str) -> None:
    for default in ("", " = None"):
        made: dict[str, Any] = {}
        exec(f"def f(x, y{default}): ...", made)
        made["f"].__annotations__["y"] = annotation
        with pytest.raises(TypeError) as raised:
            InferenceServer().register("m", made["f"])
        assert str(raised.value).endswith(f", which no tensor can become: {instead}")


def test_what_to_write_for_classes_of_libraries() -> None:
    polars = pytest.importorskip("polars")

    def of_library(x: Any) -> Any: ...

    of_library.__annotations__["x"] = polars.DataFrame
    with pytest.raises(TypeError, match=r", which no tensor can become: annotate pd.DataFrame, and write polars.from_pandas\(frame\)"):
        InferenceServer().register("m", of_library)


@pytest.mark.parametrize(
    ("annotation", "kind"),
    [
        (np.ndarray | list[float], np.ndarray),
        (npt.ArrayLike, np.ndarray),
        (npt.NDArray[np.float64] | Sparse | None, np.ndarray),
        (int | float, float),
        (float | int | None, float),
        (pd.DataFrame | dict[str, Any], pd.DataFrame),
    ],
)
def test_which_type_of_a_union_a_parameter_gets(annotation: Any, kind: type) -> None:
    seen: list[Any] = []

    def note(x: Any) -> Any:
        seen.append(x)
        return 1

    note.__annotations__["x"] = annotation
    server = InferenceServer()
    server.register("m", note)
    outputs(ask(server, "m", x=np.ones(1)))
    assert type(seen[0]) is kind
