"""Every FP32 that leaves as JSON comes back, also to a reader that reads numbers as FP64 first."""

from __future__ import annotations

import json

import numpy as np

from tests.support.inside.rest import from_json, to_json

FP32, FP64 = np.dtype("<f4"), np.dtype("<f8")

MISREAD = np.frombuffer(b"\xfd\x43\xae\x15", "<f4")
"""The fewest digits that name it among FP32 are those of an FP64 that lies halfway to the next FP32."""


def test_a_sample_of_all_fp32_comes_back() -> None:
    bits = np.random.default_rng(0).integers(0, 2**32, 200_000, np.uint32)
    values = np.concatenate([bits.view(FP32), MISREAD, -MISREAD])
    values = values[np.isfinite(values)]
    text = to_json(values)
    assert np.array(json.loads(text), FP64).astype(FP32).tobytes() == values.tobytes()
    assert from_json(text, FP32, values.shape).tobytes() == values.tobytes()
