"""MLflow's own scoring server, with the Open Inference Protocol beside `/invocations`: one application, one model, two protocols.

    pip install -e '.[pandas]' mlflow scikit-learn uvicorn httpx2
    python examples/models/mlflow_scoring.py
    uvicorn --factory --app-dir examples/models mlflow_scoring:make_app
    python examples/models/mlflow_scoring.py --check

The second line trains, and writes the model into the directory iris below the one that you are in. The third serves it on
http://127.0.0.1:8000. The last does both in a directory of its own, asks the server, and ends.
"""

from __future__ import annotations

import sys
from typing import Any

import mlflow
import pandas as pd
from mlflow.pyfunc import scoring_server

from oip_asgi import InferenceServer, OIPApp
from oip_asgi.specs import specs_of

MODEL = "iris"  # a directory, or "models:/iris/3" where MLFLOW_TRACKING_URI says who has it


def make_app() -> Any:
    model = mlflow.pyfunc.load_model(MODEL)
    app = scoring_server.init(model)  # MLflow's application: /invocations, /ping, /version

    def predict(frame: pd.DataFrame) -> Any:
        return model.predict(frame)

    inputs, outputs = specs_of(model.metadata.signature)
    server = InferenceServer("iris")
    server.register("iris", predict, inputs=inputs, outputs=outputs)
    OIPApp(server).install(app, "/v2")
    return app


# How the model is made, and asked. In your project these are other programs -----------------------------------------


def train() -> None:
    from sklearn.datasets import load_iris
    from sklearn.linear_model import LogisticRegression

    flowers, species = load_iris(return_X_y=True, as_frame=True)
    classifier = LogisticRegression(max_iter=1000).fit(flowers, species)
    mlflow.sklearn.save_model(classifier, MODEL, signature=mlflow.models.infer_signature(flowers, classifier.predict(flowers)))


def ask(url: str) -> bool:
    """Ask by both protocols, and compare."""
    import httpx2
    from sklearn.datasets import load_iris

    from oip_asgi import InferenceResponse
    from oip_asgi.codecs import PandasCodec

    flowers = load_iris(as_frame=True).data[48:53]
    answer = httpx2.post(f"{url}/invocations", json={"dataframe_split": flowers.to_dict("split", index=False)}, timeout=60)
    by_mlflow = answer.raise_for_status().json()["predictions"]
    headers, body = PandasCodec.encode_request(flowers).to_http()
    answer = httpx2.post(f"{url}/v2/models/iris/infer", headers=headers, content=body, timeout=60).raise_for_status()
    by_v2 = InferenceResponse.from_http(answer.headers, answer.content).outputs[0].array.tolist()
    print("/invocations           ", by_mlflow)
    print("/v2/models/iris/infer  ", by_v2)

    headers, body = PandasCodec.encode_request(flowers.iloc[:, :3]).to_http()
    refused = httpx2.post(f"{url}/v2/models/iris/infer", headers=headers, content=body)
    print("without a column", refused.status_code, refused.json()["error"])
    return bool(by_mlflow == by_v2 == [0, 0, 1, 1, 1]) and refused.status_code == 400


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        from checking import check

        sys.exit(check(__file__, ask))
    train()
