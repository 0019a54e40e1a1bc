"""A scikit-learn pipeline that takes a data frame: which customers will leave.

    pip install -e '.[pandas]' scikit-learn uvicorn httpx2
    python examples/models/sklearn_pipeline.py
    uvicorn --factory --app-dir examples/models sklearn_pipeline:make_app
    python examples/models/sklearn_pipeline.py --check

The second line trains, and writes churn.joblib into the directory that you are in. The third serves it on http://127.0.0.1:8000. The
last does both in a directory of its own, asks the server, and ends. A joblib file is code: load only files that you trust.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import joblib
import numpy as np
import pandas as pd

from oip_asgi import InferenceServer, OIPApp, TensorSpec

FILE = "churn.joblib"
INPUTS = [
    TensorSpec("plan", "BYTES", [-1], content_type="str"),
    TensorSpec("months", "INT64", [-1]),
    TensorSpec("spent", "FP64", [-1]),  # NaN, null in JSON, where nobody knows it
]
OUTPUTS = [TensorSpec("leaves", "BOOL", [-1]), TensorSpec("probability", "FP64", [-1])]


def load_churn() -> Callable[[pd.DataFrame], pd.DataFrame]:
    """Read the pipeline. It runs once in each process, before the server is ready."""
    pipeline = joblib.load(FILE)

    def predict(customers: pd.DataFrame) -> pd.DataFrame:
        probability = pipeline.predict_proba(customers)[:, 1]
        return pd.DataFrame({"leaves": probability > 0.5, "probability": probability})

    return predict  # for labels alone: `return pipeline.predict`, and content_type="pd" below


def make_app() -> OIPApp:
    server = InferenceServer("churn")
    server.register("churn", load=load_churn, inputs=INPUTS, outputs=OUTPUTS)
    return OIPApp(server, path="/v2")


# How the model is made, and asked. In your project these are other programs -----------------------------------------


def customers(count: int, seed: int) -> pd.DataFrame:
    """Customers as they could be: strings, integers, and floats of which some are missing."""
    random = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "plan": random.choice(["basic", "plus", "family"], count),
            "months": random.integers(1, 60, count),
            "spent": random.gamma(4.0, 50.0, count),
        }
    )
    return frame.assign(spent=frame["spent"].mask(random.random(count) < 0.1))


def train() -> None:
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    seen = customers(2000, seed=1)
    left = (seen["plan"] == "basic") & (seen["months"] < 24)
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    columns = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["plan"]), (numbers, ["months", "spent"]))
    joblib.dump(make_pipeline(columns, LogisticRegression()).fit(seen, left), FILE)


def ask(url: str) -> bool:
    """Ask with a data frame and with JSON written by hand, and compare with what the pipeline says here."""
    import httpx2

    from oip_asgi import InferenceResponse
    from oip_asgi.codecs import PandasCodec

    unseen = customers(6, seed=2)
    headers, body = PandasCodec.encode_request(unseen).to_http(binary=True)
    answer = httpx2.post(f"{url}/v2/models/churn/infer", headers=headers, content=body).raise_for_status()
    frame = PandasCodec.decode_response(InferenceResponse.from_http(answer.headers, answer.content))
    print(pd.concat([unseen, frame], axis=1).to_string(index=False))

    inputs = [
        {"name": "months", "datatype": "INT64", "shape": [2], "data": [2, 50]},
        {"name": "plan", "datatype": "BYTES", "shape": [2], "data": ["basic", "a new plan"]},
        {"name": "spent", "datatype": "FP64", "shape": [2], "data": [80.5, None]},
    ]
    by_hand = httpx2.post(f"{url}/v2/models/churn/infer", json={"inputs": inputs}).raise_for_status().json()["outputs"]
    print("by hand", by_hand[0]["data"])
    refused = httpx2.post(f"{url}/v2/models/churn/infer", json={"inputs": inputs[:2]})
    print("without a column", refused.status_code, refused.json()["error"])

    own = joblib.load(FILE).predict_proba(unseen)[:, 1]
    is_refused = refused.status_code == 400 and "spent" in refused.json()["error"]
    return bool(np.array_equal(frame["probability"], own)) and by_hand[0]["data"] == [True, False] and is_refused


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        from checking import check

        sys.exit(check(__file__, ask))
    train()
