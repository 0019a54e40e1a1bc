"""What the command line names -> the server with its models. Opens no sockets, and imports the library of a file only for such a file."""

from __future__ import annotations

import importlib
import re
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
from ..mlserver.folder import SED, register_models
from ..mlserver.runtimes import open_xgboost
from ..mlserver.settings import read_settings
from ..server import InferenceServer
from ..specs import specs_of


class Mistake(Exception):
    """A mistake that the user of the command can mend; the text says how."""


_FILES: Final = "an estimator's .joblib or .pkl, an .onnx, or what save_model of LightGBM or XGBoost has written"

_TARGETS: Final = f"module:server, a folder of MLServer, or a file: {_FILES}"


def find_defaults(path: Path) -> dict[str, Any]:
    """What `settings.json` of a folder says of options."""
    if not path.is_dir():
        return {}
    try:
        settings = read_settings(path)
    except ValueError as error:
        raise Mistake(str(error)) from error
    return {"host": settings.host, "port": settings.http_port, "grpc": settings.grpc_port, "metrics": settings.metrics_port}


def find_target(named: str, name: str | None, *, model_control: bool) -> InferenceServer:
    """Find or make the server of a target.

    Args:
        named: As the command line names it.
        name: What a model that is read from a file is called; None for the name of the file.
        model_control: Whether clients may load and unload models of a server that is made here.

    Raises:
        Mistake: Nothing can be served.
    """
    path = Path(named)
    try:
        if path.is_dir():
            return _serve_folder(path, model_control=model_control)
        if path.suffix == ".py":
            raise Mistake(f"{named}: for a server, write module:name, such as {path.stem}:server")
        if path.is_file():
            return _serve_file(path, name or path.stem, model_control=model_control)
    except (ImportError, TypeError, ValueError, OSError) as error:
        raise Mistake(str(error)) from error
    if ":" not in named:
        raise Mistake(f"{named}: there is no such file or folder: expected {_TARGETS}")
    return _import_server(named)


def _serve_folder(folder: Path, *, model_control: bool) -> InferenceServer:
    settings = read_settings(folder)
    server = InferenceServer(settings.server_name, settings.server_version, model_control=model_control)
    register_models(server, folder, settings, opens=("grpc_port", "metrics_port"))
    files = [file for file in sorted(folder.rglob("*.py")) if file.is_file()]
    old = [str(file) for file in files if re.search(rb"^\s*(from|import) mlserver", file.read_bytes(), re.M)]
    if old:
        print(f"These files import mlserver. Change their import lines:\n{SED} {' '.join(old)}", flush=True)  # noqa: T201
    return server


def _serve_file(file: Path, name: str, *, model_control: bool) -> InferenceServer:
    model = read_model_file(file)
    server = InferenceServer(model_control=model_control)
    server.register(name, model.function, **model.options)
    return server


def _import_server(named: str) -> InferenceServer:
    from uvicorn.importer import ImportFromStringError, import_from_string

    try:
        server = import_from_string(named)
    except ImportFromStringError as error:
        raise Mistake(f"{named}: {error} Start the command in the folder where the module is") from None
    if not isinstance(server, InferenceServer):
        raise Mistake(f"{named} is {describe(server)}: expected an InferenceServer; for an application of ASGI, run uvicorn {named}")
    return server


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
        raise ValueError(f"{file}: {_OF_CODE.get(file.suffix.lower(), 'this is no file of a model')}: expected {_FILES}")
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
