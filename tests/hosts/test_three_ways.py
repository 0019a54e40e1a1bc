"""A model of a public data set as a class, as the estimator itself and as a frame: each host gives the same bytes for the same rows."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

import pytest
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from oip_asgi import InferenceServer
from tests.support.ways import Request, ways_into

pd = pytest.importorskip("pandas")

COLUMNS = ["alcohol", "hue", "proline"]
WINE = load_wine(as_frame=True)
FRAME = WINE.data[COLUMNS]


@dataclass
class Wine:
    alcohol: float
    hue: float
    proline: float


def test_three_ways_have_one_answer() -> None:
    pipeline = make_pipeline(StandardScaler(), LogisticRegression()).fit(FRAME, WINE.target)

    def of_rows(rows: list[Wine]) -> object:
        return pipeline.predict_proba(pd.DataFrame(map(asdict, rows)))

    of_rows.__annotations__["rows"] = list[Wine]
    server = InferenceServer()
    server.register("wine", of_rows, version="1")
    server.register("wine", pipeline.predict_proba, version="2")
    server.register("wine", lambda df: pipeline.predict_proba(df), content_type="pd", version="3")
    columns = FRAME.iloc[:3].to_dict("list")
    tensors = [{"name": name, "datatype": "FP64", "shape": [3], "data": column} for name, column in columns.items()]
    expected = pipeline.predict_proba(FRAME.iloc[:3])
    for action, body in (("infer", {"inputs": tensors}), ("generate", columns)):
        answers = {
            (name, version): way(Request("POST", f"/models/wine/versions/{version}/{action}", (), json.dumps(body).encode()))
            for name, way in ways_into(server).items()
            for version in ("1", "2", "3")
        }
        bodies = {answer.body.replace(b'"model_version":"%b"' % version.encode(), b"") for (_, version), answer in answers.items()}
        assert {answer.status for answer in answers.values()} == {200}, answers
        assert len(bodies) == 1
    flat = json.loads(answers["OIPApp", "2"].body)["output_0"]
    assert flat == expected.ravel().tolist()
