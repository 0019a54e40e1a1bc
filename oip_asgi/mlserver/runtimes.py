"""MLServer's runtimes under their names, over the library that each needs. They run in worker threads."""

from __future__ import annotations

import asyncio
import importlib
import threading
from collections.abc import Sequence
from contextlib import suppress
from logging import getLogger
from typing import Any, ClassVar, Final

import msgspec
import numpy as np

from .. import TensorSpec
from ..specs import specs_of
from .codecs import NumpyCodec, NumpyRequestCodec, StringCodec
from .errors import InferenceError
from .model import MLModel
from .types import InferenceRequest, InferenceResponse, MetadataTensor, Parameters, RequestOutput
from .utils import get_model_uri


def _import_needed(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"{error}: this model needs {package}: pip install {package}") from error


class Runtime(MLModel):
    """A runtime whose calls block: `open` and `run` are called in worker threads."""

    files: ClassVar[Sequence[str]] = ()
    """The names of the model's file, if `parameters.uri` is a folder."""
    _opens: ClassVar = threading.Lock()
    """Held while a model is opened: libraries look into each other, as scipy into torch, and fail if another
    thread imports that one."""

    async def load(self) -> bool:
        self._model: Any = await asyncio.to_thread(
            self._open_alone, await get_model_uri(self.settings, self.files)
        )
        return True

    def _open_alone(self, uri: str) -> Any:
        with self._opens:
            return self.open(uri)

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        return await asyncio.to_thread(self.run, payload)

    def open(self, uri: str) -> Any:
        """Load the model."""
        raise NotImplementedError

    def run(self, payload: InferenceRequest) -> InferenceResponse:
        """Answer a request."""
        raise NotImplementedError


class TableRuntime(Runtime):
    """A runtime of models that take a table, as an array or a data frame."""

    compares: ClassVar[bool] = True
    """Whether a model that knows its columns itself refuses others."""
    blank: ClassVar[str] = " "
    """What a blank in the name of a column is in the names that the model has."""

    _columns: Sequence[TensorSpec] = ()
    """Those of the training, if the model knows them."""
    _width: int | None = None
    """How many columns an array has, if the model knows it."""
    _is_warned: bool = False
    """Whether the log has a warning that nobody knows the columns."""

    async def load(self) -> bool:
        await super().load()
        # a model of another kind says nothing; for one that says too little, the settings may say more
        with suppress(TypeError, *([ValueError] if self.inputs else ())):
            known = specs_of(self._model).inputs
            self._columns = known if all(len(spec.shape) == 1 for spec in known) else ()
            self._width = len(self._columns) or (known[0].shape[-1] if known else None)
        return True

    def read_rows(self, payload: InferenceRequest) -> Any:
        """The rows of a request. Columns of a data frame are in the order of the training, if the model or
        the settings know it."""
        rows = self.decode_request(payload, NumpyRequestCodec)
        if not hasattr(rows, "columns"):
            if isinstance(rows, np.ndarray) and self._width and rows.shape[1:] != (self._width,):
                raise InferenceError(
                    f"the rows have the shape {list(rows.shape)}: expected [-1, {self._width}], as in the "
                    "training"
                )
            return rows
        own, positions = (
            [spec.name.replace(" ", self.blank) for spec in self._columns],
            {str(each).replace(" ", self.blank): position for position, each in enumerate(rows.columns)},
        )
        names = own or [
            each.name for each in self.inputs if len(each.shape) == 1 or list(each.shape[1:]) == [1]
        ]
        if sorted(names) == sorted(positions):
            return rows.iloc[:, [positions[name] for name in names]]
        if names and not (own and self.compares):
            raise InferenceError(f"the columns are {list(positions)!r:.100}: expected {names!r:.100}")
        if not names and not self._is_warned:
            self._is_warned = True
            inputs = [
                {"name": each.name, "datatype": each.datatype, "shape": [-1]} for each in payload.inputs
            ]
            getLogger("oip_asgi").warning(
                "%s: the %s does not know the names of its columns, so it takes any, in any order: add "
                "them, in the order of the training, "
                'as in "inputs": %.1000s',  # names that a client has sent may be long
                self.settings._source,
                type(self._model).__name__,
                msgspec.json.encode(inputs).decode(),
            )
        return rows

    def find_inputs(self) -> Sequence[TensorSpec]:
        """What is shown where the settings declare no inputs."""
        if self.settings.parameters.content_type == "pd":
            return self._columns
        has_texts = any(spec.datatype == "BYTES" for spec in self._columns)  # which no array has
        return () if not self._width or has_texts else [TensorSpec("x", "FP64", [-1, self._width])]


class SKLearnModel(TableRuntime):
    """scikit-learn, as joblib wrote it. A request asks for `predict`, `predict_proba` or `transform` as
    outputs."""

    files = ("model.joblib", "model.pickle", "model.pkl")

    def open(self, uri: str) -> Any:
        _import_needed("sklearn", "scikit-learn")
        return _import_needed("joblib", "joblib").load(uri)

    def run(self, payload: InferenceRequest) -> InferenceResponse:
        rows, outputs = self.read_rows(payload), payload.outputs or [RequestOutput(name="predict")]
        # the server refuses one that is asked for twice
        requested = {each.name: each for each in outputs}.values()
        return InferenceResponse(
            outputs=[self.encode(self._call(each.name, rows), each, NumpyCodec) for each in requested]
        )

    def _call(self, name: str, rows: Any) -> Any:
        if name not in ("predict", "predict_proba", "transform") or not hasattr(self._model, name):
            raise InferenceError(
                f"{type(self._model).__name__} has no output {name!r}: ask for predict, predict_proba or "
                "transform"
            )
        result = getattr(self._model, name)(rows)
        return result.toarray() if hasattr(result, "toarray") else result  # of a sparse matrix


