"""Limits of one request, for what it costs the others: how large it may be on an event loop, and how many
tensors it may have.

Limits that users set are options of `InferenceServer` and `register`; limits of one format stand in its
module, such as the bound of a gzip bomb in `request_body`.
"""

from __future__ import annotations

from typing import Final

LOOP_BYTES: Final = 2**14
"""Bytes of a body, or of the tensors of a result, up to which an event loop decodes or encodes them, whatever
they hold."""

LOOP_COLUMNS: Final = 2**10
"""The same for bodies whose inputs become columns of pandas: one of ten bytes takes up to 0.1
milliseconds."""

LOOP_TEXT: Final = 2**15
"""The same for JSON of plain numbers: 2 milliseconds if it is right, and 13 to find the last one of them
wrong."""

LOOP_BINARY: Final = 2**20
"""The same for numbers that come or leave as bytes: an array of them is a view. To copy so many takes 0.1
milliseconds."""

SHORT_BODY: Final = 2**16
"""Bytes of a body that is taken before anything is decided, if it came with its head: servers hold as many
before anybody reads."""

SHORT_TEXT: Final = 2**18
"""Bytes of JSON of plain numbers up to which one decoder reads it whole: it holds the interpreter for two
milliseconds."""

PIECE: Final = 2**16
"""Bytes of long JSON that one call of a decoder gets in a worker thread: it holds the interpreter for a
millisecond."""

MAX_QUESTION: Final = 2**16
"""Bytes that a request may have which asks about models, and not for inference: an event loop decodes it."""

MAX_TENSORS: Final = 50_000
"""How many inputs or requested outputs a request may have. Each, however small, costs objects of several
times its text."""

MAX_COLUMNS: Final = 2**12
"""How many columns of a data frame a request may have if they are not declared. Each is an object of pandas,
which takes up to a millisecond and 3 KiB, however few rows it has."""

NO_64_BITS: Final = f"is an integer of more than 64 bits: expected {-(2**63)} to {2**64 - 1}"


def may_hold_more(head: bytes) -> bool:
    """Whether a request whose JSON or message this is may hold more than plain numbers: texts, or a content
    type."""
    # among numbers, a letter that is not there is looked for fifty times as quickly as a word
    return (b"B" in head and b"BYTES" in head) or (b"_" in head and b"content_type" in head) or b"\\" in head


def has_64_bits(number: int) -> bool:
    """Whether a parameter can be this integer: in gRPC, it is an int64 or a uint64."""
    return -(2**63) <= number < 2**64
