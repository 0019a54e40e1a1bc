"""JSON text without tensors: scans it without a decoder, for what is outside strings and how deep it nests;
says what decoders refuse; and reads a flat object, or a list of them, to its members, as Python has them.
Knows no documents.

Whether NaN and infinities are taken is decided where numbers are read: `checked_data` for infer, `enter` of
`_codecs` for generate.
"""

from __future__ import annotations

import json
import re
from codecs import getincrementaldecoder
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from typing import Any, Final, NoReturn

import msgspec
import numpy as np

from .._protocol.datatypes import Buffer
from .._protocol.errors import InvalidRequest, show
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


# Flat objects

MAX_VALUES: Final = 100_000
"""How many values an object may hold, as it is read in one go."""

_INFERENCE_REQUEST: Final = re.compile(rb'"inputs"[ \t\r\n]*:[ \t\r\n]*\[[ \t\r\n]*[{\]]')

_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")

_MAX_DIGITS: Final = 4299
"""Python itself neither reads nor writes an integer of many more digits."""

TOO_LARGE: Final = 10**_MAX_DIGITS
"""Stands for a whole number of more digits, which is out of range wherever it is."""


class Literal(str):
    """NaN or an infinity as Python's json writes them, which is no JSON."""


def _read_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        [(twice, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise InvalidRequest(f"{show(twice)} is there twice: expected each name once")
    return members


_read: Final = json.JSONDecoder(
    object_pairs_hook=_read_members,
    parse_int=lambda text: int(text) if len(text) <= _MAX_DIGITS else TOO_LARGE,
    parse_constant=Literal,
).decode


def is_inference_request(text: bytes, inputs: Collection[str]) -> bool:
    """True if a body is an inference request, as MLServer's clients send it to the same path: its `inputs`
    are objects."""
    return b'"inputs"' in text and "inputs" not in inputs and _INFERENCE_REQUEST.search(text) is not None


def read_object(text: bytes) -> dict[str, Any]:
    """The members of a request."""
    if not text:
        raise InvalidRequest("the body is empty: expected a JSON object with a member for each input")
    check_unseen(text)
    _check_number(text)
    with suppress(ValueError):
        members = _read(text.decode())
        if _SURROGATE.search(text):
            json.dumps(members, ensure_ascii=False).encode()  # a lone surrogate is no text
        if type(members) is dict:
            return members
    try:
        msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except ERRORS as error:
        refuse(error, "", text)
    raise InvalidRequest("the body is not valid JSON")


def _check_number(text: bytes) -> None:
    if len(text) > MAX_VALUES and _count_sign(b",", text, MAX_VALUES - 1) >= MAX_VALUES:
        raise InvalidRequest(f"the object has more than {MAX_VALUES} values: use infer")


def _count_sign(sign: bytes, text: bytes, expected: int) -> int:
    """How often a text has a sign outside of strings. If it has no more than is expected, those in strings
    count too."""
    number = text.count(sign)
    return number if number <= expected else sum(chunk.count(sign) for chunk in iterate_outside_strings(text))


def _has_members(text: bytes, number: int) -> bool:
    """Whether objects have just so many members, so that no name is there twice, and no lone surrogate, which
    is no text."""
    return _count_sign(b":", text, number) == number and (b"\\u" not in text or not _SURROGATE.search(text))


def read_rows(text: bytes, from_json: Callable[[bytes], list[Any]], width: int) -> list[Any] | None:
    """The rows of a class of `width` fields, which must all be there. None if `from_json` refuses the text,
    or would skip some of it."""
    _check_number(text)
    with suppress(Exception):  # what the class itself raises too
        rows = from_json(text)
        if _has_members(text, len(rows) * width):  # so all is decoded, and no name is unknown
            return rows
    return None


def read_objects(text: bytes, width: int) -> list[Any]:
    """A list of objects, each of which is a row of a class of `width` fields."""
    check_unseen(text)
    _check_number(text)
    rows: list[Any] = []
    with suppress(*ERRORS):
        rows = msgspec.json.decode(text, type=list[dict[str, Any]])
    if not rows or not _has_members(text, sum(map(len, rows))):
        rows = read_object(b'{"rows":%b}' % text)["rows"]
        for row, each in enumerate(rows):
            for name, value in each.items() if type(each) is dict else ():
                problem = find_problem([value])
                if problem is not None:
                    raise InvalidRequest(f"rows[{row}].{name}: {problem}")
    if len(rows) * width > MAX_VALUES:  # defaults are values too
        raise InvalidRequest(
            f"the rows have more than {MAX_VALUES} values, as each has {width} fields: use infer"
        )
    return rows


def find_problem(values: Iterable[Any]) -> str | None:
    """What is wrong with values that `read_object` has read, if something in them is no JSON, or out of the
    range of all numbers."""
    left = list(values)
    while left:
        each = left.pop()
        kind = type(each)
        if kind is list or kind is dict:
            left += each if kind is list else each.values()
        elif kind is Literal:
            return ONLY_FLOATS
        elif kind in (int, float) and abs(each) >= TOO_LARGE:
            return "number out of range"
    return None
