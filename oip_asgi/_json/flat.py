"""Flat JSON objects, whose members may be tensors: each member as text, and the shape and kind of an array. Knows no tensors.

No array is decoded here: its brackets show its shape, its characters the kind of its elements.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal, TypeAlias

import msgspec

from .._protocol.errors import InvalidRequest, show
from .text import ERRORS, ONLY_FLOATS, check_members, check_unseen, mask_literals, outside_strings, place_of, refuse, replace_parts

MAX_MEMBERS: Final = 100_000
"""How many members an object may have, with those of objects in it. Each takes some 200 bytes, however short its text."""

Kind: TypeAlias = Literal["string", "bool", "int", "float"]

_EMPTY: Final = re.compile(rb"(?:[ \t\r\n]*\[)+[ \t\r\n]*\]")
_NO_SKELETON: Final = bytes(set(range(256)) - set(b"[],"))

_decode: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def read(text: bytes) -> dict[str, msgspec.Raw]:
    """The members of a flat object by name, each as its JSON, which may have literals that are no JSON."""
    try:
        members = read_members(text)
    except ERRORS as error:
        refuse(error, "", text)
    check_unseen(text)
    return members


def read_members(text: bytes) -> dict[str, msgspec.Raw]:
    """The members of an object within another one."""
    check_members(text, MAX_MEMBERS, "the object has")
    try:
        members: dict[str, msgspec.Raw] = _decode(text)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        masked = mask_literals(text)
        if masked is None:
            raise
    else:
        _check_names(text, members)
        return members
    # the masked text shows the places of the values, and the text without them their names
    members = _decode(masked)
    _check_names(masked, members)
    places = [place_of(masked, value) for value in members.values()]
    names: dict[str, msgspec.Raw] = _decode(replace_parts(text, places))
    if len(names) != len(places):
        raise InvalidRequest(ONLY_FLOATS)
    return {name: msgspec.Raw(text[place]) for name, place in zip(names, places, strict=True)}


class _Name(str):
    __slots__ = ()


def _check_names(text: bytes, members: dict[str, msgspec.Raw]) -> None:
    """Refuse an object that has a name twice, of which decoders take the last only."""
    if text.count(b":") <= len(members):
        return
    names: set[str] = set()

    def add(_: type, name: Any) -> Any:
        if name in names:
            raise InvalidRequest(f"{show(name)} is there twice: expected each name once")
        names.add(name)
        return _Name(name)

    msgspec.json.decode(text, type=dict[_Name, msgspec.Raw], dec_hook=add)


def shape_of(text: bytes) -> tuple[int, ...] | None:
    """The shape of a JSON array whose arrays of one level are equally long; None for any other value."""
    skeleton = b"".join(chunk.translate(None, _NO_SKELETON) for chunk in outside_strings(text))
    rank = len(skeleton) - len(skeleton.lstrip(b"["))
    if not rank:
        return None
    end = skeleton.find(b"]") + 1
    shape, length = [0 if _EMPTY.match(text) else skeleton.count(b",", rank, end) + 1], end - rank + 1
    for depth in range(2, rank + 1):  # from the innermost arrays outwards; of each level, the first is looked at
        end = skeleton.find(b"]" * depth) + depth
        whole = end - rank + depth
        shape.append((whole - 1) // (length + 1))
        length = whole
    return tuple(reversed(shape))


def kind_of(text: bytes) -> Kind | None:
    """The kind of the elements of a JSON value, in any arrays; "float" if there are none, None if they are of several kinds."""
    characters: set[int] = set()
    for chunk in outside_strings(text):
        characters.update(chunk)
    is_number, is_literal = bool(characters & set(b"0123456789")), bool(characters & set(b"NI"))
    is_word = bool(characters & set(b"ul"))  # of true, false and null
    if b'"' in text:
        return None if is_word or is_number or is_literal else "string"
    if is_word:
        return None if is_number or is_literal or b"n"[0] in characters else "bool"
    return "int" if is_number and not is_literal and not characters & set(b".eE") else "float"
