"""`specs_of`, which reads the declaration of a model from what is known of it: a session of ONNX Runtime, a
signature of MLflow, a frame.

Knows these objects by their attributes. It needs no extra, but pandas for a frame.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, overload

import numpy as np

from ._codecs.column_dtypes import CATEGORIES, DTYPE, OBJECTS_WITH_NAN, READ_AS, is_nullable
from ._codecs.columns import column_to_tensor, misses_nan, to_own_dtype
from ._codecs.dataframes import from_polars, is_frame, name_tensors
from ._models.estimators import declare
from ._protocol.datatypes import DTYPES, Datatype, datatype_of
from ._protocol.errors import show
from ._protocol.specs import TensorSpec

if TYPE_CHECKING:
    import pandas as pd


class Frame(Protocol):
    """A data frame of pandas or polars: the names of its columns, and their types."""

    @property
    def columns(self) -> Any: ...
    @property
    def dtypes(self) -> Any: ...


class Specs(NamedTuple):
    """What a model takes and returns.

    Args:
        inputs: For `inputs=` of `InferenceServer.register`.
        outputs: For `outputs=` of it.
    """

    inputs: list[TensorSpec]
    outputs: list[TensorSpec]


_ONNX: Final[Mapping[str, Datatype]] = {
    "bool": "BOOL",
    **{name.lower(): name for name in DTYPES if "INT" in name},
    "float16": "FP16",
    "bfloat16": "BF16",
    "float": "FP32",
    "double": "FP64",
    "string": "BYTES",
}
"""The types of elements of ONNX's tensors."""

_MLFLOW: Final[Mapping[str, tuple[Datatype, str | None]]] = {
    "boolean": ("BOOL", None),
    "integer": ("INT32", None),
    "long": ("INT64", None),
    "float": ("FP32", None),
    "double": ("FP64", None),
    "string": ("BYTES", "str"),
    "binary": ("BYTES", "base64"),
    "datetime": ("BYTES", "datetime"),
}
"""The types of MLflow's columns: the datatype and the content type of each."""


@overload
def specs_of(model: Frame, *, example: bool = False, ranges: bool = False) -> list[TensorSpec]: ...
@overload
def specs_of(model: Any) -> Specs: ...
def specs_of(model: Any, *, example: bool = False, ranges: bool = False) -> Specs | list[TensorSpec]:
    """Read what a model takes and returns, to declare it: `inputs, outputs = specs_of(session)`, or
    `inputs=specs_of(frame)`.

    Args:
        model: An `onnxruntime.InferenceSession`, the signature of an MLflow model,
            `mlflow.models.get_model_info(uri).signature`, a fitted model of scikit-learn, XGBoost, LightGBM
            or CatBoost, or a data frame of pandas or polars, such as the one with which the model was fitted.

            - ONNX: a dimension without a number, such as "batch", is -1. A tensor whose rank the file does
              not say has the shape `[]`, as ONNX Runtime reports it: declare it yourself.
            - MLflow: a column is a tensor of shape `[-1]` with the content type of its type; a column of
              arrays, objects, maps or any type has the content type `pd_json`. What has no name is called
              `input_0` or `output_0`, and so on. Optional columns become inputs that must be sent, as all
              declared inputs are. The signature's `params` are left out.
            - A fitted model: what it says of itself, as when its `predict` or `transform` is registered: the
              columns of the frame of its training, each of any datatype, or one array with their number.
            - A frame: a column is a tensor of shape `[-1]`, with the datatype and the content type that the
              content type `pd` gives it. Strings, dates, `Int64` and `boolean` may miss values in requests
              too. If the gaps of a column of objects are NaN, as after `read_csv`, those of requests are too.
        example: Whether the first row of a frame, without missing values, is the example of the page and of
            the OpenAPI documents. All who may open these see it, so give a frame whose first row is nobody's,
            and not the one of the training.
        ranges: Whether the least and the largest number of each column of a frame are the range of its
            requests: other values are refused, or flagged by a model with `out_of_range="flag"`. Give the
            frame of the training.

    Returns:
        The inputs and the outputs, in the model's own order; of a frame, one spec for each column.

    Raises:
        TypeError: The argument is something else, such as the None of an MLflow model without a signature; or
            a column cannot become a tensor. The text says what to write.
        ValueError: A type has no datatype of the protocol, such as ONNX's sequences of maps, where the text
            names the tensor; or a fitted model does not say enough of its columns.

    Example:
        >>> import pandas as pd
        >>> specs_of(pd.DataFrame({"age": [34, 51], "city": ["Bonn", None]}))[1].content_type
        'str'

    Specification: Model Metadata.
    """
    if hasattr(model, "get_inputs") and hasattr(model, "get_outputs"):
        return Specs(
            [_describe_node("input", node) for node in model.get_inputs()],
            [_describe_node("output", node) for node in model.get_outputs()],
        )
    known = next(
        (
            declare(getattr(model, each), has_frames=True)
            for each in ("predict", "transform")
            if hasattr(model, each)
        ),
        None,
    )
    if known is not None:
        return Specs(list(known.inputs), list(known.outputs))
    if is_frame(model):
        columns = zip(name_tensors(model), (column for _, column in model.items()), strict=True)
        return [
            _describe_column(name, column, has_example=example, has_range=ranges) for name, column in columns
        ]
    if hasattr(model, "get_columns"):
        return [
            _describe_column(column.name, from_polars(column), has_example=example, has_range=ranges)
            for column in model.get_columns()
        ]
    if hasattr(model, "inputs") and hasattr(model, "outputs"):
        return Specs(_describe_schema("input", model.inputs), _describe_schema("output", model.outputs))
    raise TypeError(
        f"specs_of({show(model)}): expected an onnxruntime.InferenceSession, a fitted model, a data frame, "
        "or the signature of an MLflow model, which is "
        "None if the model was logged without one: log it with signature=mlflow.models.infer_signature(X, "
        "y). For an array, write a "
        'TensorSpec, such as TensorSpec("x", "FP64", [-1, 4])'
    )


