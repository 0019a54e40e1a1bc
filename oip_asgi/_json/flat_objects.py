"""The text of a flat JSON object, or of a list of them -> its members, as Python has them. Knows no
tensors."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Any, Final

import msgspec

from .._protocol.errors import InvalidRequest, show
from .text import ERRORS, ONLY_FLOATS, check_unseen, iterate_outside_strings, refuse

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
