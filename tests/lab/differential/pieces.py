"""JSON data: read in pieces of a few bytes against read as a whole, on arrays of any shape, nested or flat, with any whitespace.

Both must give the same array, or both must refuse.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

import numpy as np
import pytest

from tests.support.inside import read_in_pieces
from tests.support.inside.rest import from_json
from tests.support.inside.values import DTYPES, Array, InvalidRequest, to_bytes

NUMBERS = ("0", "1", "-1", "127", "128", "255", "256", "1.0", "2.5", "1e3", "1E-3", "1e300", "-0", "2.4703282292062327208e-324")
ODD = ("null", "true", "NaN", "-Infinity", '"NaN"', '"a"', '"],["', '"\\""', '"\\u00e9"', '"\\\\"', '"é"', "[", "]", "{}", "01", "")


def elements(random: Random, count: int) -> list[str]:
    """Elements, mostly of one kind."""
    pool = random.choice([NUMBERS[:2], NUMBERS[:7], NUMBERS, ('"a"', '"bc"', '""'), ODD[5:11], ("true", "false"), NUMBERS + ODD[:5]])
    found = [random.choice(pool) for _ in range(count)]
    if count and random.random() < 0.2:
        found[random.randrange(count)] = random.choice(NUMBERS + ODD)
    return found


def nested(random: Random, found: list[str], shape: list[int]) -> str:
    """Elements nested as a shape, with a bracket or a comma wrong now and then."""
    for size in reversed(shape[1:]):
        found = (
            [f"[{','.join(found[start : start + size])}]" for start in range(0, len(found), size)] if size else ["[]"] * max(shape[0], 1)
        )
    text = f"[{','.join(found)}]"
    if random.random() < 0.3:
        text = text.replace(",", random.choice([", ", " ,", "\n,\t"])).replace("[", random.choice(["[", "[ "]))
    if random.random() < 0.2:
        place = random.randrange(len(text))
        text = text[:place] + random.choice(["", ",", "[", "]", " ", '"']) + text[place + random.randrange(2) :]
    return text


def read(text: bytes, dtype: Any, shape: tuple[int, ...], chunk: int) -> bytes | None:
    """The array's bytes; None where it is refused."""
    with pytest.MonkeyPatch.context() as patch:
        if chunk < 2**16:
            read_in_pieces(patch, chunk)
        try:
            array: Array = from_json(text, dtype, shape)
        except InvalidRequest:
            return None
    if array.dtype.kind in "fV":
        array = array.astype(np.float64)
        array[np.isnan(array)] = np.nan
    return to_bytes(array)


def compare(random: Random) -> None:
    """Compare one text.

    Raises:
        AssertionError: The ways differ.
    """
    shape = [random.choice([1, 1, 2, 3, 5, 20]) for _ in range(random.randint(1, 4))]
    if random.random() < 0.05:
        shape[random.randrange(len(shape))] = 0
    found = elements(random, int(np.prod(shape)))
    text = nested(random, found, shape if random.random() < 0.7 else shape[:1]).encode()
    try:
        json.loads(text)
    except ValueError:
        return  # the document that holds it is refused
    dtype = random.choice(list(DTYPES.values()))
    expected = read(text, dtype, tuple(shape), 2**16)
    for chunk in (8, 50, 300):
        got = read(text, dtype, tuple(shape), chunk)
        assert got == expected, f"{text!r} as {dtype} {shape} in pieces of {chunk}: {got!r:.300}, not {expected!r:.300}"
