"""The content type `pd`: requests and responses as data frames, one tensor for each column. `dataframes` does the work.

pandas is imported in the functions that make a frame, and never to see whether something is one.

Specification: Content Types, Pandas DataFrame.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from .._protocol.errors import shown
from .._protocol.tensors import InferenceRequest, InferenceResponse, Tensor
from .base import RequestCodec, of_response
from .dataframes import read_dataframe, write_dataframe

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
        return read_dataframe(request.inputs, request.decoders)

    @classmethod
    def decoder_of(cls, names: Sequence[str]) -> Callable[[InferenceRequest], pd.DataFrame]:
        """A `decode_request` for declared inputs of these names, which makes the index of the columns once. It decodes other inputs too."""
        expected = list(names)

        @cache  # at the first frame: a server without pandas may have models that could take one
        def columns() -> pd.Index[str]:
            import pandas as pd

            return pd.Index(expected)

        def decode(request: InferenceRequest) -> pd.DataFrame:
            are_expected = [tensor.name for tensor in request.inputs] == expected
            return read_dataframe(request.inputs, request.decoders, columns() if are_expected else None)

        return decode

    @classmethod
    def encode_response(
        cls, model_name: str, payload: pd.DataFrame, model_version: str | None = None, use_bytes: bool = True
    ) -> InferenceResponse:
        outputs = cls.encode_outputs(payload, use_bytes)
        return InferenceResponse(outputs, {"content_type": cls.content_type}, model_name=model_name, model_version=model_version)

    @classmethod
    def decode_response(cls, response: InferenceResponse) -> pd.DataFrame:
        with of_response():
            return read_dataframe(response.outputs, {})

    @classmethod
    def encode_outputs(cls, payload: pd.DataFrame, use_bytes: bool = True) -> list[Tensor]:
        """The columns of a frame as tensors; the arguments are those of `encode_request`."""
        return write_dataframe(payload, names_of(payload))

    @classmethod
    def take_out(cls, payload: pd.DataFrame, names: Collection[str]) -> tuple[pd.DataFrame, dict[str, Any]]:
        if not names:
            return payload, {}
        places = {name: place for place, name in enumerate(names_of(payload)) if name in names}
        left = [place for place in range(payload.shape[1]) if place not in places.values()]
        return payload.iloc[:, left], {name: payload.iloc[:, place] for name, place in places.items()}


def is_frame_class(annotation: object) -> bool:
    return annotation is _class("DataFrame")


def is_series_class(annotation: object) -> bool:
    return annotation is _class("Series")


def is_frame(value: object) -> bool:
    """Whether a value is a `pandas.DataFrame`, or of a subclass."""
    return isinstance(value, _class("DataFrame"))


def is_series(value: object) -> bool:
    """Whether a value is a `pandas.Series`, or of a subclass."""
    return isinstance(value, _class("Series"))


def _class(name: str) -> type:
    """A class of pandas; where nobody has imported pandas, a class that nothing is."""
    found: type = getattr(sys.modules.get("pandas"), name, _Nothing)
    return found


class _Nothing:
    """Has no instances."""


def names_of(frame: pd.DataFrame) -> list[str]:
    """The names of a frame's columns as the names of tensors."""
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
