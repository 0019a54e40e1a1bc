"""Makes the ONNX model's file from the classifier of scikit-learn. Knows skl2onnx, which only the benchmark's own environment has."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from .functions import classifier


def can_convert() -> bool:
    return all(find_spec(module) is not None for module in ("skl2onnx", "onnxruntime"))


def write(file: Path) -> None:
    """Write the classifier as an ONNX model with the input `image` and the outputs `label` and `probabilities`."""
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import FloatTensorType

    pipeline = classifier()
    model = convert_sklearn(
        pipeline,
        initial_types=[("image", FloatTensorType([None, 64]))],
        final_types=None,
        options={id(pipeline): {"zipmap": False}},
    )
    names = dict(zip([output.name for output in model.graph.output], ("label", "probabilities"), strict=True))
    for node in model.graph.node:
        node.output[:] = [names.get(name, name) for name in node.output]
    for output in model.graph.output:
        output.name = names[output.name]
    file.write_bytes(model.SerializeToString())