class XGBoostModel(SKLearnModel):
    """XGBoost, as `save_model` wrote it: a classifier of its scikit-learn interface, or the objective's
    numbers."""

    files = ("model.bst", "model.json", "model.ubj")

    def open(self, uri: str) -> Any:
        return open_xgboost(uri)


def open_xgboost(uri: str) -> Any:
    """A file of XGBoost as an estimator of its scikit-learn interface."""
    xgboost = _import_needed("xgboost", "xgboost")
    is_classifier = '"classifier"' in (xgboost.Booster(model_file=uri).attr("scikit_learn") or "")
    model = xgboost.XGBClassifier() if is_classifier else xgboost.XGBRegressor()
    model.load_model(uri)
    return model


class LightGBMModel(TableRuntime):
    """LightGBM, as `save_model` wrote it."""

    files = ("model.bst",)
    compares = False
    blank = "_"

    def open(self, uri: str) -> Any:
        return _import_needed("lightgbm", "lightgbm").Booster(model_file=uri)

    def run(self, payload: InferenceRequest) -> InferenceResponse:
        predicted = self._model.predict(self.read_rows(payload))
        return InferenceResponse(outputs=[NumpyCodec.encode_output("predict", predicted)])


class MLflowRuntime(Runtime):
    """MLflow's pyfunc. The signature is the metadata, and decides how requests are read that name no content
    type."""

    def open(self, uri: str) -> Any:
        model = _import_needed("mlflow.pyfunc", "mlflow").load_model(uri)
        signature = model.metadata.signature
        if signature is not None and signature.inputs is not None:
            self.inputs, self.outputs = (
                [
                    MetadataTensor(
                        name=x.name, datatype=x.datatype, shape=x.shape, parameters=Parameters(x.content_type)
                    )
                    for x in specs
                ]
                for specs in specs_of(signature)
            )
            of_tensors = None if signature.inputs.has_input_names() else "np"
            self.settings.parameters.content_type = of_tensors if signature.inputs.is_tensor_spec() else "pd"
        return model

    def run(self, payload: InferenceRequest) -> InferenceResponse:
        rows = self.decode_request(payload)
        if isinstance(rows, InferenceRequest):  # tensors by name
            rows = {each.name: self.decode(each, NumpyCodec) for each in rows.inputs}
        predicted = self._model.predict(rows)
        if isinstance(predicted, dict):
            return InferenceResponse(
                outputs=[
                    NumpyCodec.encode_output(name, np.asarray(value)) for name, value in predicted.items()
                ]
            )
        return self.encode_response(
            predicted if hasattr(predicted, "columns") else np.asarray(predicted), NumpyRequestCodec
        )


class HuggingFaceRuntime(Runtime):
    """A pipeline of transformers for text: `parameters.extra` has `task` and `pretrained_model`; else
    `parameters.uri` is its folder.

    Inputs are the pipeline's arguments by name, and `args` the first one. The output is JSON, one text for
    each result.
    """

    def open(self, uri: str) -> Any:
        extra = self.settings.parameters.extra
        self._lock = threading.Lock()  # a fast tokenizer is for one thread at a time
        options = {"tokenizer": extra.get("pretrained_tokenizer"), "device": extra.get("device")}
        named = {name: value for name, value in options.items() if value is not None}
        return _import_needed("transformers", "transformers").pipeline(
            extra.get("task"), model=extra.get("pretrained_model", uri), **named
        )

    def run(self, payload: InferenceRequest) -> InferenceResponse:
        values = {
            each.name: self.decode(each, StringCodec if each.datatype == "BYTES" else NumpyCodec)
            for each in payload.inputs
        }
        options = {
            name: value.item() if isinstance(value, np.ndarray) and value.size == 1 else value
            for name, value in values.items()
        }
        args = [options.pop(name) for name in ("args", "array_inputs") if name in options]
        with self._lock:
            result = self._model(*args, **options)
        is_list = isinstance(result, list)
        texts = [
            msgspec.json.encode(row, enc_hook=lambda value: value.tolist()).decode()
            for row in (result if is_list else [result])
        ]
        output = StringCodec.encode_output("output", texts)
        output.parameters = Parameters("hg_jsonlist" if is_list else "hg_json")
        return InferenceResponse(outputs=[output])


CLASSES: Final = {
    "mlserver_sklearn.SKLearnModel": SKLearnModel,
    "mlserver_xgboost.XGBoostModel": XGBoostModel,
    "mlserver_lightgbm.LightGBMModel": LightGBMModel,
    "mlserver_mlflow.MLflowRuntime": MLflowRuntime,
    "mlserver_huggingface.HuggingFaceRuntime": HuggingFaceRuntime,
}
"""The runtimes by what `implementation` calls them."""
