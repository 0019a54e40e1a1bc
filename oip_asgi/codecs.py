"""Codecs for models and clients: Python values to tensors, requests and responses, and back. The names and
methods are MLServer's.

`PandasCodec.encode_request(frame).to_http()` gives headers and body for any HTTP client.

A codec of your own is a subclass of `InputCodec` or `RequestCodec`, given to `InferenceServer(codecs=[...])`.
What it finds wrong with a client's bytes it raises as ValueError, or as `InferenceError` with a status of its
own: the client reads the text. Anything else that it raises counts as a mistake in it: it is logged with its
traceback and answered 500 without its text.

Specification: Content Types (and Codecs).
"""

from ._codecs.base import InputCodec, RequestCodec
from ._codecs.dataframes import PandasCodec
from ._codecs.plain import (
    Base64Codec,
    DatetimeCodec,
    NumpyCodec,
    NumpyRequestCodec,
    StringCodec,
    StringRequestCodec,
)

__all__ = [
    "Base64Codec",
    "DatetimeCodec",
    "InputCodec",
    "NumpyCodec",
    "NumpyRequestCodec",
    "PandasCodec",
    "RequestCodec",
    "StringCodec",
    "StringRequestCodec",
]
