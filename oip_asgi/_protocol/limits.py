"""Limits of one request, for what it costs the others: how large it may be on an event loop, and how many tensors it may have.

Limits that users set are options of `InferenceServer` and `register`; limits of one format stand in its module, such as the bound of a
gzip bomb in `request_body`.
"""

from __future__ import annotations

from typing import Final

LOOP_BYTES: Final = 2**14
"""Bytes of a body, or of the tensors of a result, up to which they are decoded or encoded on an event loop. For more, a worker thread does
it. The slowest body takes 25 milliseconds to decode: 16 KiB of numbers such as 1e300. The slowest result takes 40 to encode: the
classification of 16 KiB of FP64 near 1e308."""

PIECE: Final = 2**16
"""Bytes of long JSON that one call of a decoder gets in a worker thread: it holds the interpreter for a millisecond."""

MAX_QUESTION: Final = 2**16
"""Bytes that a request may have which asks about models, and not for inference: an event loop decodes it."""

MAX_TENSORS: Final = 50_000
"""How many inputs or requested outputs a request may have. Each, however small, costs objects of several times its text."""

MAX_COLUMNS: Final = 2**12
"""How many columns of a data frame a request may have if they are not declared. Each is an object of pandas, which takes up to a
millisecond and 3 KiB, however few rows it has."""

NO_64_BITS: Final = f"is an integer of more than 64 bits: expected {-(2**63)} to {2**64 - 1}"


def has_64_bits(number: int) -> bool:
    """Whether a parameter can be this integer: in gRPC, it is an int64 or a uint64."""
    return -(2**63) <= number < 2**64
