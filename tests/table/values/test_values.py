"""A list of values becomes what `cells.py` says, whichever way it comes in: each kind is asked with each of its values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pytest

from tests.table.values.cells import expect, values_of
from tests.table.values.differences import BY_DESIGN, DIFFERS, Rows, decide, find_today
from tests.table.values.kinds import KINDS, Kind
from tests.table.values.ways import Ways

CELLS = [(kind, name) for kind in KINDS.values() for name in values_of(kind)]


@pytest.fixture(scope="module")
def ways() -> Iterator[Ways]:
    with Ways() as ways:
        yield ways


@pytest.mark.parametrize(("kind", "name"), CELLS, ids=[f"{kind.name}-{name}" for kind, name in CELLS])
def test_values_become_the_same_by_each_way(ways: Ways, kind: Kind, name: str) -> None:
    outcomes = ways.ask(kind, values_of(kind)[name])
    assert len(outcomes) >= 2
    right = {way: decide(kind, name, way) for way in outcomes}
    today = {way: find_today(kind, name, way) or right[way] for way in outcomes}
    mended = {way: outcome for way, outcome in outcomes.items() if outcome == right[way] != today[way]}
    assert mended == {}, "take it off the list in differences.py"
    assert outcomes == today


@pytest.mark.parametrize("listed", [BY_DESIGN, DIFFERS], ids=["by design", "not mended"])
def test_each_cell_that_differs_is_one_of_the_table_and_listed_once(ways: Ways, listed: Mapping[str, Sequence[Rows]]) -> None:
    cells = [(cell, outcome) for rows in listed.values() for row in rows for cell, outcome in row.list_cells()]
    assert len({cell for cell, _ in cells}) == len(cells)
    for (kind, values, way), outcome in cells:
        assert way in ways.ask(KINDS[kind], values_of(KINDS[kind])[values])
        assert outcome != (decide(KINDS[kind], values, way) if listed is DIFFERS else expect(KINDS[kind], values))
