"""A model of MLflow: its signature declares the inputs and outputs, and its pyfunc answers, whatever library is behind it.

    pip install -e '.[pandas]' mlflow scikit-learn uvicorn httpx2
    python examples/models/mlflow_pyfunc.py
    uvicorn --factory --app-dir examples/models mlflow_pyfunc:make_app
    python examples/models/mlflow_pyfunc.py --check

The second line trains, and writes the model into the directory bikes below the one that you are in. The third serves it on
http://127.0.0.1:8000. The last does both in a directory of its own, asks the server, and ends.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import mlflow
import pandas as pd

from oip_asgi import InferenceServer, OIPApp
from oip_asgi.specs import specs_of

MODEL = "bikes"  # a directory, or "models:/bikes/3" and "models:/bikes@champion" where MLFLOW_TRACKING_URI says who has it


def load_bikes() -> Callable[[pd.DataFrame], Any]:
    """Read the model. It runs once in each process, before the server is ready."""
    model = mlflow.pyfunc.load_model(MODEL)

    def predict(frame: pd.DataFrame) -> Any:
        return model.predict(frame)

    return predict


def make_app() -> OIPApp:
    inputs, outputs = specs_of(mlflow.models.get_model_info(MODEL).signature)  # reads the file MLmodel, and not the model
    server = InferenceServer("bikes")
    server.register("bikes", load=load_bikes, inputs=inputs, outputs=outputs)
    return OIPApp(server, path="/v2")


# How the model is made, and asked. In your project these are other programs -----------------------------------------

DAYS = pd.DataFrame(
    {
        "weather": ["dry", "dry", "rain", "rain", "snow", "dry", "rain", "snow"],
        "temperature": [25.0, 18.5, 17.0, 9.5, -2.0, 8.0, 14.0, 0.5],
        "is_holiday": [True, False, False, True, False, True, True, False],
        "stations": [40.0, 40.0, 41.0, 41.0, 42.0, 42.0, 43.0, 43.0],  # MLflow refuses missing values in columns of integers
    }
)


def train() -> None:
    from sklearn.compose import make_column_transformer
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    rented = [900, 610, 250, 120, 15, 380, 230, 40]
    columns = make_column_transformer((OneHotEncoder(), ["weather"]), remainder="passthrough")
    pipeline = make_pipeline(columns, Ridge()).fit(DAYS, rented)
    signature = mlflow.models.infer_signature(DAYS, pipeline.predict(DAYS))
    mlflow.sklearn.save_model(pipeline, MODEL, signature=signature)


def ask(url: str) -> bool:
    """Look at what is declared, ask with a data frame, and compare with what MLflow says here."""
    import httpx2
    import numpy as np

    from oip_asgi import InferenceResponse
    from oip_asgi.codecs import PandasCodec

    metadata = httpx2.get(f"{url}/v2/models/bikes").raise_for_status().json()
    for tensor in (*metadata["inputs"], *metadata["outputs"]):
        print(tensor["name"], tensor["datatype"], tensor["shape"])

    headers, body = PandasCodec.encode_request(DAYS).to_http()
    answer = httpx2.post(f"{url}/v2/models/bikes/infer", headers=headers, content=body, timeout=60).raise_for_status()
    [output] = InferenceResponse.from_http(answer.headers, answer.content).outputs
    print(DAYS.assign(bikes=output.array.round()).to_string(index=False))

    headers, body = PandasCodec.encode_request(DAYS.astype({"temperature": str})).to_http()
    refused = httpx2.post(f"{url}/v2/models/bikes/infer", headers=headers, content=body)
    print("with temperatures as text", refused.status_code, refused.json()["error"])

    own = mlflow.pyfunc.load_model(MODEL).predict(DAYS)
    datatypes = [tensor["datatype"] for tensor in metadata["inputs"]]
    is_declared = datatypes == ["BYTES", "FP64", "BOOL", "FP64"] and output.name == metadata["outputs"][0]["name"]
    return is_declared and bool(np.array_equal(output.array, own)) and refused.status_code == 400


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        from checking import check

        sys.exit(check(__file__, ask))
    train()
