"""What one request may cost the others: how much is decoded or encoded on an event loop, and how many tensors it may name.

Limits that users set are options of `InferenceServer` and `register`; limits of one format stand in its module.
"""

from __future__ import annotations

from typing import Final

from .errors import InvalidRequest

LOOP_BYTES: Final = 2**14
"""Bytes of a body, or of the tensors of a result, up to which they are decoded or encoded on an event loop. Above, a worker thread does it.
The slowest known, 16 KiB of numbers such as 1e300, take 25 milliseconds."""

PIECE: Final = 2**16
"""Bytes of long JSON that one call of a decoder gets in a worker thread: it holds the interpreter for a millisecond."""

MAX_QUESTION: Final = 2**16
"""Bytes of a request that asks about models and not for inference, which are read on an event loop."""

MAX_TENSORS: Final = 50_000
"""More columns than any frame has. Each tensor that is named, however small, costs objects of several times its text."""


def check_numbers(inputs: int, outputs: int) -> None:
    """Refuse a request with too many inputs or requested outputs, before anything is made of them."""
    if inputs > MAX_TENSORS or outputs > MAX_TENSORS:
        number, what = (inputs, "inputs") if inputs > MAX_TENSORS else (outputs, "outputs")
        raise InvalidRequest(f"the request has {number} {what}: expected {MAX_TENSORS} at most")
