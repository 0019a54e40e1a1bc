"""A file with a model -> what `InferenceServer.register` takes. Imports the library of a file only for a file of that library."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from .._hosts.given import describe
from .._models.fitted import declare, list_columns
from .._protocol.datatypes import datatype_of
from .._protocol.errors import InferenceError
from .._protocol.specs import TensorSpec
from ..mlserver.runtimes import open_xgboost
from ..specs import specs_of

EXPECTED: Final = "an estimator's .joblib or .pkl, an .onnx, or what save_model of LightGBM or XGBoost has written"


class ModelFile(NamedTuple):
    """What a file holds."""

    function: Callable[..., Any]
    options: dict[str, Any]  # for `register`
    columns: list[str] = []  # noqa: RUF012  (of a data frame, if their types are not known)


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
        raise ValueError(f"{file}: this is no file of a model: expected {EXPECTED}")
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


class _Estimator:
    """An estimator and all that it says of rows, as outputs with the names that they have at MLServer."""

    def __init__(self, estimator: Any) -> None:
        self._estimator = estimator
        names = list_columns(estimator)
        if names:
            self.feature_names_in_ = names  # the server reads it: it puts columns in this order, and refuses others
        if hasattr(estimator, "n_features_in_"):
            self.n_features_in_ = int(estimator.n_features_in_)
        classes = getattr(estimator, "classes_", None)
        self._classes = classes if isinstance(classes, np.ndarray) and hasattr(estimator, "predict_proba") else None

    def predict(self, X: Any) -> dict[str, Any]:  # noqa: N803  (as the estimator calls it)
        predicted = {"predict": self._estimator.predict(X)}
        return predicted if self._classes is None else {**predicted, "predict_proba": self._estimator.predict_proba(X)}

    def list_outputs(self, example: Any) -> list[TensorSpec]:
        """The outputs: of a classifier from its classes, of others from what they say to an example, if there is one."""
        if self._classes is not None:
            labels = list(map(str, self._classes))
            kind = "BYTES" if self._classes.dtype.kind in "OUS" else datatype_of(self._classes.dtype)
            probabilities = TensorSpec("predict_proba", "FP64", [-1, len(labels)], labels=labels)
            return [] if kind is None else [TensorSpec("predict", kind, [-1]), probabilities]
        if example is None:
            return []
        predicted = np.asarray(self.predict(example)["predict"])
        datatype = datatype_of(predicted.dtype)
        return [] if datatype is None else [TensorSpec("predict", datatype, [-1, *predicted.shape[1:]])]


_TAKE_ANY_TYPE: Final = frozenset({"transformers", "categories", "categorical_features", "analyzer", "func"})
"""Parameters of the transformers and estimators of scikit-learn that take columns of other types than numbers."""


def _takes_numbers(estimator: Any) -> bool:
    """True if all columns of an estimator are numbers, as far as it says."""
    names = {name.rpartition("__")[2] for name in estimator.get_params()} if hasattr(estimator, "get_params") else set()
    booster: Any = estimator.get_booster() if hasattr(estimator, "get_booster") else getattr(estimator, "booster_", None)
    categories = "c" in (getattr(booster, "feature_types", None) or ()) or getattr(booster, "pandas_categorical", None)
    return names.isdisjoint(_TAKE_ANY_TYPE) and not categories


def _describe_estimator(estimator: Any, file: Path) -> ModelFile:
    if not hasattr(estimator, "predict"):
        raise ValueError(f"{file}: holds {describe(estimator)}: expected an estimator with predict, such as scikit-learn has them")
    wrapped = _Estimator(estimator)
    columns: list[str] = getattr(wrapped, "feature_names_in_", [])
    count = getattr(wrapped, "n_features_in_", 0)
    knows, declaration = _takes_numbers(estimator), declare(estimator.predict, has_frames=True)
    own = (
        {} if declaration is None else {spec.name if columns else "X": spec for spec in declaration.inputs}
    )  # may say more than is known here
    inputs: list[TensorSpec] = []
    example, options = None, {"platform": type(estimator).__module__.partition(".")[0]}
    if columns:
        options["content_type"] = "pd"
        inputs = [_find_numbers(own, TensorSpec(name, "FP64", [-1])) for name in columns] if knows else []
        example = _import_needed("pandas", "pandas", file).DataFrame({name: [0.0] for name in columns})
    elif count:
        inputs = [_find_numbers(own, TensorSpec("X", "FP64", [-1, count]))] if knows else []
        example = np.zeros((1, count))
    outputs = wrapped.list_outputs(example if knows else None)
    return ModelFile(wrapped.predict, {**options, "inputs": inputs, "outputs": outputs}, [] if inputs else columns)


def _find_numbers(own: Mapping[str, TensorSpec], spec: TensorSpec) -> TensorSpec:
    """What the estimator says of an input of numbers, such as whether a value may be missing; else the given spec."""
    found = own.get(spec.name)
    return spec if found is None or found.other_datatypes != "numbers" else replace(found, name=spec.name)


def _read_estimator(file: Path) -> ModelFile:
    joblib = _import_needed("joblib", "joblib", file)
    try:
        estimator = joblib.load(file)
    except ModuleNotFoundError as error:
        raise ImportError(f"{file}: {error}: its classes are there: install it, or start this where it can be imported") from error
    except AttributeError as error:  # such as a function of the notebook in which it was made
        raise ValueError(f"{file}: {error}: a class or function of it is not where it was when the file was written") from error
    return _describe_estimator(estimator, file)


def _read_xgboost(file: Path) -> ModelFile:
    return _describe_estimator(open_xgboost(str(file)), file)


# LightGBM and ONNX


def _read_lightgbm(file: Path) -> ModelFile:
    booster = _import_needed("lightgbm", "lightgbm", file).Booster(model_file=str(file))
    estimator = _Booster(booster)
    described = _describe_estimator(estimator, file)
    return described._replace(options={**described.options, "platform": "lightgbm"})


class _Booster:
    """A booster of LightGBM as an estimator."""

    def __init__(self, booster: Any) -> None:
        self.booster_ = booster
        self.feature_names_in_ = list_columns(booster) or []
        self.n_features_in_ = booster.num_feature()

    def predict(self, rows: Any) -> Any:
        if self.booster_.pandas_categorical:
            rows = rows.astype({name: "category" for name, dtype in rows.dtypes.items() if str(dtype) in ("object", "str")})
        return self.booster_.predict(rows)


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
