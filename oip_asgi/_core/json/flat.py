"""Flat JSON objects, each member of which may be a tensor: their members as text, and what an array is before it is read. Knows no tensors.

What is long is never decoded as a whole: of an array, its shape and the kind of its elements are counted by numpy.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final, Literal, TypeAlias

import msgspec

from ..errors import InvalidRequest, shown
from . import structure
from .documents import ERRORS, MAX_BESIDE, check_unseen, refuse, spelled
from .numbers import ONLY_FLOATS, count_spelled

MAX_MEMBERS: Final = 100_000
"""How many members an object may have. Each takes some 200 bytes, however short its text."""

_SHORT: Final = 2**10
"""Bytes of a value up to which it takes less time to count without numpy, where that is simple."""

Kind: TypeAlias = Literal["string", "bool", "int", "float"]

_OPENINGS: Final = re.compile(rb"(?:[ \t\r\n]*\[)+[ \t\r\n]*(?P<is_empty>\]?)")

_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class Flat(msgspec.Struct, frozen=True):
    """A flat object.

    Args:
        members: Its members by name, each as its JSON, in which literals that are no JSON are written as strings.
        literals: How many such literals there are.
    """

    members: dict[str, msgspec.Raw]
    literals: int

    def check_literals(self, taken: int) -> None:
        """Refuse literals that stand for anything else than elements of floating-point tensors.

        Args:
            taken: How many do.

        Raises:
            InvalidRequest: Others do not.
        """
        if taken != self.literals:
            raise InvalidRequest(ONLY_FLOATS)


def read(text: bytes) -> Flat:
    """A flat object.

    Raises:
        InvalidRequest: The text is no JSON object, nests too deep, is too long, or has too many members, or one name twice.
    """
    if len(text) > MAX_BESIDE:
        raise InvalidRequest(f"the flat object has {len(text)} bytes: expected {MAX_BESIDE} at most; send inputs instead")
    _check_number(text)
    whole, is_spelled = spelled(text)
    try:
        members: dict[str, msgspec.Raw] = _members(whole)
    except ERRORS as error:
        refuse(error, "", text, [], is_spelled=is_spelled)
    check_unseen(text)
    _check_names(text, members)
    return Flat(members, count_spelled(whole) if is_spelled else 0)


def members_of(text: bytes) -> dict[str, msgspec.Raw]:
    """The members of an object within another one.

    Raises:
        InvalidRequest: It has too many members, or one name twice.
        msgspec.ValidationError: It is no object.
    """
    _check_number(text)
    members: dict[str, msgspec.Raw] = _members(text)
    _check_names(text, members)
    return members


def _check_number(text: bytes) -> None:
    if text.count(b",") >= MAX_MEMBERS <= len(structure.commas(text, 1, MAX_MEMBERS)):
        raise InvalidRequest(f"the object has more than {MAX_MEMBERS} members")


def _check_names(text: bytes, members: Collection[str]) -> None:
    """Refuse an object that has a name twice, of which decoders take the last only."""
    if not members or text.count(b",") < len(members) or text.count(b":") <= len(members):
        return
    commas = structure.commas(text, 1, MAX_MEMBERS)
    if len(commas) < len(members):
        return
    seen: set[str] = set()
    begin = text.index(b"{") + 1
    for end in [*commas.tolist(), text.rindex(b"}")]:
        [name] = _members(b"{%b}" % text[begin:end])
        if name in seen:
            raise InvalidRequest(f"{shown(name)} is there twice: expected each name once")
        seen.add(name)
        begin = end + 1


def shape_of(text: bytes) -> tuple[int, ...] | None:
    """The shape of a JSON array whose arrays of one level are equally long; None for any other value.

    Whether they are shows when the array is read.
    """
    opening = _OPENINGS.match(text)
    if opening is None:
        return None
    rank = opening[0].count(b"[")
    commas = _survey(text).commas
    shape: list[int] = []
    arrays = 1
    for depth in range(1, rank + 1):
        items = (commas[depth] if depth < len(commas) else 0) + arrays
        shape.append(items // arrays)
        arrays = items
    if opening["is_empty"]:
        shape[-1] = 0
    return tuple(shape)


def kind_of(text: bytes) -> Kind | None:
    """Of what kind the elements of a JSON value are, in any arrays; "float" where there are none, None where they are of several."""
    seen = _survey(text)
    characters = seen.characters
    is_number = bool(characters & set(b"0123456789"))
    is_word = bool(characters & set(b"tfn"))  # of true, false and null
    if seen.strings:
        are_literals = seen.strings == count_spelled(text)
        return None if is_word else "float" if are_literals else None if is_number else "string"
    if is_word:
        return None if is_number or b"n"[0] in characters else "bool"
    return "int" if is_number and not characters & set(b".eE") else "float"


def _survey(text: bytes) -> structure.Survey:
    """What one value consists of."""
    if len(text) > _SHORT or b'"' in text or b"{" in text or text.count(b"[") > 1:
        return structure.survey(text)
    return structure.Survey([0, text.count(b",")], 0, frozenset(text))
