"""Flat JSON objects, each member of which may be a tensor: their members as text, and what an array is before it is read. Knows no tensors.

What is long is never decoded as a whole: the brackets and commas of an array tell its shape, its characters the kind of its elements.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal, TypeAlias

import msgspec
import numpy as np

from .._protocol.errors import InvalidRequest, shown
from .documents import ERRORS, refuse
from .text import ONLY_FLOATS, blanked, check_members, check_unseen, mask_literals, outside_strings, place_of

MAX_MEMBERS: Final = 100_000
"""How many members an object may have, with those of objects in it. Each takes some 200 bytes, however short its text."""

Kind: TypeAlias = Literal["string", "bool", "int", "float"]

_OPENINGS: Final = re.compile(rb"(?:[ \t\r\n]*\[)+[ \t\r\n]*(?P<is_empty>\]?)")

_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def read(text: bytes) -> dict[str, msgspec.Raw]:
    """The members of a flat object by name, each as its JSON, which may have literals that are no JSON."""
    try:
        members = members_of(text)
    except ERRORS as error:
        refuse(error, "", text)
    check_unseen(text)
    return members


def members_of(text: bytes) -> dict[str, msgspec.Raw]:
    """The members of an object within another one."""
    check_members(text, MAX_MEMBERS, "the object has")
    try:
        members: dict[str, msgspec.Raw] = _members(text)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        masked = mask_literals(text)
        if masked is None:
            raise
        return _members_with_literals(text, masked)
    _check_names(text, members)
    return members


def _members_with_literals(text: bytes, masked: bytes) -> dict[str, msgspec.Raw]:
    """The masked text tells where the values are, and the text without them their names."""
    found: dict[str, msgspec.Raw] = _members(masked)
    _check_names(masked, found)
    places = [place_of(masked, value) for value in found.values()]
    names: dict[str, msgspec.Raw] = _members(blanked(text, places))
    if len(names) != len(places):
        raise InvalidRequest(ONLY_FLOATS)
    return {name: msgspec.Raw(text[place]) for name, place in zip(names, places, strict=True)}


class _Name(str):
    __slots__ = ()


def _check_names(text: bytes, members: dict[str, msgspec.Raw]) -> None:
    """Refuse an object that has a name twice, of which decoders take the last only."""
    if text.count(b":") <= len(members):
        return
    names: list[str] = []

    def note(_: type, name: Any) -> Any:
        names.append(name)
        return _Name(name)

    msgspec.json.decode(text, type=dict[_Name, msgspec.Raw], dec_hook=note)
    if len(names) > len(members):
        seen: set[str] = set()
        twice = next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise InvalidRequest(f"{shown(twice)} is there twice: expected each name once")


def shape_of(text: bytes) -> tuple[int, ...] | None:
    """The shape of a JSON array whose arrays of one level are equally long; None for any other value."""
    opening = _OPENINGS.match(text)
    if opening is None:
        return None
    rank = opening[0].count(b"[")
    commas = _commas(text, rank)
    shape: list[int] = []
    arrays = 1
    for found in commas:
        items = found + arrays
        shape.append(items // arrays)
        arrays = items
    if opening["is_empty"]:
        shape[-1] = 0
    return tuple(shape)


def _commas(text: bytes, rank: int) -> list[int]:
    """How many commas each level of an array has outside strings."""
    if rank == 1:
        return [sum(chunk.count(b",") for chunk in outside_strings(text))]
    found, depth = np.zeros(rank + 1, np.int64), 0
    for chunk in outside_strings(text):
        chars = np.frombuffer(chunk, np.uint8)
        depths = depth + np.cumsum((chars == ord("[")).astype(np.int64) - (chars == ord("]")))
        at = depths[chars == ord(",")]
        found += np.bincount(at[(at >= 0) & (at <= rank)], minlength=rank + 1)
        depth = int(depths[-1]) if len(depths) else depth
    commas: list[int] = found[1:].tolist()
    return commas


def kind_of(text: bytes) -> Kind | None:
    """Of what kind the elements of a JSON value are, in any arrays; "float" where there are none, None where they are of several."""
    plain = text.replace(b"Infinity", b"NaN")
    characters = set(b"").union(*outside_strings(plain))
    is_number, is_literal = bool(characters & set(b"0123456789")), b"N"[0] in characters
    is_word = bool(characters & set(b"tfn"))  # of true, false and null
    if b'"' in text:
        return None if is_word or is_number or is_literal else "string"
    if is_word:
        return None if is_number or is_literal or b"n"[0] in characters else "bool"
    return "int" if is_number and not is_literal and not characters & set(b".eE") else "float"
