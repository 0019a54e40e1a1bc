"""Fitted estimators, registered with nothing else: what they say of their inputs and outputs is declared."""

from __future__ import annotations

import json
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.cluster import KMeans
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    VotingClassifier,
)
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    RobustScaler,
    StandardScaler,
    TargetEncoder,
)
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from oip_asgi import InferenceError, InferenceServer, TensorSpec
from oip_asgi.codecs import PandasCodec
from oip_asgi.specs import specs_of
from tests.support.asking import ask, error, exactly, generate, get, outputs
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


def people(**options: Any) -> Any:
    return make_pipeline(
        make_column_transformer(
            (make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore")), ["city"]),
            (make_pipeline(SimpleImputer(), StandardScaler()), ["age", "fee"]),
        ),
        LogisticRegression(**options),
    )


def test_columns_take_any_datatype_and_the_model_itself_refuses_what_it_does_not_take() -> None:
    model = people().fit(PEOPLE, LEAVES)
    server = served(model.predict)
    assert described(server) == columns(age=ANY, city=TEXT, fee=ANY, note=ANY)
    one = {"age": [20], "city": ["Bonn"], "fee": [1.5], "note": ["x"]}
    assert outputs(ask(server, "m", **one)) == {"output_0": ["no"]}
    unknown = model.predict(pd.DataFrame({**one, "city": [1]})).tolist()  # its encoder ignores what it does not know
    assert outputs(ask(server, "m", **{**one, "city": [1]})) == {"output_0": unknown}
    told = refusal(model.predict, pd.DataFrame({**one, "age": ["x"]}))
    assert error(ask(server, "m", **{**one, "age": ["x"]})) == (400, told)
    assert error(ask(server, "m", age=[20], city=["Bonn"], fee=[1.0]))[1].startswith("missing input 'note'")
    assert server.infer_sync("m", PEOPLE).as_("output_0", list[str]) == LEAVES


MIXED = pd.DataFrame(
    {
        "age": [20, 30, 40, 50, 60, 70],
        "city": pd.Series(["Bonn", "Ulm", None, "Ulm", "Bonn", "Ulm"], dtype=object),
        "flat": ["a", "b", "a", "a", "b", "b"],
    }
)
WITH_NAN = MIXED.assign(city=MIXED["city"].astype(object).where(MIXED["city"].notna(), np.nan))
CLASSES = [0, 1, 0, 1, 1, 0]


def encoded() -> Any:
    return make_pipeline(
        make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["city", "flat"]), remainder="passthrough"), LogisticRegression()
    )


def indicated() -> Any:
    """One whose column of texts goes to several steps."""
    fill = make_pipeline(SimpleImputer(strategy="constant", fill_value="?"), OneHotEncoder())
    return make_pipeline(make_column_transformer((fill, ["city", "flat"]), (MissingIndicator(), ["city"])), LogisticRegression())


def imputed() -> Any:
    """One whose imputer adds a column to those that its encoder gets."""
    return make_pipeline(SimpleImputer(strategy="constant", fill_value="?", add_indicator=True), OneHotEncoder(), LogisticRegression())


def permuted() -> Any:
    """One whose encoder gets the columns in another order."""
    columns = make_column_transformer(("passthrough", ["flat", "city"]), ("passthrough", ["age"]))
    return make_pipeline(columns, OneHotEncoder(handle_unknown="ignore"), LogisticRegression())


def frozen() -> Any:
    return CalibratedClassifierCV(pytest.importorskip("sklearn.frozen").FrozenEstimator(encoded().fit(WITH_NAN, CLASSES)), cv=2)


def encoded_at_once() -> Any:
    return make_pipeline(OneHotEncoder(handle_unknown="ignore"), LogisticRegression())


class Unchanged(TransformerMixin, BaseEstimator):  # type: ignore[misc, unused-ignore]
    """A step of one's own, which says nothing of its columns."""

    def fit(self, frame: pd.DataFrame, _: Any = None) -> Unchanged:
        self.n_features_in_, self.feature_names_in_ = frame.shape[1], np.array(frame.columns, object)
        return self

    def transform(self, frame: pd.DataFrame) -> pd.DataFrame:
        return frame


