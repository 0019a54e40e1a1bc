"""A file with each row that a model is asked about, written by an observer, and a report of how far the rows are from the training data.

python examples/drift_report.py            serves on http://127.0.0.1:8000, and writes predictions.jsonl here
python examples/drift_report.py --check    serves on a free port, sends rows that have drifted, prints the report, and ends
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TextIO

import httpx2
import msgspec
import pandas as pd
import uvicorn
from digits import serving
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from starlette.applications import Starlette

from oip_asgi import InferenceServer, Observation, OIPApp

COLUMNS = ["alcohol", "hue", "proline"]
WINE = load_wine(as_frame=True)
TRAINING = WINE.data[COLUMNS]


class PredictionLog:
    """Writes a JSON line for each row of each request that was answered."""

    def __init__(self, file: TextIO) -> None:
        self.file = file

    def __call__(self, observation: Observation) -> None:
        request, response = observation.request, observation.response
        if request is None or response is None:  # it was refused, or has failed
            return
        columns = {tensor.name: tensor.array.ravel().tolist() for tensor in [*request.inputs, *response.outputs]}
        for row in zip(*columns.values(), strict=True):
            line = {"at": observation.at, "model": observation.model, **dict(zip(columns, row, strict=True))}
            self.file.write(msgspec.json.encode(line).decode() + "\n")
        self.file.flush()


def report(predictions: Path) -> pd.DataFrame:
    """The mean of each column, and by how many standard deviations of the training data it has moved."""
    rows = pd.read_json(predictions, lines=True)
    # the same rows for other tools: rows.to_parquet("predictions.parquet")
    moved = (rows[COLUMNS].mean() - TRAINING.mean()) / TRAINING.std()
    return pd.DataFrame({"trained": TRAINING.mean(), "asked": rows[COLUMNS].mean(), "moved": moved.abs()}).round(2)


def make_app(file: TextIO) -> Starlette:
    server = InferenceServer(name="wine")
    pipeline = make_pipeline(StandardScaler(), LogisticRegression()).fit(TRAINING, WINE.target)
    server.register("wine", pipeline.predict)
    server.observe(PredictionLog(file), models=["wine"])
    app = Starlette()
    OIPApp(server).install(app, "/v2")
    return app


def check() -> None:
    """Ask about the training data, with much more proline."""
    with tempfile.TemporaryDirectory() as folder:
        predictions = Path(folder, "predictions.jsonl")
        # the end of `serving` stops the server, which hands over what is queued
        with predictions.open("w") as file, serving(make_app(file)) as url:
            for start in range(0, len(TRAINING), 30):
                rows = TRAINING[start : start + 30]
                columns = rows.assign(proline=rows["proline"] + 600).to_dict("list")
                httpx2.post(f"{url}/v2/models/wine/generate", json=columns).raise_for_status()
        found = report(predictions)
    print(found.to_string())
    print("drifted:", ", ".join(found.index[found["moved"] > 0.5]))


def main() -> None:
    if "--check" in sys.argv[1:]:
        check()
        return
    with Path("predictions.jsonl").open("a") as file:
        uvicorn.run(make_app(file))


if __name__ == "__main__":
    main()
