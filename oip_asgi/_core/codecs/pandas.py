"""The content type `pd`: requests and responses as data frames, one tensor for each column. The module `frames` does the work.

pandas is imported in the functions that make a frame, and never to see whether something is one.

Specification: Content Types, Pandas DataFrame.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from ..errors import shown
from ..tensors import InferenceRequest, InferenceResponse, Tensor
from .base import RequestCodec, of_response
from .frames import frame_of, tensors_of

if TYPE_CHECKING:
    import pandas as pd


class PandasCodec(RequestCodec["pd.DataFrame"]):
    """Data frames: one tensor of shape `[N]` for each column. The index is not sent, as with MLServer.

    Columns of numbers are tensors of their datatype, also with NaN. Strings have the content type `str`, bytes `base64`, dates
    `datetime`, and all other objects, or columns with missing ones, `pd_json`. Column names that are integers become strings.
    """

    content_type = "pd"
    needs_pandas = True

    @classmethod
    def yields(cls, annotation: Any) -> bool:
        return is_frame_class(annotation)

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        return is_frame(payload)

    @classmethod
    def encode_request(cls, payload: pd.DataFrame, use_bytes: bool = True) -> InferenceRequest:
        return InferenceRequest(cls.encode_outputs(payload, use_bytes), parameters={"content_type": cls.content_type})

    @classmethod
    def decode_request(cls, request: InferenceRequest) -> pd.DataFrame:
        return frame_of(request.inputs, request.decoders)

    @classmethod
    def decoder_of(cls, names: Sequence[str]) -> Callable[[InferenceRequest], pd.DataFrame]:
        """A `decode_request` that makes the index of the columns once.

        Args:
            names: The names of the declared inputs, in order. Requests with other inputs are decoded too, only slower.
        """
        columns = tuple(names)

        @cache  # at the first frame, since most models that could take one never do, and need no pandas
        def index() -> dict[tuple[str, ...], pd.Index[Any]]:
            import pandas as pd

            return {columns: pd.Index(columns)}

        return lambda request: frame_of(request.inputs, request.decoders, index())

    @classmethod
    def encode_response(
        cls, model_name: str, payload: pd.DataFrame, model_version: str | None = None, use_bytes: bool = True
    ) -> InferenceResponse:
        outputs = cls.encode_outputs(payload, use_bytes)
        return InferenceResponse(outputs, {"content_type": cls.content_type}, model_name=model_name, model_version=model_version)

    @classmethod
    def decode_response(cls, response: InferenceResponse) -> pd.DataFrame:
        with of_response():
            return frame_of(response.outputs, {})

    @classmethod
    def encode_outputs(cls, payload: pd.DataFrame, use_bytes: bool = True) -> list[Tensor]:
        """The columns of a frame as tensors; the arguments are those of `encode_request`."""
        return tensors_of(payload, names_of(payload))

    @classmethod
    def take_out(cls, payload: pd.DataFrame, names: Collection[str]) -> tuple[pd.DataFrame, dict[str, Any]]:
        if not names:
            return payload, {}
        places = {name: place for place, name in enumerate(names_of(payload)) if name in names}
        left = [place for place in range(payload.shape[1]) if place not in places.values()]
        return payload.iloc[:, left], {name: payload.iloc[:, place] for name, place in places.items()}


def is_frame_class(annotation: object) -> bool:
    """Whether something is the class `pandas.DataFrame`. Does not import pandas."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and annotation is pandas.DataFrame


def is_series_class(annotation: object) -> bool:
    """Whether something is the class `pandas.Series`. Does not import pandas."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and annotation is pandas.Series


def is_frame(value: object) -> bool:
    """Whether a value is a `pandas.DataFrame` or an instance of a subclass. Does not import pandas."""
    return any(map(is_frame_class, type(value).__mro__))


def is_series(value: object) -> bool:
    """Whether a value is a `pandas.Series` or an instance of a subclass. Does not import pandas."""
    return any(map(is_series_class, type(value).__mro__))


def names_of(frame: pd.DataFrame) -> list[str]:
    """The names of a frame's columns as the names of tensors.

    Raises:
        TypeError: The value is no frame, or a column's name is neither a string nor an integer.
        ValueError: Two columns have the same name, or a name has lone surrogates.
    """
    if not is_frame(frame):
        raise TypeError(f"the content_type 'pd' is for a pandas.DataFrame, and this is {shown(frame)}")
    labels = frame.columns.tolist()
    for label in labels:
        if not isinstance(label, (str, int)):
            raise TypeError(f"the name of column {label!r} is neither a string nor an integer, so no tensor can have it: rename the column")
    names = list(map(str, labels))
    try:
        "".join(names).encode()
    except UnicodeEncodeError:
        raise ValueError(f"the names of the columns {shown(names)} have lone surrogates, which no text can have: rename them") from None
    if len(set(names)) != len(names):
        twice = next(name for place, name in enumerate(names) if name in names[:place])
        raise ValueError(f"column {twice!r} is there twice, but each tensor needs its own name: rename one")
    return names