OF_TEXTS: dict[str, Any] = {
    "several steps": (indicated, WITH_NAN[["city", "flat"]]),
    "an imputer that adds columns": (imputed, WITH_NAN[["city", "flat"]]),
    "an encoder after another order": (permuted, MIXED),
    "a frozen one": (frozen, WITH_NAN),
    "a vote of calibrations": (
        lambda: VotingClassifier([("a", CalibratedClassifierCV(encoded_at_once(), cv=2))], voting="soft"),
        WITH_NAN[["city", "flat"]],
    ),
    "a function before an encoder": (
        lambda: make_pipeline(FunctionTransformer(lambda each: each), encoded_at_once()),
        WITH_NAN[["city", "flat"]],
    ),
    "a step of one's own before several": (lambda: make_pipeline(Unchanged(), encoded()), WITH_NAN),
    "a search in a pipeline": (lambda: make_pipeline(GridSearchCV(encoded(), {"logisticregression__C": [1.0]}, cv=2)), WITH_NAN),
    "a union": (lambda: make_pipeline(FeatureUnion([("a", encoded()[0])]), LogisticRegression()), WITH_NAN),
    "categories that are integers": (encoded, MIXED.assign(flat=pd.Series([1, 2, 1, 1, 2, 2], dtype=object))),
    "categories that are booleans": (encoded, MIXED.assign(flat=pd.Series([True, False, None, True, None, False], dtype=object))),
    "columns of categories": (
        lambda: HistGradientBoostingClassifier(max_iter=3, categorical_features="from_dtype", min_samples_leaf=1),
        MIXED.astype({"city": "category", "flat": "category"}),
    ),
}


WITHOUT_EXAMPLE = {
    "several steps",  # "?" fills gaps, and no encoder need know it
    "an imputer that adds columns",
    "an encoder after another order",  # encoders that do not know the names of their columns
    "columns of categories",
    "categories that are integers",  # objects, which JSON's numbers are not
    "categories that are booleans",
    "a step of one's own before several",  # what is not of a library may take anything
    "one of one's own",
    "a step of one's own",
}


def check_example(server: InferenceServer, name: str) -> None:
    """Whether the example of the OpenAPI document is answered, or there is none."""
    example = example_of(server)
    assert example is None or ask(server, "m", example).status == 200
    assert (example is None) is (name in WITHOUT_EXAMPLE)


@pytest.mark.parametrize("name", OF_TEXTS)
def test_the_frame_of_the_training_is_answered_as_without_a_server(name: str) -> None:
    make, frame = OF_TEXTS[name]
    estimator = make().fit(frame, CLASSES)
    server = served(estimator.predict_proba)
    for rows in (frame, frame.iloc[[2]]):
        expected = estimator.predict_proba(rows)
        np.testing.assert_array_equal(server.infer_sync("m", rows).outputs[0].array, expected)
        request = json.loads(PandasCodec.encode_request(rows).to_http(binary=False)[1])
        assert outputs(ask(server, "m", request)) == {"output_0": expected.ravel().tolist()}
    if name not in ("columns of categories", "categories that are integers"):  # null is what a missing text was in the training
        members = {column: [None if each != each else each for each in values] for column, values in frame.items()}
        answer = {"model_name": "m", "output_0": estimator.predict_proba(frame).ravel().tolist()}
        assert generate(server, members) == (200, answer)
    check_example(server, name)


OF_OBJECTS: dict[str, list[Any]] = {
    "integers": [1, 2, 1, 1, 2, 2],
    "integers of which some are missing": [1, 2, None, 1, 2, None],
    "booleans": [True, False, True, True, False, False],
    "booleans of which some are missing": [True, False, None, True, None, False],
    "floats": [1.5, 2.0, 1.5, 2.0, 2.0, 1.5],
}


@pytest.mark.parametrize("encoder", [OrdinalEncoder(), OneHotEncoder(), TargetEncoder(cv=2)])
@pytest.mark.parametrize("name", OF_OBJECTS)
def test_objects_are_what_they_were_in_the_training(name: str, encoder: Any) -> None:
    frame = pd.DataFrame({"flat": pd.Series(OF_OBJECTS[name], dtype=object)})
    estimator = make_pipeline(encoder, LogisticRegression()).fit(frame, CLASSES)
    expected = estimator.predict_proba(frame).ravel().tolist()
    assert served(estimator.predict_proba).infer_sync("m", frame).outputs[0].array.ravel().tolist() == expected
    server = served(estimator.predict_proba, inputs=specs_of(frame), content_type="pd")
    assert generate(server, {"flat": OF_OBJECTS[name]}) == (200, {"model_name": "m", "output_0": expected})
    assert server.infer_sync("m", frame).outputs[0].array.ravel().tolist() == expected
    if "missing" not in name:
        assert outputs(ask(server, "m", flat=OF_OBJECTS[name])) == {"output_0": expected}
        assert server.infer_sync("m", frame.infer_objects()).outputs[0].array.ravel().tolist() == expected
    numbers = None if "booleans" in name else (400, {"error": refusal(estimator.predict_proba, pd.DataFrame({"flat": [1, 2]}))})
    assert generate(served(estimator.predict_proba), {"flat": [1, 2]}) == (numbers or (400, mock.ANY))


