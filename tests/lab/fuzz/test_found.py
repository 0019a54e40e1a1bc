"""What the fuzzer once found stays found: each file of `fuzz/found`, named after its target, and a part of the fuzzer's seeds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.fuzz.targets import TARGETS, checked, seeds

FOUND = sorted(path for path in (Path(__file__).parent / "found").iterdir() if path.name.partition("-")[0] in TARGETS)


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.name)
def test_found(path: Path) -> None:
    checked(TARGETS[path.name.partition("-")[0]], path.read_bytes())


@pytest.mark.parametrize("name", TARGETS)
def test_the_seeds_pass(name: str) -> None:
    count = 0
    for seed in seeds(name):
        checked(TARGETS[name], seed)
        count += 1
    assert count > 10
