"""Every FP32 that leaves as JSON comes back, also to a reader that reads numbers as FP64 first.

With the extra `[fast]`, FP32 are written with the fewest digits that name them among FP32, which are nine at most. The FP64 nearest to
such a number may lie exactly between two FP32, and then round to the wrong one. For that the number must be as near to a midpoint as half
of the distance of FP64. All numbers of nine digits that are so near are found here by their residues, instead of trying 2^31 FP32.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pytest

from tests.support.inside.rest import accelerators, from_json, to_json

orjson = pytest.importorskip("orjson")

MISREAD = np.frombuffer(b"\xfd\x43\xae\x15", "<f4")
FP32, FP64 = np.dtype("<f4"), np.dtype("<f8")


def first(factor: int, modulus: int, low: int, high: int) -> int | None:
    """The least x >= 0 with low <= factor * x % modulus <= high, for 0 <= low <= high < modulus and factor < modulus."""
    if low == 0:
        return 0
    if factor == 0:
        return None
    x = -(-low // factor)
    if factor * x <= high:
        return x
    wraps = first(modulus % factor, factor, -high % factor, -low % factor)
    return None if wraps is None else -(-(low + modulus * wraps) // factor)


def every(factor: int, modulus: int, low: int, high: int, start: int, stop: int) -> Iterator[int]:
    """All such x with start <= x < stop."""
    while start < stop:
        left, right = (low - factor * start) % modulus, (high - factor * start) % modulus
        step = first(factor % modulus, modulus, left, right) if left <= right else 0
        if step is None or start + step >= stop:
            return
        yield start + step
        start += step + 1


def near_midpoints() -> Iterator[int]:
    """The bits of the positive FP32 on both sides of each midpoint that a number of nine digits is too near to."""
    for exponent in range(-149, 128):
        half = max(exponent, -126) - 24  # of the distance of FP32 from 2**exponent on, as a power of two
        for ten in range(int(exponent * 0.30103) - 11, int(exponent * 0.30103) - 6):
            # digits * above / below is the number in halves of the distance; odd ones are midpoints
            above = 10 ** max(ten, 0) * 2 ** max(-half, 0)
            below = 10 ** max(-ten, 0) * 2 ** max(half, 0)
            start = max(10**8, -(-(2 ** (exponent - half)) * below // above))
            stop = min(10**9, 2 ** (exponent + 1 - half) * below // above + 1)
            near = below >> (53 + half - exponent)
            if not near:
                continue
            for low, high in ((below - near, below - 1), (below + 1, below + near)):
                for digits in every(above, 2 * below, low, high, start, stop):
                    midpoint = (2 * digits * above + below) // (2 * below)
                    for even in (midpoint - 1, midpoint + 1):
                        yield int(np.ldexp(np.float64(even), half).astype(FP32).view(np.uint32))


def test_residues_are_found() -> None:
    for modulus in (1, 2, 7, 60):
        for factor in range(modulus):
            for low in range(modulus):
                high = min(modulus - 1, low + 3)
                expected = [x for x in range(5, 50) if low <= factor * x % modulus <= high]
                assert list(every(factor, modulus, low, high, 5, 50)) == expected


def test_all_fp32_that_could_come_back_as_another_come_back() -> None:
    bits = np.array(sorted(set(near_midpoints())), np.uint32)
    assert len(bits) > 200
    assert MISREAD.view(np.uint32)[0] in bits
    values = np.concatenate([bits.view(FP32), -bits.view(FP32)])
    values = np.concatenate([values, np.zeros(1000, FP32)])  # as many as are written by the library
    text = to_json(values)
    assert np.array(json.loads(text), FP64).astype(FP32).tobytes() == values.tobytes()
    assert from_json(text, FP32, values.shape).tobytes() == values.tobytes()
    # by the library alone, one would not
    bare = np.array(orjson.loads(orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY)), FP64).astype(FP32)
    assert set(np.abs(values[bare != values]).tolist()) <= {float(MISREAD[0])}


@pytest.mark.parametrize("sign", [1, -1])
def test_the_one_that_would_not_come_back(sign: int) -> None:
    values = np.full(2000, sign * MISREAD[0], FP32)
    assert json.loads(to_json(values)) == values.astype(FP64).tolist()
    assert accelerators.write(values) is None


def test_a_sample_of_all_fp32_comes_back() -> None:
    bits = np.random.default_rng(0).integers(0, 2**32, 200_000, np.uint32)
    values = bits.view(FP32)
    values = values[np.isfinite(values)]
    assert np.array(json.loads(to_json(values)), FP64).astype(FP32).tobytes() == values.tobytes()