def test_a_step_that_may_take_anything_leaves_its_columns_open() -> None:
    lengths = FunctionTransformer(lambda frame: frame.assign(city=frame["city"].str.len()))
    server = served(make_pipeline(lengths, LinearRegression()).fit(PEOPLE[["age", "city"]], [1, 2, 3, 4]).predict)
    assert described(server) == columns(age=ANY, city=ANY)
    assert ask(server, "m", age=[20], city=["Bonn"]).status == 200


FLOWERS = pd.DataFrame(X[::10, :2], columns=["length", "width"])
SPECIES = IRIS.target[::10]
NOTES = pd.DataFrame({"length": FLOWERS["length"], "note": ["red", "blue", "red"] * 5})


def of_columns(*steps: Any, **options: Any) -> Any:
    return make_pipeline(make_column_transformer(*steps, **options), LogisticRegression())


class Filled(LogisticRegression):  # type: ignore[misc]
    """One of one's own, which has the tags of its base, and takes what that does not."""

    def predict(self, rows: Any) -> Any:
        return super().predict(rows.fillna(0.0))


WITHOUT_GAPS: dict[str, Any] = {
    "one estimator": LogisticRegression,
    "several scalers": lambda: make_pipeline(RobustScaler(), make_pipeline(MinMaxScaler()), LogisticRegression()),
    "columns that pass": lambda: of_columns(("passthrough", ["length"]), (SimpleImputer(), ["width"])),
    "the remainder": lambda: of_columns((SimpleImputer(), ["width"]), remainder="passthrough"),
    "a search": lambda: GridSearchCV(make_pipeline(StandardScaler(), LogisticRegression()), {"logisticregression__C": [1.0]}, cv=2),
}


@pytest.mark.parametrize("name", WITHOUT_GAPS)
def test_a_missing_number_is_refused_where_the_estimator_takes_none(name: str) -> None:
    estimator = WITHOUT_GAPS[name]().fit(FLOWERS, SPECIES)
    server, rows = served(estimator.predict), FLOWERS[:2].assign(length=[5.0, np.nan])
    text = refusal(estimator.predict, rows)
    assert "NaN" in text
    assert generate(server, {"length": [5.0, None], "width": [3.0, 3.0]}) == (400, {"error": text})
    assert error(ask(server, "m", length=rows["length"], width=rows["width"])) == (400, text)
    with pytest.raises(InferenceError, match=exactly(text)) as caught:
        server.infer_sync("m", rows)
    assert caught.value.status == 400
    infinite = refusal(estimator.predict, rows.assign(length=np.inf))
    assert error(ask(server, "m", length=np.array([np.inf]), width=np.array([3.0]))) == (400, infinite)
    assert outputs(ask(server, "m", length=[5.0], width=[3.0])) == {"output_0": estimator.predict(rows[:1].assign(width=3.0)).tolist()}
    check_example(server, name)


WITH_GAPS: dict[str, Any] = {
    "trees": DecisionTreeClassifier,
    "an imputer": lambda: make_pipeline(SimpleImputer(), StandardScaler(), LogisticRegression()),
    "a column that is dropped": lambda: of_columns((SimpleImputer(), ["width"])),
    "one of one's own": Filled,
    "a step of one's own": lambda: make_pipeline(FunctionTransformer(lambda frame: frame.fillna(0.0)), LogisticRegression()),
}


@pytest.mark.parametrize("name", WITH_GAPS)
def test_a_missing_number_is_taken_where_the_estimator_may_take_it(name: str) -> None:
    estimator = WITH_GAPS[name]().fit(FLOWERS, SPECIES)
    server, rows = served(estimator.predict), FLOWERS[:2].assign(length=[5.0, np.nan])
    members = {str(column): [None if each != each else each for each in values] for column, values in rows.items()}
    assert generate(server, members) == (200, {"model_name": "m", "output_0": estimator.predict(rows).tolist()})
    check_example(server, name)


