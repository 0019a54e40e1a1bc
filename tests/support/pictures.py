"""A class that a codec of the user's own knows."""

from __future__ import annotations

import numpy as np

from oip_asgi import Tensor
from oip_asgi.codecs import InputCodec


class Picture:
    """Bytes that are no text."""

    def __init__(self, data: bytes) -> None:
        self.data = data


class PictureCodec(InputCodec[Picture]):
    content_type = "picture"
    type_hint = Picture
    datatype = "BYTES"

    @classmethod
    def decode_input(cls, request_input: Tensor) -> Picture:
        return Picture(request_input.array.item())

    @classmethod
    def encode_input(cls, name: str, payload: Picture, use_bytes: bool = True) -> Tensor:
        return Tensor(name, np.array([payload.data], object))
