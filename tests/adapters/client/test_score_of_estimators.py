"""The command that scores a file, where the model is an estimator: it gets what the frame has that is read from the file."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, VotingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeClassifier

from oip_asgi import InferenceServer, OIPApp, TensorSpec
from oip_asgi.client.score import main
from tests.support.threads import serving


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
@pytest.mark.parametrize("chunk", ["1", "2", "8"])
def test_booleans_of_which_some_are_missing_are_numbers_to_a_model_of_numbers(tmp_path: Path, suffix: str, chunk: str) -> None:
    cells, server = ["True", "", "False", "True"] * 3, InferenceServer()
    (tmp_path / "rows.csv").write_text("own,fee\n" + "".join(f"{cell},{row}\n" for row, cell in enumerate(cells)))
    (tmp_path / "rows.jsonl").write_text("".join(f'{{"own": {cell.lower() or "null"}, "fee": {row}}}\n' for row, cell in enumerate(cells)))
    frame = pd.read_csv(tmp_path / "rows.csv")
    expected = {}
    for name, step in (("fills", SimpleImputer()), ("most", SimpleImputer(strategy="most_frequent")), ("ones", OneHotEncoder())):
        fitted = frame.astype({"own": float if name == "most" else object})
        known = make_column_transformer((step, ["own"]), remainder="passthrough") if name == "ones" else step
        pipeline = make_pipeline(known, DecisionTreeClassifier(random_state=0)).fit(fitted, [0, 1, 2, 0] * 3)
        server.register(name, pipeline.predict)
        expected[name] = pipeline.predict(frame).tolist()
    server.register("strict", LogisticRegression().fit(frame.fillna(0.0).astype(float), [0, 1, 2, 0] * 3).predict)
    with serving(OIPApp(server, path="/v2")) as port:
        url, more = f"http://127.0.0.1:{port}/v2", [str(tmp_path / f"rows.{suffix}"), "--out", str(tmp_path / "s.jsonl"), "--chunk", chunk]
        for name, values in expected.items():
            assert main([url, name, *more]) == 0
            assert [json.loads(line)["output_0"] for line in (tmp_path / "s.jsonl").read_text().splitlines()] == values
        assert main([url, "strict", *more]) == 1
        refused = [json.loads(line) for line in (tmp_path / "s.refused.jsonl").read_text().splitlines()]
        assert {each["reason"] for each in refused} == {"model 'strict' refused the request: Input X contains NaN."}
        assert [each["row"] for each in refused] == [2, 6, 10]


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_booleans_are_numbers_to_a_model_of_one_array_of_numbers(tmp_path: Path, suffix: str) -> None:
    cells, server = ["True", "", "False", "True"] * 3, InferenceServer()
    (tmp_path / "rows.csv").write_text("own,fee\n" + "".join(f"{cell},{row}\n" for row, cell in enumerate(cells)))
    (tmp_path / "rows.jsonl").write_text("".join(f'{{"own": {cell.lower() or "null"}, "fee": {row}}}\n' for row, cell in enumerate(cells)))
    array, out = pd.read_csv(tmp_path / "rows.csv").to_numpy(float), tmp_path / "s.jsonl"
    server.register("m", DecisionTreeClassifier(random_state=0).fit(array, [0, 1, 2, 0] * 3).predict)
    with serving(OIPApp(server, path="/v2")) as port:
        assert main([f"http://127.0.0.1:{port}/v2", "m", str(tmp_path / f"rows.{suffix}"), "--out", str(out)]) == 0
    assert [json.loads(line)["output_0"] for line in out.read_text().splitlines()] == [0, 1, 2, 0] * 3


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_an_estimator_scores_a_file_as_the_frame_that_is_read_from_it(tmp_path: Path, suffix: str) -> None:
    text = "id,town,own,age,fee\n" + "".join(
        f"{row},{('Bonn', '', 'Ulm', 'a b')[row % 4]},{('True', 'False')[row % 3 == 0]},{row % 5 or ''},{row / 7}\n" for row in range(1, 61)
    )
    (tmp_path / "rows.csv").write_text(text)
    frame = pd.read_csv(tmp_path / "rows.csv")
    encoder = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["town"]), remainder="passthrough")
    known = make_pipeline(encoder, HistGradientBoostingClassifier(max_iter=3, min_samples_leaf=2))
    server, rows = InferenceServer(), tmp_path / f"rows.{suffix}"
    estimators = {"known": known, "vote": VotingClassifier([("a", known)], voting="soft")}
    for name, estimator in estimators.items():
        server.register(name, estimator.fit(frame, frame["id"] % 3 == 0).predict_proba)
    if suffix == "jsonl":
        frame.to_json(rows, orient="records", lines=True)
    elif suffix == "parquet":
        pytest.importorskip("pyarrow")
        frame.to_parquet(rows)
    with serving(OIPApp(server, path="/v2")) as port:
        for name, estimator in estimators.items():
            out = tmp_path / f"{name}.jsonl"
            assert main([f"http://127.0.0.1:{port}/v2", name, str(rows), "--out", str(out), "--chunk", "7"]) == 0
            scored = [json.loads(line)["output_0"] for line in out.read_text().splitlines()]
            np.testing.assert_array_equal(scored, estimator.predict_proba(frame))


def test_a_code_with_zeros_is_a_text_and_a_gap_what_it_was_in_the_training(tmp_path: Path) -> None:
    cells, rows = ["01234", "", "1234", "04103"] * 3, tmp_path / "rows.csv"
    rows.write_text("zip,size\n" + "".join(f"{cell},{row}\n" for row, cell in enumerate(cells)))
    frame = pd.DataFrame({"zip": pd.Series([cell or None for cell in cells], dtype=object), "size": range(12)})
    encoder = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["zip"]), remainder="drop")
    kinds = ["a", "none", "b", "c"] * 3
    server, out = InferenceServer(), tmp_path / "s.jsonl"
    server.register("m", make_pipeline(encoder, DecisionTreeClassifier(random_state=0)).fit(frame, kinds).predict)
    with serving(OIPApp(server, path="/v2")) as port:
        assert main([f"http://127.0.0.1:{port}/v2", "m", str(rows), "--out", str(out)]) == 0
    assert [json.loads(line)["output_0"] for line in out.read_text().splitlines()] == kinds


@pytest.mark.parametrize(
    ("labels", "names"), [(["low", "höher, as yet"], ["low", "höher, as yet"]), (None, ["0", "1"]), (["twice", "twice"], ["0", "1"])]
)
def test_columns_of_csv_are_named_by_the_labels_of_the_output(tmp_path: Path, labels: list[str] | None, names: list[str]) -> None:
    server, out = InferenceServer(), tmp_path / "scores.csv"
    server.register("m", lambda x: {"p": np.stack([x, 2 * x], 1)}, outputs=[TensorSpec("p", "FP64", [-1, 2], labels=labels)])
    (tmp_path / "rows.csv").write_text("x\n1.5\n2.5\n")
    with serving(OIPApp(server, path="/v2")) as port:
        assert main([f"http://127.0.0.1:{port}/v2", "m", str(tmp_path / "rows.csv"), "--out", str(out)]) == 0
    read = list(csv.reader(out.read_text(encoding="utf-8").splitlines()))
    assert read == [["row", *(f"p_{name}" for name in names)], ["1", "1.5", "3.0"], ["2", "2.5", "5.0"]]
