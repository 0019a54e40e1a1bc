"""An ONNX model: its inputs and outputs are read from the session, and serving it needs ONNX Runtime only.

    pip install oip_asgi onnxruntime uvicorn
    pip install scikit-learn skl2onnx 'tritonclient[http]'
    python examples/models/onnx_session.py
    uvicorn --factory --app-dir examples/models onnx_session:make_app
    python examples/models/onnx_session.py --check

The first line installs what serves, the second what trains and asks. The third line trains, and writes iris.onnx into the directory that
you are in. The fourth serves it on http://127.0.0.1:8000. The last does both in a directory of its own, asks the server, and ends.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import onnxruntime

from oip_asgi import InferenceServer, OIPApp
from oip_asgi.specs import specs_of

FILE = "iris.onnx"
PROVIDERS = ["CPUExecutionProvider"]  # with onnxruntime-gpu: ["CUDAExecutionProvider", "CPUExecutionProvider"]


def load_iris() -> Callable[..., dict[str, Any]]:
    """Open the session. It runs once in each process, before the server is ready."""
    session = onnxruntime.InferenceSession(FILE, providers=PROVIDERS)
    names = [output.name for output in session.get_outputs()]

    def predict(**inputs: Any) -> dict[str, Any]:
        # a tensor(string) arrives as bytes, and ONNX Runtime wants str: np.vectorize(bytes.decode, otypes=[object])(inputs["name"])
        return dict(zip(names, session.run(names, inputs), strict=True))

    return predict


def make_app() -> OIPApp:
    # opened to read what the model takes, and let go: `load=` opens it for good
    inputs, outputs = specs_of(onnxruntime.InferenceSession(FILE, providers=PROVIDERS))
    server = InferenceServer("flowers")
    server.register("iris", load=load_iris, platform="onnxruntime_onnx", inputs=inputs, outputs=outputs)
    return OIPApp(server, path="/v2")


# How the model is made, and asked. In your project these are other programs -----------------------------------------


def train() -> None:
    from pathlib import Path

    import numpy as np
    from skl2onnx import to_onnx
    from sklearn.datasets import load_iris
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    flowers = load_iris()
    measured = flowers.data.astype(np.float32)
    classifier = make_pipeline(StandardScaler(), LogisticRegression()).fit(measured, flowers.target_names[flowers.target])
    # without zipmap the probabilities are a tensor, and not a list of mappings, which nobody can send
    model = to_onnx(classifier, measured[:1], options={"zipmap": False})
    Path(FILE).write_bytes(model.SerializeToString())


def ask(url: str) -> bool:
    """Ask with Triton's own client, and compare with what the session says here."""
    import numpy as np
    from tritonclient.http import InferenceServerClient, InferenceServerException, InferInput

    flowers = np.array([[5.1, 3.5, 1.4, 0.2], [6.0, 2.7, 5.1, 1.6], [6.3, 3.3, 6.0, 2.5]], np.float32)
    with InferenceServerClient(url.removeprefix("http://")) as client:
        metadata = client.get_model_metadata("iris")
        for tensor in (*metadata["inputs"], *metadata["outputs"]):
            print(tensor["name"], tensor["datatype"], tensor["shape"])
        [declared] = metadata["inputs"]
        tensor = InferInput(declared["name"], flowers.shape, declared["datatype"])
        answer = client.infer("iris", [tensor.set_data_from_numpy(flowers)])
        labels, probabilities = answer.as_numpy("label"), answer.as_numpy("probabilities")
        print(labels.tolist(), probabilities.max(axis=1).round(2).tolist())
        try:
            client.infer("iris", [InferInput("X", [3, 3], "FP32").set_data_from_numpy(flowers[:, :3])])
        except InferenceServerException as error:
            refused = error.message()
            print(refused)

    own_labels, own_probabilities = onnxruntime.InferenceSession(FILE, providers=PROVIDERS).run(None, {"X": flowers})
    is_own = [label.decode() for label in labels] == own_labels.tolist() and np.array_equal(probabilities, own_probabilities)
    return is_own and "[3, 3]: expected [-1, 4]" in refused


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        from checking import check

        sys.exit(check(__file__, ask))
    train()
