"""A list of values becomes what `cells.py` says, whichever way it comes in: each kind is asked with each of its values."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.table.values.__main__ import FIRST, PAGE, print_for_the_guide
from tests.table.values.cells import GROUPS, expect, values_of
from tests.table.values.differences import BY_DESIGN, decide, find_ways
from tests.table.values.kinds import KINDS
from tests.table.values.ways import Ways


@pytest.fixture(scope="module")
def ways() -> Iterator[Ways]:
    with Ways() as ways:
        yield ways


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("name", KINDS)
def test_values_become_the_same_by_each_way(ways: Ways, name: str, group: str) -> None:
    kind = KINDS[name]
    wrong = []
    for values, asked in values_of(kind, group).items():
        outcomes = ways.ask(kind, values, asked)
        assert len(outcomes) > 1
        assert find_ways(kind, values) <= outcomes.keys()
        for way, outcome in outcomes.items():
            right = decide(kind, values, way)
            if outcome != right:
                wrong.append(f"{name}, {values}, by {way}: {outcome} and not {right}")
    assert wrong == []


def test_each_cell_that_differs_is_one_of_the_table_and_stands_once() -> None:
    cells = [each for rows in BY_DESIGN.values() for row in rows for each in row.list_cells()]
    assert len({cell for cell, _ in cells}) == len(cells)
    for (name, values, _), outcome in cells:
        kind = KINDS[name]
        assert any(values in values_of(kind, group) for group in GROUPS)
        assert outcome != expect(kind, values)


def test_the_page_of_the_guide_is_what_is_printed() -> None:
    assert FIRST + PAGE.read_text().partition(FIRST)[2] == print_for_the_guide(), "run python -m tests.table.values --write"
