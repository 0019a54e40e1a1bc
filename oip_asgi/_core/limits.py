"""What one request may cost the others: how much is decoded or encoded on an event loop, and how many tensors it may name.

Limits that users set are options of `InferenceServer` and `register`; limits of one format stand beside it, in `json` and `raw`.
"""

from __future__ import annotations

from typing import Final

from .errors import InvalidRequest

ON_LOOP: Final = 2**16
"""Above this cost a body is decoded, or a response encoded, in a worker thread under an event loop. It counts bytes that are looked at one
by one, 75 nanoseconds each at most: so what stays on the loop takes 5 milliseconds at most, and nearly always a tenth of that. What costs
more for each byte counts more, such as JSON."""

MAX_TENSORS: Final = 100_000
"""More columns than any frame has. Each tensor that is named, however small, costs objects of several times its text."""


def check_numbers(inputs: int, outputs: int) -> None:
    """Look at how many inputs a request has, and how many outputs it asks for, before anything is made of them.

    Raises:
        InvalidRequest: More than `MAX_TENSORS` of one.
    """
    if inputs > MAX_TENSORS or outputs > MAX_TENSORS:
        number, what = (inputs, "inputs") if inputs > MAX_TENSORS else (outputs, "outputs")
        raise InvalidRequest(f"the request has {number} {what}: expected {MAX_TENSORS} at most")
