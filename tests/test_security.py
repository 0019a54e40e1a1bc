"""`.github/SECURITY.md`: each row and test that its table names is there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from tests.lab.hostile.known import known
from tests.lab.hostile.points import points
from tests.lab.hostile.rows import all_rows

pytestmark = pytest.mark.ci  # as no machine breaks it

ROOT: Final = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def names() -> list[str]:
    return [row.name for row in [*all_rows(), *known(), *points()]]


@pytest.mark.ci
def test_each_row_and_test_that_is_named_is_there(names: list[str]) -> None:
    _, _, table = (ROOT / ".github" / "SECURITY.md").read_text().partition("## Vulnerabilities of others")
    lines = [line for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(lines) == 16
    for line in lines:
        held_by = line.split(" | ")[-1].removesuffix(" |")
        named, tests = re.findall(r'"([^"]+)"', held_by), re.findall(r"`([^`]+)`", held_by)
        assert named or tests, line
        assert set(named) <= set(names), set(named) - set(names)
        for path, _, test in (name.partition("::") for name in tests):
            assert f"def {test}(" in (ROOT / path).read_text(), f"{path} has no {test}"


def test_each_row_for_a_known_vulnerability_has_its_own_name(names: list[str]) -> None:
    assert len(names) == len(set(names))
