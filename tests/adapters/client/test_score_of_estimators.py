"""The command that scores a file, where the model is an estimator: it gets what the frame has that is read from the file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import sklearn
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, VotingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeClassifier

from oip_asgi import InferenceServer, OIPApp, TensorSpec
from oip_asgi.specs import specs_of
from tests.adapters.client.conftest import Score
from tests.support.threads import serving


@contextmanager
def served(**functions: Any) -> Iterator[str]:
    server = InferenceServer()
    for name, function in functions.items():
        server.register(name, function)
    with serving(OIPApp(server, path="/v2")) as port:
        yield f"http://127.0.0.1:{port}/v2"


CELLS = ["True", "", "False", "True"] * 3
BOOLEANS = {
    "csv": "own,fee\n" + "".join(f"{cell},{row}\n" for row, cell in enumerate(CELLS)),
    "jsonl": "".join(f'{{"own": {cell.lower() or "null"}, "fee": {row}}}\n' for row, cell in enumerate(CELLS)),
}


@pytest.mark.parametrize("suffix", BOOLEANS)
def test_booleans_of_which_some_are_missing_are_numbers_to_a_model_of_numbers(score: Score, suffix: str) -> None:
    frame, kinds, functions, expected = pd.read_csv(StringIO(BOOLEANS["csv"])), [0, 1, 2, 0] * 3, {}, {}
    for name, step in (("fills", SimpleImputer()), ("most", SimpleImputer(strategy="most_frequent")), ("ones", OneHotEncoder())):
        fitted = frame.astype({"own": float if name == "most" else object})
        known = make_column_transformer((step, ["own"]), remainder="passthrough") if name == "ones" else step
        pipeline = make_pipeline(known, DecisionTreeClassifier(random_state=0)).fit(fitted, kinds)
        functions[name], expected[name] = pipeline.predict, pipeline.predict(frame).tolist()
    strict = LogisticRegression().fit(frame.fillna(0.0).astype(float), kinds).predict
    of_array = DecisionTreeClassifier(random_state=0).fit(frame.to_numpy(float), kinds).predict
    if sklearn.__version__.startswith("1.5."):  # whose encoder asks `isnan` of categories that are booleans
        del functions["ones"], expected["ones"]
    with served(strict=strict, array=of_array, **functions) as at:
        for chunk in ("1", "2", "8"):
            more: dict[str, Any] = {"at": at, "rows": f"rows.{suffix}"}
            for name, values in {**expected, "array": kinds}.items():
                if name != "array" or chunk == "8":
                    assert score(name, BOOLEANS[suffix], "--chunk", chunk, **more).values == values
            refused = score("strict", None, "--chunk", chunk, **more)
            assert refused.status == 1
            assert {each["reason"] for each in refused.refusals} == {"model 'strict' refused the request: Input X contains NaN."}
            assert [each["row"] for each in refused.refusals] == [2, 6, 10]


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_an_estimator_scores_a_file_as_the_frame_that_is_read_from_it(score: Score, tmp_path: Path, suffix: str) -> None:
    text = "id,town,own,age,fee\n" + "".join(
        f"{row},{('Bonn', '', 'Ulm', 'a b')[row % 4]},{('True', 'False')[row % 3 == 0]},{row % 5 or ''},{row / 7}\n" for row in range(1, 61)
    )
    frame, rows = pd.read_csv(StringIO(text)), tmp_path / f"rows.{suffix}"
    encoder = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["town"]), remainder="passthrough")
    known = make_pipeline(encoder, HistGradientBoostingClassifier(max_iter=3, min_samples_leaf=2))
    estimators = {"known": known, "vote": VotingClassifier([("a", known)], voting="soft")}
    rows.write_text(text)
    if suffix == "jsonl":
        frame.to_json(rows, orient="records", lines=True)
    elif suffix == "parquet":
        pytest.importorskip("pyarrow")
        frame.to_parquet(rows)
    fitted = {name: each.fit(frame, frame["id"] % 3 == 0).predict_proba for name, each in estimators.items()}
    with served(**fitted) as at:
        for name, predict in fitted.items():
            scored = score(name, None, "--chunk", "7", at=at, rows=rows.name)
            np.testing.assert_array_equal(scored.values, predict(frame))


def test_a_code_with_zeros_is_a_text_and_a_gap_what_it_was_in_the_training(score: Score) -> None:
    cells, kinds = ["01234", "", "1234", "04103"] * 3, ["a", "none", "b", "c"] * 3
    frame = pd.DataFrame({"zip": pd.Series([cell or None for cell in cells], dtype=object), "size": range(12)})
    encoder = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["zip"]), remainder="drop")
    with served(m=make_pipeline(encoder, DecisionTreeClassifier(random_state=0)).fit(frame, kinds).predict) as at:
        text = "zip,size\n" + "".join(f"{cell},{row}\n" for row, cell in enumerate(cells))
        assert score("m", text, at=at).values == kinds


def test_columns_of_csv_that_only_some_requests_have(score: Score) -> None:
    with served(m=lambda a: np.stack([a] * int(a[0]), 1)) as at:
        scored = score("m", "a\n2\n3\n", "--chunk", "1", at=at, out="s.csv")
    assert scored.text == "row,output_0_0,output_0_1,output_0_2\n1,2,2,\n2,3,3,3\n"


def softmax(x: npt.NDArray[np.float64]) -> Any:
    return np.exp(x) / np.exp(x).sum()


def test_a_model_of_one_vector_does_not_score_rows(score: Score) -> None:
    server = InferenceServer()
    server.register("vector", softmax, inputs=[TensorSpec("x", "FP64", [3])])
    with serving(OIPApp(server, path="/v2")) as port:
        refused = score("vector", "x\n1\n2\n3\n", at=f"http://127.0.0.1:{port}/v2")
    assert (refused.status, refused.text) == (2, "")
    assert refused.told == "cannot be scored: the model has no input with a value for each row, but ['x']\n"


def test_a_column_that_nobody_declares_has_one_form_in_all_requests(score: Score) -> None:
    def name_types(a: Any) -> list[str]:
        return [type(each).__name__ for each in a]

    with served(m=name_types) as at:
        for chunk in ("1", "2", "9"):
            assert set(score("m", 'a\nx\n""\ny\nz\n', "--chunk", chunk, at=at).values) == {"str", "NoneType"}
            rows = '{"a": true}\n{"a": true}\n{"a": null}\n{"a": false}\n'
            kinds = score("m", rows, "--chunk", chunk, at=at, rows="rows.jsonl").values
            assert set(kinds) == {"bool", "NoneType"}
            mixed = score("m", '{"a": "x"}\n{"a": "y"}\n{"a": 1}\n', "--chunk", chunk, at=at, rows="rows.jsonl").values
            assert mixed == ["str", "str", "int"]


def test_a_column_may_be_sent_twice_in_an_array(score: Score) -> None:
    server = InferenceServer()
    server.register("sum", lambda X: X.sum(1), inputs=[TensorSpec("X", "FP64", [-1, 2])])  # noqa: N803
    with serving(OIPApp(server, path="/v2")) as port:
        assert score("sum", "a,b\n1,5\n2,7\n", "--columns", "a,a", at=f"http://127.0.0.1:{port}/v2").values == [2.0, 4.0]
        empty = score("sum", "a,b\n", at=f"http://127.0.0.1:{port}/v2", out="empty.csv")
        assert (empty.status, empty.told) == (0, f"0 of 0 rows are scored: {empty.out}\n")


def test_rows_without_values_are_rows(score: Score) -> None:
    server = InferenceServer()
    server.register("m", lambda df: df["a"].isna().to_numpy(), content_type="pd", inputs=specs_of(pd.DataFrame({"a": [1.0, None]})))
    with serving(OIPApp(server, path="/v2")) as port:
        refused = score("m", "{}\n{}\n", at=f"http://127.0.0.1:{port}/v2", rows="rows.jsonl")
    assert (refused.status, "the columns (none) cannot be sent: the file has [], and the model takes ['a']" in refused.told) == (2, True)
