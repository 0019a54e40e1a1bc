"""A method of a scikit-learn estimator that was fitted with a data frame: its columns are known, and checked before it is called."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, make_column_transformer
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from oip_asgi import InferenceError, InferenceServer, TensorSpec
from oip_asgi.specs import specs_of
from tests.support.asking import ask, error, exactly, generate, get, outputs
from tests.support.estimators import ANY, example_of

FRAME = pd.DataFrame({"height": [1.0, 2, 3, 4], "age": [1.0, 0, 1, 0]})
KINDS = [0, 1, 0, 1]


def test_the_frame_of_the_training_may_have_integers_of_pandas() -> None:
    frame = FRAME.convert_dtypes()
    assert frame.dtypes.to_list() == [pd.Int64Dtype(), pd.Int64Dtype()]
    model = LinearRegression().fit(frame, KINDS)
    server = InferenceServer()
    server.register("m", model.predict)
    assert server.infer_sync("m", frame)["output_0"].tolist() == pytest.approx(model.predict(frame).tolist())


def test_an_array_with_too_few_columns_is_refused_for_its_shape_whatever_its_numbers_are() -> None:
    server = InferenceServer()
    server.register("m", LinearRegression().fit(FRAME.to_numpy(), KINDS).predict)
    for dtype in (np.float64, np.float32, np.int64):
        with pytest.raises(InferenceError, match=r"input 'X' has shape \[1, 1\]: expected \[-1, 2\]"):
            server.infer_sync("m", {"X": np.ones((1, 1), dtype)})


def fitted() -> Any:
    return make_pipeline(StandardScaler(), LogisticRegression()).fit(FRAME, KINDS)


def registered(server: InferenceServer) -> None:
    server.register("m", fitted().predict, content_type="pd")


def of_the_estimator(server: InferenceServer) -> None:
    server.register("m", LogisticRegression().fit(FRAME, KINDS).predict, content_type="pd")


def of_a_search(server: InferenceServer) -> None:
    search = GridSearchCV(fitted(), {"logisticregression__C": [1.0]}, cv=2)
    server.register("m", search.fit(FRAME, KINDS).predict, content_type="pd")


def in_a_partial(server: InferenceServer) -> None:
    server.register("m", partial(fitted().predict), content_type="pd")


def made_by_load(server: InferenceServer) -> None:
    server.register("m", load=lambda: fitted().predict, content_type="pd")


def fitted_by_load(server: InferenceServer) -> None:
    pipeline = make_pipeline(StandardScaler(), LogisticRegression())

    def load() -> None:
        pipeline.fit(FRAME, KINDS)

    server.register("m", pipeline.predict, load=load, content_type="pd")


@pytest.mark.parametrize("register", [registered, of_the_estimator, of_a_search, in_a_partial, made_by_load, fitted_by_load])
def test_the_columns_are_known(register: Callable[[InferenceServer], None]) -> None:
    server, one = InferenceServer(), np.array([1.0])
    register(server)
    assert outputs(ask(server, "m", height=one, age=one)) == {"output_0": [0]}
    assert outputs(ask(server, "m", age=one, height=one)) == {"output_0": [0]}
    assert error(ask(server, "m", height=one)) == (400, "missing input 'age': expected 'age', 'height', but got 'height'")
    assert error(ask(server, "m", height=one, age=one, name=one)) == (400, "unknown input 'name': expected 'age', 'height'")
    assert get(server, "/models/m")[1]["parameters"] == {"content_type": "pd"}
    assert generate(server, {"height": 1.5, "age": 1}) == (200, {"model_name": "m", "output_0": 0})
    assert generate(server, {"height": [1, 2.5], "age": [1, 0]}) == (200, {"model_name": "m", "output_0": [0, 1]})
    unknown = "unknown input 'Hieght': expected 'age', 'height'; did you mean 'height'?"
    assert generate(server, {"Hieght": 1, "age": 1}) == (400, {"error": unknown})
    server.stop()


def test_generate_takes_nulls_in_known_columns() -> None:
    frame = pd.DataFrame({"age": [3.0, 40, 50, 60], "city": ["Bonn", "Rome", "Bonn", "Rome"]})
    columns = make_column_transformer((SimpleImputer(), ["age"]), (OneHotEncoder(handle_unknown="ignore"), ["city"]))
    server = InferenceServer()
    server.register("m", make_pipeline(columns, LogisticRegression()).fit(frame, KINDS).predict, content_type="pd")
    for age, city in (([None, 3], [None, "Rome"]), ([None, None], [None, None]), ([1, 2], ["Bonn", None])):
        status, answer = generate(server, {"age": age, "city": city})
        assert (status, len(answer["output_0"])) == (200, 2)
    assert generate(server, {"age": None, "city": None})[0] == 200
    for other in (None, 1.5):
        assert generate(server, {"age": [other, 2**53 + 1], "city": ["Bonn", "Rome"]})[0] == 400
    assert generate(server, {"age": [None, 2**54], "city": ["Bonn", "Rome"]})[0] == 200
    assert generate(server, {"age": [None, 10**400], "city": ["Bonn", "Rome"]})[0] == 400


def test_columns_that_are_declared_in_another_order_get_that_of_the_estimator() -> None:
    server, pipeline = InferenceServer(), fitted()
    server.register("m", pipeline.predict_proba, content_type="pd", inputs=specs_of(FRAME[["age", "height"]]))
    expected = pipeline.predict_proba(FRAME).ravel().tolist()
    assert outputs(ask(server, "m", age=FRAME["age"], height=FRAME["height"])) == {"output_0": expected}
    assert [each["name"] for each in get(server, "/models/m")[1]["inputs"]] == ["height", "age"]


class Clip(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A first step of one's own, which keeps no names."""

    def fit(self, x: Any, y: Any = None) -> Clip:
        return self

    def transform(self, x: Any) -> Any:
        return np.clip(np.asarray(x, float), -9, 9)


