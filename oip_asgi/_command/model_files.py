"""A file with a model -> what `InferenceServer.register` takes. Imports the library of a file only for a file of that library."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MethodType
from typing import Any, Final, NamedTuple

import numpy as np

from .._hosts.given import describe
from .._models.columns import list_columns
from .._protocol.datatypes import datatype_of
from .._protocol.errors import InferenceError
from .._protocol.specs import TensorSpec
from ..mlserver.runtimes import open_xgboost
from ..specs import specs_of

EXPECTED: Final = "an estimator's .joblib or .pkl, an .onnx, or what save_model of LightGBM or XGBoost has written"


_OF_CODE: Final = dict.fromkeys(
    (".pt", ".pth", ".keras", ".h5", ".safetensors"),
    "the command has no library that runs this: export it to ONNX, or load it in a module, and register a function with server.register",
)
"""What is said of files of other libraries."""


class ModelFile(NamedTuple):
    """What a file holds."""

    function: Callable[..., Any]
    options: dict[str, Any]  # for `register`


def read_model_file(file: Path) -> ModelFile:
    """Read a file.

    Raises:
        ValueError: It holds no model, or cannot be read; the text says what was expected.
        ImportError: Its library is not installed.
    """
    with file.open("rb") as opened:
        beginning = opened.read(64)
    reader = _BY_SUFFIX.get(file.suffix.lower())
    if reader is None:
        reader = next((each for mark, each in _BY_BEGINNING.items() if mark in beginning), None)
    if reader is None:
        raise ValueError(f"{file}: {_OF_CODE.get(file.suffix.lower(), 'this is no file of a model')}: expected {EXPECTED}")
    try:
        return reader(file)
    except (ImportError, ValueError):
        raise
    except Exception as error:  # whatever a library says of a file that it cannot read
        raise ValueError(f"{file}: cannot be read: {type(error).__name__}: {error}") from error


def _import_needed(module: str, package: str, file: Path) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"{file}: needs {package}: pip install {package}") from error


# Estimators: what has `predict`, as those of scikit-learn have it


def _describe_estimator(estimator: Any, file: Path) -> ModelFile:
    """All that an estimator says of rows, as outputs with the names that they have at MLServer."""
    if not hasattr(estimator, "predict"):
        raise ValueError(f"{file}: holds {describe(estimator)}: expected an estimator with predict, such as scikit-learn has them")
    if list_columns(estimator):
        _import_needed("pandas", "pandas", file)
    classes = getattr(estimator, "classes_", None)
    classes = classes if isinstance(classes, np.ndarray) and hasattr(estimator, "predict_proba") else None

    def answer(self: Any, X: Any) -> dict[str, Any]:  # noqa: N803  (as the estimator calls it)
        predicted = {"predict": self.predict(X)}
        return predicted if classes is None else {**predicted, "predict_proba": self.predict_proba(X)}

    answer.__name__ = "predict"
    function = MethodType(answer, estimator)  # a method of the estimator's own: what it declares is known as of its other methods
    outputs = [] if classes is None else _list_outputs(classes)
    return ModelFile(function, {"platform": type(estimator).__module__.partition(".")[0], "outputs": outputs})


def _list_outputs(classes: Any) -> list[TensorSpec]:
    labels = list(map(str, classes))
    kind = "BYTES" if classes.dtype.kind in "OUS" else datatype_of(classes.dtype)
    probabilities = TensorSpec("predict_proba", "FP64", [-1, len(labels)], labels=labels)
    return [] if kind is None else [TensorSpec("predict", kind, [-1]), probabilities]


def _read_estimator(file: Path) -> ModelFile:
    joblib = _import_needed("joblib", "joblib", file)
    try:
        estimator = joblib.load(file)
    except ModuleNotFoundError as error:
        raise ImportError(f"{file}: {error}: its classes are there: install it, or start this where it can be imported") from error
    except AttributeError as error:  # such as a function of the notebook in which it was made
        raise ValueError(f"{file}: {error}: a class or function of it is not where it was when the file was written") from error
    except Exception as error:  # joblib checks nothing: what is no pickle fails anywhere in it
        raise ValueError(
            f"{file}: joblib cannot read it ({type(error).__name__}: {error}): expected a whole file that joblib.dump or pickle has "
            "written, with the versions of the libraries that are here"
        ) from error
    return _describe_estimator(estimator, file)


def _read_xgboost(file: Path) -> ModelFile:
    return _describe_estimator(open_xgboost(str(file)), file)


# LightGBM and ONNX


def _read_lightgbm(file: Path) -> ModelFile:
    return _describe_estimator(_import_needed("lightgbm", "lightgbm", file).Booster(model_file=str(file)), file)


def _read_onnx(file: Path) -> ModelFile:
    runtime = _import_needed("onnxruntime", "onnxruntime", file)
    session = runtime.InferenceSession(str(file), providers=runtime.get_available_providers())
    try:
        inputs, outputs = specs_of(session)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None
    names = [output.name for output in outputs]

    def predict(**inputs: Any) -> dict[str, Any]:
        feed = {name: _decode_texts(array) for name, array in inputs.items()}
        return dict(zip(names, session.run(names, feed), strict=True))

    return ModelFile(predict, {"platform": "onnxruntime_onnx", "inputs": inputs, "outputs": outputs})


def _decode_texts(array: Any) -> Any:
    """Elements of BYTES are `bytes`, of which ONNX Runtime would silently take the text b'...'."""
    if not array.dtype.hasobject:
        return array
    try:
        return np.vectorize(bytes.decode, otypes=[object])(array)
    except UnicodeDecodeError as error:
        raise InferenceError(f"send strings as UTF-8: {error}", status=400) from error


Reader = Callable[[Path], ModelFile]

_BY_SUFFIX: Final[Mapping[str, Reader]] = {
    ".joblib": _read_estimator,
    ".pkl": _read_estimator,
    ".pickle": _read_estimator,
    ".onnx": _read_onnx,
}
"""A pickle runs what it says, so it is read only if the file is called one."""

_BY_BEGINNING: Final[Mapping[bytes, Reader]] = {b"tree\nversion=": _read_lightgbm, b"learner": _read_xgboost}
"""LightGBM's text, and XGBoost's JSON and UBJSON, which may have any suffix."""
