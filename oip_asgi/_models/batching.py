"""Whether a function may answer several requests with one call. Looked at once, when the function is known. Knows no requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from .._codecs.pandas import PandasCodec
from .binding import Binding, Taker, context_of, request_of
from .callables import STREAMS, Kind
from .specs import TensorSpec

_OF_ONE_REQUEST: Final[Mapping[Taker, str]] = {context_of: "InferenceContext", request_of: "InferenceRequest"}


def check_batching(model: object, kind: Kind, binding: Binding, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> None:
    """Check that a model can be called with the rows of several requests."""
    here = f"{model}: max_batch_size= calls the function with the rows of several requests"
    if kind in STREAMS:
        raise TypeError(f"{here}, but a generator answers one request: leave max_batch_size= out, or return arrays")
    for taker in (*binding.positional, *binding.keywords.values()):
        wanted = _OF_ONE_REQUEST.get(taker)
        if wanted is not None:
            raise TypeError(f"{here}, but it takes an {wanted}, which is of one: leave that parameter out, or max_batch_size=")
    for what, codec in (("takes", _codec_of(binding)), ("returns", binding.returned.request_codec)):
        if codec is not None and codec is not PandasCodec:
            raise TypeError(
                f"{here}, but it {what} what the codec of whole requests {codec.content_type!r} makes: use arrays, a codec of tensors or a "
                "pandas.DataFrame, or leave max_batch_size= out"
            )
    for name, specs in (("input", inputs), ("output", outputs)):
        for spec in specs:
            if not spec.shape or spec.shape[0] != -1:
                shape = [-1, *spec.shape[1:]]
                raise ValueError(f"{here}, but {name} {spec.name!r} is declared with the shape {list(spec.shape)}: declare {shape}")


def _codec_of(binding: Binding) -> Any:
    return None if binding.request_reader is None else binding.request_reader.codec
