"""The protocol's values: datatypes, tensors' bytes, bodies, errors, limits."""

from oip_asgi._protocol import tensor_bytes
from oip_asgi._protocol.datatypes import DTYPES, Array, Buffer, dtype_of, object_array
from oip_asgi._protocol.errors import InvalidRequest, InvalidResponse, ModelFault, TooLarge
from oip_asgi._protocol.limits import MAX_QUESTION
from oip_asgi._protocol.options import list_fields
from oip_asgi._protocol.request_body import Body, Coding, Decoder, read_coding
from oip_asgi._protocol.tensor_bytes import from_bytes, view_bytes


def to_bytes(array: Array) -> bytes:
    """The raw bytes of an array."""
    return bytes(view_bytes(array))
