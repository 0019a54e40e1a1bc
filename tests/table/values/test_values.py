"""A list of values becomes what `cells.py` says, whichever way it comes in: each kind is asked with each of its values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pytest

from tests.table.values.__main__ import FIRST, PAGE, print_for_the_guide
from tests.table.values.cells import GROUPS, expect, values_of
from tests.table.values.differences import BY_DESIGN, DIFFERS, Rows, decide, find_today, find_ways
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
    wrong, mended = [], []
    for values, asked in values_of(kind, group).items():
        outcomes = ways.ask(kind, values, asked)
        assert len(outcomes) > 1
        assert find_ways(kind, values) <= outcomes.keys()
        for way, outcome in outcomes.items():
            right, today = decide(kind, values, way), find_today(kind, values, way)
            if today is not None and outcome == right:
                mended.append(f"{name}, {values}, by {way}")
            elif outcome != (right if today is None else today):
                wrong.append(f"{name}, {values}, by {way}: {outcome} and not {right}")
    assert wrong == []
    assert mended == [], "take it off the list in differences.py"


@pytest.mark.parametrize("listed", [BY_DESIGN, DIFFERS], ids=["by design", "not mended"])
def test_each_cell_that_differs_is_one_of_the_table_and_stands_once(listed: Mapping[str, Sequence[Rows]]) -> None:
    cells = [each for rows in listed.values() for row in rows for each in row.list_cells()]
    assert len({cell for cell, _ in cells}) == len(cells)
    for (name, values, way), outcome in cells:
        kind = KINDS[name]
        assert any(values in values_of(kind, group) for group in GROUPS)
        assert outcome != (decide(kind, values, way) if listed is DIFFERS else expect(kind, values))


def test_the_page_of_the_guide_is_what_is_printed() -> None:
    assert FIRST + PAGE.read_text().partition(FIRST)[2] == print_for_the_guide(), "run python -m tests.table.values --write"
