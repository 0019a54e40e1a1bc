"""Scans JSON text without a decoder, for what is outside strings and how deep it nests; and says what
decoders refuse. Knows no documents.

Whether NaN and infinities are taken is decided where numbers are read: `checked_data` for infer, `enter` of
`_codecs` for generate.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Iterator
from typing import Final, NoReturn

import msgspec
import numpy as np

from .._protocol.datatypes import Buffer
from .._protocol.errors import InvalidRequest
from .._protocol.limits import PIECE
from .._turns import take_turns

MAX_ARRAYS: Final = 4_000_000
"""Arrays that one JSON may have. A decoder skips the brackets of `data` in one go, and nothing else runs
meanwhile."""

MAX_DEPTH: Final = 100
"""How deep JSON may nest, wherever it does."""

NO_JSON: Final = "NaN, Infinity and -Infinity are no JSON"
ONLY_FLOATS: Final = f"{NO_JSON}: expected them as elements of floating-point data only"

OF_TENSORFLOW: Final = (
    '; it looks like the form of TensorFlow Serving: write {"inputs": [{"name": "x", "shape": [1, 2], '
    '"datatype": "FP32", '
    '"data": [1, 2]}]}, or send {"x": [[1, 2]]} to generate'
)

NO_SCALARS: Final = {list: "a list", dict: "an object", type(None): "null"}
"""What errors call values that no parameter may have."""

ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoders raise."""


_BEGINNINGS: Final = {
    b"--": "; it looks like multipart/form-data, which curl -F and HTML forms send: send JSON",
    b"\xef\xbb\xbf": (
        "; it begins with a byte order mark: send UTF-8 without one, which Python calls utf-8 and not "
        "utf-8-sig"
    ),
    b"\x93NU": "; it looks like a .npy file: send JSON, or the array's bytes alone as binary tensor data",
    b"{'": "; it looks like a dict as Python prints it: send what json.dumps makes of it",
    b"\xff\xfe": "; it looks like UTF-16: send UTF-8",
}
"""What to send instead of a text that begins so."""


class Unusual(Exception):
    """Raised by the quick way for a text that it does not take. The other way takes it, or says what is
    wrong."""


REFUSALS: Final = (*ERRORS, Unusual)
"""What the quick ways raise."""

_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_STEPS: Final = bytes({91: 1, 123: 1, 93: 255, 125: 255}.get(code, 0) for code in range(256))


def iterate_outside_strings(text: Buffer) -> Iterator[bytes]:
    """A text without its strings, in chunks."""
    return take_turns(_drop_strings(memoryview(text)))


def _drop_strings(view: memoryview) -> Iterator[bytes]:
    start, is_inside = 0, False
    while start < len(view):
        chunk = bytes(view[start : start + PIECE])
        if (len(chunk) - len(chunk.rstrip(b"\\"))) % 2 and len(chunk) > 1:
            chunk = chunk[:-1]  # an escape is not cut
        start += len(chunk)
        parts = mask_escapes(chunk).split(b'"')
        yield b"".join(parts[is_inside::2])
        is_inside ^= len(parts) % 2 == 0


def mask_escapes(text: bytes) -> bytes:
    """A text of the same length in which each quote begins or ends a string."""
    return text.replace(b"\\\\", b"__").replace(b'\\"', b"__") if b"\\" in text else text


def check_members(text: Buffer, most: int, what: str) -> None:
    """Refuse too many members or arrays, before a decoder makes them: each member takes ten times its
    text."""
    if len(text) <= most:
        return
    whole = bytes(text)
    arrays = whole.count(b"[")
    if arrays > MAX_ARRAYS:
        raise InvalidRequest(
            f"the JSON has {arrays} arrays: expected {MAX_ARRAYS} at most: send flat data, or binary tensor "
            "data"
        )
    if whole.count(b":") > most and sum(chunk.count(b":") for chunk in iterate_outside_strings(text)) > most:
        raise InvalidRequest(f"{what} more than {most} members")


def check_unseen(text: Buffer) -> None:
    """Check what decoders skip: that the text is UTF-8, and how deep it nests."""
    view, decoder, brackets = memoryview(text), getincrementaldecoder("utf-8")(), 0
    try:
        for start in take_turns(range(0, len(view), PIECE)):
            chunk = bytes(view[start : start + PIECE])
            decoder.decode(chunk)
            brackets += chunk.count(b"[") + chunk.count(b"{")
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"the JSON is not valid UTF-8: {error.reason}{_find_hint(view)}") from None
    if brackets <= MAX_DEPTH:  # it nests no deeper than it has brackets
        return
    depth = 0
    for outside in iterate_outside_strings(view):
        depths = depth + np.cumsum(
            np.frombuffer(outside.translate(_STEPS, _NO_BRACKETS), np.int8), dtype=np.int64
        )
        if len(depths):
            depth = int(depths[-1])
            if depths.max() > MAX_DEPTH:
                raise InvalidRequest(f"the JSON is nested more than {MAX_DEPTH} deep")


def refuse(error: Exception, location: str, text: Buffer, hint: str = "") -> NoReturn:
    """Raise what a decoder found wrong in a text, or in the part of it at `location`."""
    check_unseen(text)
    if not isinstance(error, msgspec.ValidationError):
        raise InvalidRequest(f"the body is not valid JSON: {error}{_find_hint(text)}") from None
    problem, _, path = str(error).replace("`", "").partition(" - at $")
    where = f"{location}{path}".lstrip(".") or "the body"
    raise InvalidRequest(f"{where}: {problem[0].lower()}{problem[1:]}{hint}") from None


def _find_hint(text: Buffer) -> str:
    """What to send instead of a text that begins as no JSON does."""
    start = bytes(text[:3])
    return next((hint for beginning, hint in _BEGINNINGS.items() if start.startswith(beginning)), "")
