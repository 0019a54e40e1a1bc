"""An ONNX model: will a shop sell much ice cream? Inputs and outputs are read from the session; serving needs ONNX Runtime only.

    pip install -e . onnxruntime uvicorn
    pip install pandas scikit-learn skl2onnx 'tritonclient[http]' httpx2
    python examples/models/onnx_session.py
    uvicorn --factory --app-dir examples/models onnx_session:make_app
    python examples/models/onnx_session.py --check

The first line installs what serves, the second what trains and asks. The third line trains, and writes ice.onnx into the directory that
you are in. The fourth serves it on http://127.0.0.1:8000. The last does both in a directory of its own, asks the server, and ends.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime

from oip_asgi import InferenceError, InferenceServer, OIPApp
from oip_asgi.specs import specs_of

FILE = "ice.onnx"
PROVIDERS = ["CPUExecutionProvider"]  # with onnxruntime-gpu: ["CUDAExecutionProvider", "CPUExecutionProvider"]


def load_ice() -> Callable[..., dict[str, Any]]:
    """Open the session. It runs once in each process, before the server is ready."""
    session = onnxruntime.InferenceSession(FILE, providers=PROVIDERS)
    names = [output.name for output in session.get_outputs()]

    def predict(**inputs: Any) -> dict[str, Any]:
        given = {name: with_strings(array) for name, array in inputs.items()}
        return dict(zip(names, session.run(names, given), strict=True))

    return predict


def with_strings(array: Any) -> Any:
    """A tensor as ONNX Runtime wants it: elements of BYTES are `bytes`, of which it would silently take the text b'...'.

    Raises:
        InferenceError: An element is no UTF-8: the client is told.
    """
    if not array.dtype.hasobject:
        return array
    try:
        return np.vectorize(bytes.decode, otypes=[object])(array)
    except UnicodeDecodeError as error:
        raise InferenceError(f"send strings as UTF-8: {error}", status=400) from error


def make_app() -> OIPApp:
    # opened to read what the model takes, and let go: `load=` opens it for good
    inputs, outputs = specs_of(onnxruntime.InferenceSession(FILE, providers=PROVIDERS))
    server = InferenceServer("shop")
    server.register("ice", load=load_ice, inputs=inputs, outputs=outputs)
    return OIPApp(server, path="/v2")


# How the model is made, and asked. In your project these are other programs -----------------------------------------


def train() -> None:
    from pathlib import Path

    import pandas as pd
    from skl2onnx import to_onnx
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType
    from sklearn.compose import make_column_transformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    days = pd.DataFrame({"weather": ["dry", "rain", "dry", "rain", "dry", "rain"], "temperature": [31.0, 30.0, 22.0, 18.0, 12.0, 8.0]})
    sold = ["much", "much", "much", "little", "little", "little"]
    columns = make_column_transformer((OneHotEncoder(), ["weather"]), remainder="passthrough")
    classifier = make_pipeline(columns, LogisticRegression()).fit(days, sold)
    types = [("weather", StringTensorType([None, 1])), ("temperature", FloatTensorType([None, 1]))]
    # without zipmap the probabilities are a tensor, and not a list of mappings, which nobody can send
    Path(FILE).write_bytes(to_onnx(classifier, initial_types=types, options={"zipmap": False}).SerializeToString())


def ask(url: str) -> bool:
    """Ask with Triton's own client, and compare with what the session says here."""
    from tritonclient.http import InferenceServerClient, InferenceServerException, InferInput

    weather, temperature = np.array([["dry"], ["rain"], ["dry"]], object), np.array([[29], [5], [20]], np.float32)
    texts = InferInput("weather", [3, 1], "BYTES").set_data_from_numpy(weather)
    numbers = InferInput("temperature", [3, 1], "FP32").set_data_from_numpy(temperature)
    with InferenceServerClient(url.removeprefix("http://")) as client:
        metadata = client.get_model_metadata("ice")
        for tensor in (*metadata["inputs"], *metadata["outputs"]):
            print(tensor["name"], tensor["datatype"], tensor["shape"])
        answer = client.infer("ice", [texts, numbers])
        labels, probabilities = answer.as_numpy("label"), answer.as_numpy("probabilities")
        print(labels.tolist(), probabilities.max(axis=1).round(2).tolist())
        try:
            client.infer("ice", [texts, InferInput("temperature", [3], "FP32").set_data_from_numpy(temperature[:, 0])])
        except InferenceServerException as error:
            refused = error.message()
            print(refused)

    session = onnxruntime.InferenceSession(FILE, providers=PROVIDERS)
    own_labels, own_probabilities = session.run(None, {"weather": weather, "temperature": temperature})
    is_own = [label.decode() for label in labels] == own_labels.tolist() and np.array_equal(probabilities, own_probabilities)
    return is_own and "[3]: expected [-1, 1]" in refused


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        from checking import check

        sys.exit(check(__file__, ask))
    train()
