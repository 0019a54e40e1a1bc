"""The models of this benchmark, as plain functions. They know numpy, scikit-learn, pandas and onnxruntime, and no server.

Every server calls these same functions, so this module also runs in the environments of other servers, and with Python 3.10.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

ONNX_FILE: Final = "BENCH_ONNX_FILE"
"""The variable of the environment that names the ONNX model's file. The benchmark writes it once, for all servers."""

NUMBERS: Final = [f"number_{place}" for place in range(13)]
CATEGORIES: Final = [f"category_{place}" for place in range(26)]
"""The columns of the frame: those of the data set of clicks that Criteo published."""

_WEIGHTS: Final = np.linspace(-0.1, 0.1, len(NUMBERS))


def sleeps(x: Any) -> Any:
    """Give back what came after 100 ms of waiting, as for a database."""
    time.sleep(0.1)
    return x


def computes(x: Any) -> Any:
    """Give back what came after about 5 ms of Python code, which one thread at a time runs."""
    sum(number * number for number in range(60_000))
    return x


def classifier() -> Any:
    """A pipeline of scikit-learn that tells handwritten digits from images of 64 pixels, trained in a second."""
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    images, digits = load_digits(return_X_y=True)
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(images.astype(np.float32), digits)


def image() -> Any:
    """One image of a handwritten 4: FP32 of the shape [1, 64]."""
    from sklearn.datasets import load_digits

    return load_digits().data[4:5].astype(np.float32)


def has_sklearn() -> bool:
    """Whether the models beside the identity ones can be served in this environment."""
    return find_spec("sklearn") is not None


def has_onnx() -> bool:
    """Whether the ONNX model can be served in this environment."""
    return ONNX_FILE in os.environ and find_spec("onnxruntime") is not None


def onnx() -> Callable[[Any], Any]:
    """The same classifier in onnxruntime, on one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(os.environ[ONNX_FILE], options, providers=["CPUExecutionProvider"])
    return lambda image: session.run(["label"], {"image": image})[0]


def can_convert() -> bool:
    return all(find_spec(module) is not None for module in ("skl2onnx", "onnxruntime"))


def write_onnx(file: Path) -> None:
    """Write the classifier as an ONNX model with the input `image` and the outputs `label` and `probabilities`."""
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import FloatTensorType

    pipeline, image_type = classifier(), FloatTensorType([None, 64])
    model = convert_sklearn(pipeline, initial_types=[("image", image_type)], final_types=None, options={id(pipeline): {"zipmap": False}})
    names = dict(zip([output.name for output in model.graph.output], ("label", "probabilities"), strict=True))
    for node in model.graph.node:
        node.output[:] = [names.get(name, name) for name in node.output]
    for output in model.graph.output:
        output.name = names[output.name]
    file.write_bytes(model.SerializeToString())


def clicks(frame: pd.DataFrame) -> pd.DataFrame:
    """How probable a click is, for each row of a frame of 39 columns."""
    import pandas as pd

    return pd.DataFrame({"chance": 1 / (1 + np.exp(-(frame[NUMBERS].to_numpy(np.float64) @ _WEIGHTS)))})


def identity(x: Any) -> Any:
    """What came in."""
    return x