def _describe_column(name: str, column: pd.Series[Any], *, has_example: bool, has_range: bool) -> TensorSpec:
    column = to_own_dtype(column)
    column = column.iloc[np.argsort(column.isna(), kind="stable")]  # the missing ones last
    present = column.dropna()
    tensor = column_to_tensor(
        name,
        present
        if len(present) or is_nullable(column.dtype) or str(column.dtype) in ("str", "string")
        else column,
    )
    if tensor.datatype != "BYTES" and not is_nullable(column.dtype) and column.dtype != "category":
        tensor = column_to_tensor(name, column)  # where values are missing, it may be JSON texts
    example = [
        value.decode() if isinstance(value, bytes) else value
        for value in tensor.array[: int(has_example)].tolist()
    ] or None
    declared: dict[str, Any] = {
        key: value for key, value in tensor.parameters.items() if key in ("content_type", DTYPE, CATEGORIES)
    }
    if misses_nan(column):
        declared[DTYPE] = OBJECTS_WITH_NAN
    elif (
        tensor.parameters.get("content_type") in READ_AS
    ):  # so that clients see that texts may be missing, also of the default dtype
        declared.setdefault(DTYPE, str(column.dtype))
    if declared.get(DTYPE) == "category" and CATEGORIES not in declared:  # they are too many
        del declared[DTYPE]
    if has_range and len(present) and tensor.datatype not in ("BYTES", "BOOL") and column.dtype != "category":
        finite = [value for value in (present.min().item(), present.max().item()) if math.isfinite(value)]
        declared.update(zip(("minimum", "maximum"), finite, strict=True) if len(finite) == 2 else ())
    return TensorSpec(name, tensor.datatype, [-1], example=example, **declared)


def _describe_node(what: str, node: Any) -> TensorSpec:
    datatype = _ONNX.get(node.type.removeprefix("tensor(").removesuffix(")"))
    if datatype is None:
        raise ValueError(
            f"{what} {node.name!r} is a {node.type}, and only tensors of numbers, booleans and strings can "
            "be sent: export the model with "
            'these only, which for a classifier of scikit-learn is to_onnx(..., options={"zipmap": False})'
        )
    return TensorSpec(
        node.name, datatype, [size if isinstance(size, int) and size >= 0 else -1 for size in node.shape]
    )


def _describe_schema(what: str, schema: Iterable[Any] | None) -> list[TensorSpec]:
    specs = []
    for index, column in enumerate(schema or ()):
        name = f"{what}_{index}" if column.name is None else str(column.name)
        if hasattr(column, "shape"):
            specs.append(_make_spec(what, name, np.dtype(column.type), column.shape))
        else:
            # arrays, objects, maps and any type are objects without a name of their own
            datatype, content_type = _MLFLOW.get(getattr(column.type, "name", ""), ("BYTES", "pd_json"))
            specs.append(TensorSpec(name, datatype, [-1], content_type))
    return specs


def _make_spec(what: str, name: str, dtype: np.dtype[Any], shape: Iterable[int]) -> TensorSpec:
    datatype = "BYTES" if dtype.kind in "OSU" else datatype_of(dtype.newbyteorder("<"))
    if datatype is None:
        raise ValueError(
            f"{what} {name!r} has the dtype {dtype}, for which there is no datatype: declare it yourself, "
            "as what you send instead"
        )
    return TensorSpec(name, datatype, [int(size) for size in shape])