@pytest.mark.parametrize("step", [OneHotEncoder(), TfidfVectorizer()])
def test_a_missing_text_is_refused_where_the_estimator_takes_none(step: Any) -> None:
    estimator = of_columns((step, "note" if isinstance(step, TfidfVectorizer) else ["note"]), remainder="passthrough").fit(NOTES, SPECIES)
    gap = NOTES[:2].assign(note=pd.Series(["red", np.nan], dtype=object))
    told = generate(served(estimator.predict), {"length": gap["length"].tolist(), "note": ["red", None]})
    assert told == (400, {"error": refusal(estimator.predict, gap)})


def test_one_that_was_fitted_with_an_array_takes_its_width() -> None:
    server = served(LogisticRegression(max_iter=500).fit(X, Y).predict)
    assert described(server) == {"X": ARRAY}
    example = example_of(server)
    assert example == {"inputs": [{"name": "X", "shape": [1, 4], "datatype": "FP64", "data": [0.0, 0.0, 0.0, 0.0]}]}
    assert outputs(ask(server, "m", example)) == {"output_0": ["setosa"]}
    for dtype in ("f8", "f4", "i8", "?"):
        assert list(outputs(ask(server, "m", X=np.ones((1, 4), dtype)))) == ["output_0"]
    assert ask(server, "m", X=np.ones((1, 3))).status == 400
    assert error(ask(server, "m", X=np.full((1, 4), "a")))[0] == 400


def test_classes_are_the_labels() -> None:
    server = served(LogisticRegression(max_iter=500).fit(X, Y).predict_proba)
    assert described(server, "outputs") == scores("FP64", *IRIS.target_names)
    assert classified(server, X[:1]) == ["setosa", "versicolor"]


def test_where_classes_are_no_labels_nothing_is_declared() -> None:
    two = LogisticRegression(max_iter=500).fit(X[:100], Y[:100])
    each_pair = SVC(decision_function_shape="ovo").fit(X, Y)
    several = RandomForestClassifier(2).fit(X, np.stack([Y, Y], 1))
    colon = LogisticRegression(max_iter=500).fit(X, [f"a:{each}" for each in Y])
    for method in (two.decision_function, each_pair.decision_function, several.predict_proba, colon.predict_proba):
        server = served(method)
        assert described(server, "outputs") == {}
        assert described(server) == {"X": ARRAY}


def test_regressors_and_transformers_are_as_they_are() -> None:
    for method in (LinearRegression().fit(X, X).predict, StandardScaler().fit(X).transform, KMeans(2).fit(X).transform):
        server = served(method)
        assert described(server) == {"X": ARRAY}
        assert described(server, "outputs") == {}
        assert ask(server, "m", X=X[:2]).status == 200


def test_what_says_nothing_is_left_open() -> None:
    scaler = StandardScaler().fit(X)
    for function in (scaler.inverse_transform, scaler.get_feature_names_out):
        assert described(served(function)) == {}


def test_declared_inputs_and_content_types_go_before_all_of_it() -> None:
    predict = LogisticRegression().fit(X[:100], Y[:100]).predict
    assert described(served(predict, inputs=[TensorSpec("x", "FP32", [-1, 4])])) == {"x": {"datatype": "FP32", "shape": [-1, 4]}}
    server = served(people().fit(PEOPLE, LEAVES).predict, content_type="pd")  # which is known of it in any case
    assert get(server, "/models/m")[1]["parameters"] == {"content_type": "pd"}


def test_a_request_may_send_one_array_to_one_that_was_fitted_with_a_frame() -> None:
    frame = pd.DataFrame(X, columns=list("abcd"))
    server = served(LogisticRegression(max_iter=500).fit(frame, Y).predict)
    assert described(server) == columns(a=ANY, b=ANY, c=ANY, d=ANY)
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        assert outputs(ask(server, "m", {"parameters": {"content_type": "np"}}, X=X[:1])) == {"output_0": ["setosa"]}


def test_metadata_names_the_library_of_an_estimator_also_after_its_load() -> None:
    fitted = LinearRegression().fit([[1.0], [2.0]], [1.0, 2.0])
    server = InferenceServer()
    server.register("method", fitted.predict)
    server.register("loads", load=lambda: fitted.predict)
    server.register("function", lambda X: fitted.predict(X))  # noqa: N803
    assert get(server, "/models/loads")[1]["platform"] == "python"
    server.load_sync("loads")
    platforms = {name: get(server, f"/models/{name}")[1]["platform"] for name in ("method", "loads", "function")}
    assert platforms == {"method": "sklearn", "loads": "sklearn", "function": "python"}
