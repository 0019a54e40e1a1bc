"""JSON data: read in pieces of a few bytes and as a whole, on arrays of any shape, nested or flat, with any whitespace.

Both must give the array that Python's json gives, or both must refuse.
"""

from __future__ import annotations

from random import Random

import numpy as np

from tests.lab.fuzz.targets import json_data

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


def compare(random: Random) -> None:
    """Compare one text.

    Raises:
        AssertionError: The ways differ.
    """
    shape = [random.choice([1, 1, 2, 3, 5, 20]) for _ in range(random.randint(1, 4))]
    if random.random() < 0.05:
        shape[random.randrange(len(shape))] = 0
    text = nested(random, elements(random, int(np.prod(shape))), shape if random.random() < 0.7 else shape[:1])
    data = bytes([random.randrange(256), len(shape), *shape]) + text.encode()
    try:
        json_data(data)
    except AssertionError as error:
        raise AssertionError(f"{data!r}") from error