def own_step() -> Any:
    return make_pipeline(Clip(), LogisticRegression())


NAMELESS: dict[str, Any] = {
    "an array": lambda: LogisticRegression().fit(FRAME.to_numpy(), KINDS),
    "a first step of one's own": lambda: own_step().fit(FRAME, KINDS),
    "a search": lambda: GridSearchCV(own_step(), {"logisticregression__C": [1.0]}, cv=2).fit(FRAME, KINDS),
    "a calibrated one": lambda: CalibratedClassifierCV(own_step(), cv=2).fit(FRAME, KINDS),
}


@pytest.mark.parametrize("kind", NAMELESS)
def test_an_estimator_that_does_not_know_its_columns_is_refused(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    estimator, server = NAMELESS[kind](), InferenceServer()
    text = (
        f"the {type(estimator).__name__} does not know the names of its columns, so it would take any, in any order: write "
        "inputs=specs_of(X), with the frame that it was fitted with"
    )
    for function in (estimator.predict, estimator.predict_proba, partial(estimator.predict)):
        with pytest.raises(TypeError, match=exactly(f"model 'm': {text}")):
            server.register("m", function, content_type="pd")
    server.register("m", load=lambda: estimator.predict, content_type="pd")
    with contextlib.suppress(InferenceError):
        server.load_sync("m")
    assert text in caplog.text
    assert error(ask(server, "m", height=np.ones(1), age=np.ones(1)))[0] == 503
    server.stop()


@pytest.mark.parametrize("kind", [kind for kind in NAMELESS if kind != "an array"])
def test_with_a_declaration_it_gets_its_columns_in_order(kind: str) -> None:
    estimator, server = NAMELESS[kind](), InferenceServer()
    server.register("m", estimator.predict, content_type="pd", inputs=specs_of(FRAME))
    expected = estimator.predict(FRAME).tolist()
    assert outputs(ask(server, "m", age=FRAME["age"], height=FRAME["height"])) == {"output_0": expected}
    assert error(ask(server, "m", age=np.ones(1), x1=np.ones(1)))[0] == 400


@pytest.mark.parametrize("kind", NAMELESS)
def test_a_request_makes_no_frame_for_it(kind: str) -> None:
    server = InferenceServer()
    server.register("m", NAMELESS[kind]().predict)
    status, text = error(ask(server, "m", {"parameters": {"content_type": "pd"}}, height=np.ones(1), age=np.ones(1)))
    assert (status, "the content_type 'pd'" in text) == (400, True)
    if kind != "a first step of one's own":  # whose method takes **params too
        assert text == (
            "unknown input 'height': expected 'X'; with the content_type 'pd' the model takes one column for each of its parameters (X)"
        )


def test_a_method_of_ones_own_may_take_any_columns() -> None:
    class Scorer:
        def predict(self, x: Any) -> Any:
            return x["height"] + x["age"]

    server = InferenceServer()
    server.register("m", Scorer().predict, content_type="pd")
    assert outputs(ask(server, "m", age=np.ones(1), height=np.zeros(1))) == {"output_0": [1]}


def test_no_estimator_gets_bf16() -> None:
    server, predict = InferenceServer(), LogisticRegression().fit(FRAME.to_numpy(), KINDS).predict
    declared = TensorSpec("x", "BF16", [-1, 2])
    server.register("m", predict, inputs=[declared])
    status, text = error(ask(server, "m", x=np.ones((1, 2), declared.dtype)))
    assert (status, text.startswith("model 'm' refused the request:")) == (400, True)


@pytest.mark.parametrize(
    "first", [2**53, pytest.param(2**63, marks=pytest.mark.skipif(np.__version__ < "2.1", reason="cannot look them up"))]
)
def test_whole_numbers_that_floats_would_round_reach_an_estimator_of_numbers(first: int) -> None:
    numbers, server = [first, first + 1, first + 2], InferenceServer()
    frame = pd.DataFrame({"key": numbers})
    server.register("m", OrdinalEncoder().fit(frame).transform)
    server.register("array", OrdinalEncoder().fit(frame.to_numpy()).transform)
    for values in (numbers, tuple(numbers)):
        assert server.infer_sync("m", {"key": values}).outputs[0].array.ravel().tolist() == [0, 1, 2]
        assert server.infer_sync("array", {"X": [[each] for each in values]}).outputs[0].array.ravel().tolist() == [0, 1, 2]
    assert generate(server, {"key": numbers}) == (200, {"model_name": "m", "output_0": [0, 1, 2]})


@pytest.mark.parametrize("row", [[10**20, 1], [2**63, -1], [-(2**63) - 1, 0]])
def test_whole_numbers_that_no_integer_holds_are_floats_to_an_estimator(row: list[int]) -> None:
    array, server = np.array([row, [0, 0]], float), InferenceServer()
    server.register("m", DecisionTreeClassifier(random_state=0).fit(array, [1, 0]).predict)
    assert generate(server, {"X": [row, [0, 0]]}) == (200, {"model_name": "m", "output_0": [1, 0]})


@pytest.mark.parametrize("columns", [FRAME, FRAME.to_numpy()])
def test_numbers_of_bf16_reach_an_estimator_as_fp32(columns: Any) -> None:
    server, bf16 = InferenceServer(), TensorSpec("X", "BF16", [-1]).dtype
    predict = LogisticRegression().fit(columns, KINDS).predict_proba
    server.register("m", predict)
    rows = FRAME.to_numpy(np.float32) + np.float32(0.1)
    short = rows.astype(bf16)
    inputs: Any = {"X": short} if columns is not FRAME else {name: short[:, place] for place, name in enumerate(FRAME)}
    expected = predict(pd.DataFrame(short.astype(np.float32), columns=FRAME.columns) if columns is FRAME else short.astype(np.float32))
    np.testing.assert_array_equal(server.infer_sync("m", inputs).outputs[0].array, expected)


def test_a_frame_of_one_column_is_declared_as_one() -> None:
    frame, server = FRAME[["age"]], InferenceServer()
    predict = LogisticRegression().fit(frame, KINDS).predict
    text = r'predict\(X\) was fitted with a data frame, and takes no array of one dimension: write content_type="pd"'
    with pytest.raises(TypeError, match=text):
        server.register("m", predict, inputs=specs_of(frame))
    server.register("m", predict, inputs=specs_of(frame), content_type="pd")
    server.register("array", predict, inputs=[TensorSpec("age", "FP64", [-1, 1])])
    assert outputs(ask(server, "m", age=np.array([1.0]))) == {"output_0": [0]}


@pytest.mark.parametrize("chosen", ["note", 0])
def test_a_vectorizer_gets_its_column_by_name_or_place(chosen: str | int) -> None:
    notes = pd.DataFrame({"note": ["a", "b", "c", "d"]})
    texts = ColumnTransformer([("words", HashingVectorizer(n_features=8), chosen)])
    server = InferenceServer()
    server.register("m", make_pipeline(texts, LogisticRegression()).fit(notes, KINDS).predict)
    [note] = get(server, "/models/m")[1]["inputs"]
    assert note == {"name": "note", "shape": [-1], **ANY}
    assert ask(server, "m", note=["a"]).status == 200
    assert example_of(server) is None


def test_an_estimator_that_was_fitted_with_a_frame_needs_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = LinearRegression().fit(pd.DataFrame({"b": [1.0, 2.0], "a": [3.0, 1.0]}), [1.0, 2.0])
    monkeypatch.setitem(sys.modules, "pandas", None)
    server = InferenceServer()
    text = (
        "model 'm': the LinearRegression was fitted with a data frame, which needs pandas: pip install pandas; or, to take one "
        'array, of which nothing checks the order, write inputs=[TensorSpec("X", "FP64", [-1, 2])]'
    )
    with pytest.raises(ValueError, match=exactly(text)):
        server.register("m", fitted.predict)
    server.register("m", fitted.predict, inputs=[TensorSpec("X", "FP64", [-1, 2])])
    monkeypatch.undo()  # scikit-learn 1.5 fails where pandas is None
    with pytest.warns(UserWarning, match="valid feature names"):
        assert ask(server, "m", X=[[1.0, 3.0]]).status == 200
