"""Odd numbers in JSON text: literals that are no JSON, and numbers that take long to read. Knows no datatypes and no errors."""

from __future__ import annotations

from typing import Final

import numpy as np

from ..datatypes import Buffer

_MANY_SLOW: Final = 64
"""How many slow numbers a decoder may be given at once: they take half a millisecond."""

LITERALS: Final = {b"NaN": b'"\\u004eaN"', b"-Infinity": b'"-\\u0049nfinity"', b"Infinity": b'"\\u0049nfinity"'}
"""What Python's json writes for non-finite numbers -> a spelling of the string that means the same, and that nobody else writes."""

NO_JSON: Final = "NaN, Infinity and -Infinity are no JSON"
ONLY_FLOATS: Final = f"{NO_JSON}: expected them as elements of floating-point data only"

_CHUNK: Final = 2**20


def are_many_slow(text: bytes) -> bool:
    """Whether many numbers look as if msgspec needed 8 microseconds for each, which are those with an exponent of three digits.

    It takes other numbers in 30 nanoseconds, so 64 KiB of `1e300` would take 90 milliseconds instead of 1. Strings may look so too.
    """
    if text.find(b"e") < 0 and text.find(b"E") < 0:
        return False
    chars = np.frombuffer(text, np.uint8)
    is_exponent = (chars | 32) == ord("e")
    if np.count_nonzero(is_exponent) <= _MANY_SLOW:
        return False
    is_digit = (chars - ord("0")) < 10  # below "0" the difference wraps around
    is_slow = is_exponent[:-4] & is_digit[2:-2] & is_digit[3:-1] & (is_digit[1:-3] | is_digit[4:])
    return int(np.count_nonzero(is_slow)) > _MANY_SLOW


def has_literals(text: Buffer) -> bool:
    """Whether there may be literals that are no JSON: so it is where strings hold their names."""
    whole = bytes(text)
    return whole.find(b"NaN") >= 0 or whole.find(b"Infinity") >= 0


def spell_literals(text: bytes) -> bytes:
    """Write the literals outside strings as strings, in text without escaped quotes, over bounded chunks."""
    parts: list[bytes] = []
    start, inside = 0, 0
    while start < len(text):
        end = text.find(b",", start + _CHUNK)  # no literal holds a comma
        end = len(text) if end < 0 else end
        pieces = text[start:end].split(b'"')
        for place in range(inside, len(pieces), 2):
            for literal, spelling in LITERALS.items():
                pieces[place] = pieces[place].replace(literal, spelling)
        inside ^= (len(pieces) - 1) % 2
        parts.append(b'"'.join(pieces))
        start = end
    return b"".join(parts)


def count_spelled(text: bytes) -> int:
    """How many literals were written as strings."""
    return sum(map(text.count, LITERALS.values()))
