"""The models of the benchmark of batches, for each server alike. Knows scikit-learn, and onnxruntime where it is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.neural_network import MLPClassifier

Predict = Callable[[Any], Any]
"""From images [n, 64] of FP32 to digits [n] of INT64."""


def images() -> Any:
    """Handwritten digits, [n, 64] of FP32 from 0 to 1."""
    data, _ = load_digits(return_X_y=True)
    return (data / 16).astype(np.float32)


def models() -> dict[str, Predict]:
    """The models by name."""
    _, digits = load_digits(return_X_y=True)
    mlp = MLPClassifier((256, 256), max_iter=20, tol=0.01, random_state=0).fit(images(), digits)
    boosted = GradientBoostingClassifier(n_estimators=20, random_state=0).fit(images(), digits)
    made: dict[str, Predict] = {"mlp": mlp.predict, "boosted": boosted.predict}
    if (onnx := _onnx(mlp)) is not None:
        made["onnx mlp"] = onnx
    return made


def _onnx(mlp: MLPClassifier) -> Predict | None:
    try:
        import onnxruntime
        from skl2onnx import to_onnx
    except ImportError:
        return None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(to_onnx(mlp, images()[:1]).SerializeToString(), options)
    name = session.get_inputs()[0].name

    def predict(image: Any) -> Any:
        return session.run(None, {name: image})[0]

    return predict
