"""A model of a public data set as a class, as the estimator itself and as a frame: each host gives the same bytes for the same rows."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

import pytest
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from oip_asgi import InferenceServer
from tests.support.host_ways import host_ways
from tests.support.ways import Request, ways_into

pd = pytest.importorskip("pandas")


@dataclass
class Penguin:
    """Two of these birds were not measured, and the sex of eleven is not known."""

    island: str
    bill_length_mm: float | None
    body_mass_g: float | None
    sex: str | None


DATATYPES = {"island": "BYTES", "bill_length_mm": "FP64", "body_mass_g": "FP64", "sex": "BYTES"}


def describe(name: str, column: list[Any]) -> dict[str, Any]:
    """A column as a tensor: texts of which some are missing are JSON texts."""
    tensor: dict[str, Any] = {"name": name, "datatype": DATATYPES[name], "shape": [len(column)], "data": column}
    if DATATYPES[name] == "BYTES" and None in column:
        tensor |= {"data": list(map(json.dumps, column)), "parameters": {"content_type": "pd_json"}}
    return tensor


def test_three_ways_have_one_answer_in_each_host() -> None:
    data = pytest.importorskip("palmerpenguins").load_penguins()
    # a missing text of a request is None, and the encoder knows it only if it has seen that: the package's file has NaN
    data["sex"] = data.sex.astype(object).where(data.sex.notna(), None)
    frame = data[[*DATATYPES]]
    columns_of_numbers = (make_pipeline(SimpleImputer(), StandardScaler()), ["bill_length_mm", "body_mass_g"])
    of_columns = make_column_transformer(columns_of_numbers, (OneHotEncoder(handle_unknown="ignore"), ["island", "sex"]))
    predict = make_pipeline(of_columns, LogisticRegression(max_iter=500)).fit(frame, data.species).predict_proba
    rows = frame.iloc[[0, 3, 8, 200]]
    assert rows.isna().sum().tolist() == [0, 1, 1, 2]

    def of_rows(rows: list[Penguin]) -> object:
        return predict(pd.DataFrame(map(asdict, rows)))

    server = InferenceServer()
    server.register("m", of_rows, version="1")
    server.register("m", predict, version="2")
    server.register("m", lambda df: predict(df), content_type="pd", version="3")
    columns = {name: [None if pd.isna(value) else value for value in rows[name].tolist()] for name in rows}
    tensors = [describe(name, column) for name, column in columns.items()]
    with host_ways(server) as hosts:
        ways = {**ways_into(server), **hosts}
        for action, body in (("infer", {"inputs": tensors}), ("generate", columns)):
            answers = {
                (name, version): way(Request("POST", f"/models/m/versions/{version}/{action}", (), json.dumps(body).encode()))
                for name, way in ways.items()
                for version in ("1", "2", "3")
            }
            bodies = {answer.body.replace(b'"model_version":"%b"' % version.encode(), b"") for (_, version), answer in answers.items()}
            assert {answer.status for answer in answers.values()} == {200}, answers
            assert len(bodies) == 1
    assert json.loads(answers["FastAPI install", "2"].body)["output_0"] == predict(rows).ravel().tolist()
